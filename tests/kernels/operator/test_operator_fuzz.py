"""Random shapes, types, options, machines and special values against the float64 lattice.

Derandomised: every run draws the same examples.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asr_ascend.losses.layout import packed_cells
from tests.support import emulated_operator as emulated
from tests.support import oracles

bounded = settings(
    max_examples=70,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


class Problem(NamedTuple):
    case: oracles.Case
    clamp: float
    fused_log_softmax: bool
    fastemit_lambda: float
    upstream: torch.Tensor | None  # None: the fused entry
    machine: dict[str, Any]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    lengths = draw(
        st.lists(st.tuples(st.integers(1, 14), st.integers(0, 9)), min_size=1, max_size=6)
    )
    vocab = draw(st.integers(2, 70) | st.integers(71, 400))
    case = oracles.make_case(
        lengths,
        vocab,
        blank=draw(st.integers(-vocab, vocab - 1)),
        dtype=draw(st.sampled_from(emulated.DTYPES)),
        scale=draw(st.sampled_from([0.0, 0.1, 1.0, 5.0, 40.0])),
        seed=draw(st.integers(0, 2**32)),
    )
    fused_log_softmax = draw(st.booleans())
    if not fused_log_softmax:
        case = case.with_logits(case.logits.double().log_softmax(-1).to(case.logits.dtype))
    machine = {
        "cores": draw(st.integers(1, 12)),
        "seed": draw(st.integers(0, 1000)),
        "nan_rule": draw(st.integers(0, 2)),
        "offset": draw(st.sampled_from([0, 4, 20])),
    }
    upstream, fastemit_lambda = None, 0.0
    if draw(st.booleans()):
        factors = st.sampled_from([1.0, -1.0, 0.0, 0.25, 2.0])
        upstream = torch.tensor([draw(factors) for _ in lengths])
        machine["backward_cores"] = draw(st.integers(1, 12))
        machine["in_place"] = draw(st.booleans())
        fastemit_lambda = draw(st.sampled_from([0.0, 0.0, 0.1, 1.0]))
    clamp = draw(st.sampled_from([-1.0, 0.0, 0.01, 0.5]))
    return Problem(case, clamp, fused_log_softmax, fastemit_lambda, upstream, machine)


def solve(library: ctypes.CDLL, problem: Problem) -> emulated.Result:
    return emulated.call(
        library,
        problem.case,
        clamp=problem.clamp,
        fused_log_softmax=problem.fused_log_softmax,
        fastemit_lambda=problem.fastemit_lambda,
        upstream=problem.upstream,
        entry="fused" if problem.upstream is None else "split",
        **problem.machine,
    )


def exact(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    return oracles.exact(
        problem.case,
        clamp=problem.clamp,
        fused_log_softmax=problem.fused_log_softmax,
        fastemit_lambda=problem.fastemit_lambda,
        upstream=problem.upstream,
    )


def assert_gradient(problem: Problem, result: emulated.Result, expected: torch.Tensor) -> None:
    scale = 2.0 * (1.0 + problem.fastemit_lambda)
    oracles.assert_gradient(result.gradient, expected, problem.case.logits.dtype, scale)


@bounded
@given(problem=problems())
def test_operator_and_float64_lattice_agree(operator: ctypes.CDLL, problem: Problem) -> None:
    costs, gradient = exact(problem)
    result = solve(operator, problem)
    emulated.assert_costs(result.costs, costs)
    assert_gradient(problem, result, gradient)
    assert (result.status == emulated.STATUS_OK).all()
    costs_alone = emulated.call(
        operator, problem.case, fused_log_softmax=problem.fused_log_softmax, entry="forward"
    ).costs
    oracles.assert_same_bits(costs_alone, result.costs)


SPECIAL_VALUES = st.sampled_from([math.nan, math.inf, -math.inf, -math.inf, -math.inf, 3e4])


@bounded
@given(problem=problems(), data=st.data())
def test_special_values_anywhere(
    operator: ctypes.CDLL, problem: Problem, data: st.DataObject
) -> None:
    """NaN or +inf: that sample is NaN. -inf: a masked symbol, or no path at all."""
    upstream = problem.upstream
    logits = problem.case.logits.clone()
    for _ in range(data.draw(st.integers(1, 6))):
        row = data.draw(st.integers(0, logits.shape[0] - 1))
        logits[row, data.draw(st.integers(0, logits.shape[1] - 1))] = data.draw(SPECIAL_VALUES)
    problem = problem._replace(
        case=problem.case.with_logits(logits),
        fused_log_softmax=True,
        upstream=None if upstream is None else upstream.clamp_min(0.25),
    )
    costs, gradient = exact(problem)
    for b, (rows, *_) in enumerate(problem.case.samples()):
        if not (logits[rows] < math.inf).all():
            costs[b] = math.nan
            gradient[rows] = math.nan
    result = solve(operator, problem)
    emulated.assert_costs(result.costs, costs)
    assert_gradient(problem, result, gradient)
    assert (result.status == emulated.STATUS_OK).all()


@bounded
@given(problem=problems(), data=st.data())
def test_wrong_numbers_anywhere(
    operator: ctypes.CDLL, problem: Problem, data: st.DataObject
) -> None:
    """The emulator fails on any access outside a tensor, whatever lengths and labels say."""
    numbers = st.integers(-3, 40) | st.sampled_from([2**31 - 1, -(2**31), 2**16])
    case = problem.case
    fields = [case.targets.clone(), case.logit_lengths.clone(), case.target_lengths.clone()]
    for _ in range(data.draw(st.integers(1, 3))):
        field = fields[data.draw(st.integers(0, 2))].flatten()
        if len(field) > 0:
            field[data.draw(st.integers(0, len(field) - 1))] = data.draw(numbers)
    targets, logit_lengths, target_lengths = fields
    wrong = oracles.Case(case.logits, targets, logit_lengths, target_lengths, case.blank)
    result = solve(operator, problem._replace(case=wrong))
    is_label = result.status == emulated.LABEL
    if ((result.status != emulated.STATUS_OK) & ~is_label).any():  # lengths: the batch is refused
        assert result.costs.isnan().all() and (result.gradient == 0).all()
        return
    # A wrong label costs its own sample alone.
    targets[is_label] = (case.blank + 1) % case.logits.shape[1]
    costs, gradient = exact(problem._replace(case=wrong))
    samples = packed_cells(len(gradient), logit_lengths, target_lengths, torch.device("cpu"))[0]
    costs[is_label], gradient[is_label[samples]] = math.nan, math.nan
    emulated.assert_costs(result.costs, costs)
    assert_gradient(problem, result, gradient)
