"""Random shapes, dtypes, layouts and options against the reference and the float64 lattice.

Derandomised: every run draws the same examples, so a failure is one that everybody sees.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import oracles

bounded = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


class Problem(NamedTuple):
    case: oracles.Case
    upstream: torch.Tensor
    options: dict[str, Any]
    padding: tuple[int, int] | None  # extra frames and columns of the padded layout; None: packed


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    lengths = draw(
        st.lists(st.tuples(st.integers(1, 14), st.integers(0, 9)), min_size=1, max_size=5)
    )
    vocab = draw(st.integers(2, 70))
    case = oracles.make_case(
        lengths,
        vocab,
        blank=draw(st.integers(-vocab, vocab - 1)),
        dtype=draw(st.sampled_from(oracles.ALL_DTYPES)),
        scale=draw(st.sampled_from([0.0, 0.1, 1.0, 5.0, 40.0])),
        seed=draw(st.integers(0, 2**32)),
    )
    index_dtypes = st.sampled_from([torch.int32, torch.int64])
    case = oracles.Case(
        case.logits,
        case.targets.to(draw(index_dtypes)),
        case.logit_lengths.to(draw(index_dtypes)),
        case.target_lengths.to(draw(index_dtypes)),
        case.blank,
    )
    upstream = draw(
        st.lists(
            st.sampled_from([1.0, -1.0, 0.0, 0.25, 2.0]),
            min_size=len(lengths),
            max_size=len(lengths),
        )
    )
    options = {
        "clamp": draw(st.sampled_from([-1.0, 0.0, 0.01, 0.5])),
        "fused_log_softmax": draw(st.booleans()),
        "reuse_logits": draw(st.booleans()),
    }
    if not options["fused_log_softmax"]:
        case = case.with_logits(case.logits.double().log_softmax(-1).to(case.logits.dtype))
    padding = draw(st.none() | st.tuples(st.integers(0, 3), st.integers(0, 3)))
    return Problem(case, torch.tensor(upstream), options, padding)


def solve(problem: Problem, backend: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Costs and packed gradient; padding must come back as zeros."""
    case, upstream, options, padding = problem
    if padding is None:
        return oracles.run(case, backend, upstream=upstream, **options)
    padded = case.padded_logits(math.nan, *padding)
    costs, gradient = oracles.run(case, backend, padded=padded, upstream=upstream, **options)
    assert (case.outside_lattice(gradient) == 0).all()
    return costs, case.take_packed(gradient)


@bounded
@given(problems())
def test_cpu_reference_and_float64_lattice_agree(problem: Problem) -> None:
    case = problem.case
    dtype = case.logits.dtype
    exact_costs, exact_gradient = oracles.exact(
        case,
        clamp=problem.options["clamp"],
        fused_log_softmax=problem.options["fused_log_softmax"],
        upstream=problem.upstream,
    )
    for backend in oracles.BACKENDS:
        costs, gradient = solve(problem, backend)
        oracles.assert_costs(costs, exact_costs, dtype)
        oracles.assert_gradient(gradient, exact_gradient, dtype, upstream_scale=2.0)


SPECIAL_VALUES = st.sampled_from([math.nan, math.inf, -math.inf, -math.inf, -math.inf, 3e4])


@bounded
@given(problems(), st.data())
def test_special_values_anywhere(problem: Problem, data: st.DataObject) -> None:
    """NaN or +inf: that sample is NaN. -inf: a masked symbol, or no path at all."""
    problem = problem._replace(
        options={**problem.options, "fused_log_softmax": True},
        upstream=problem.upstream.clamp_min(0.25),
    )
    logits = problem.case.logits.clone()
    for _ in range(data.draw(st.integers(1, 6))):
        row = data.draw(st.integers(0, logits.shape[0] - 1))
        symbol = data.draw(st.integers(0, logits.shape[1] - 1))
        logits[row, symbol] = data.draw(SPECIAL_VALUES)
    problem = problem._replace(case=problem.case.with_logits(logits))
    case, dtype = problem.case, logits.dtype
    exact_costs, exact_gradient = oracles.exact(
        case, clamp=problem.options["clamp"], upstream=problem.upstream
    )
    for b, (rows, *_) in enumerate(case.samples()):
        if not (logits[rows] < math.inf).all():
            exact_costs[b] = math.nan
            exact_gradient[rows] = math.nan
    for backend in oracles.BACKENDS:
        costs, gradient = solve(problem, backend)
        oracles.assert_costs(costs, exact_costs, dtype)
        oracles.assert_gradient(gradient, exact_gradient, dtype, upstream_scale=2.0)


@settings(bounded, max_examples=40)
@given(problems(), st.sampled_from([1, 2, 3, 8]))
def test_packed_and_padded_and_any_thread_count_give_the_same_bits(
    problem: Problem, threads: int
) -> None:
    packed = solve(problem._replace(padding=None), "cpu")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        padded = solve(problem._replace(padding=(1, 2)), "cpu")
    finally:
        torch.set_num_threads(before)
    oracles.assert_same_bits(padded[0], packed[0])
    oracles.assert_same_bits(padded[1], packed[1])
