"""The emulated operator gives what the loss's oracles give."""

from __future__ import annotations

import ctypes
import math

import pytest
import torch

from kernels.verify.loss_cases import CASE_LIST
from tests.support import emulated_operator as emulated
from tests.support import oracles

each_dtype = pytest.mark.parametrize("dtype", emulated.DTYPES, ids=["float32", "float16", "bf16"])
each_entry = pytest.mark.parametrize("entry", ["fused", "split"])


def check(
    library: ctypes.CDLL,
    case: oracles.Case,
    *,
    clamp: float = -1.0,
    fused_log_softmax: bool = True,
    upstream: torch.Tensor | None = None,
    **machine: object,
) -> None:
    options = {"clamp": clamp, "fused_log_softmax": fused_log_softmax, "upstream": upstream}
    result = emulated.call(library, case, **options, **machine)
    costs, gradient = oracles.exact(case, **options)
    scale = 1.0 if upstream is None else float(upstream.abs().max())
    emulated.assert_costs(result.costs, costs)
    oracles.assert_gradient(result.gradient, gradient, case.logits.dtype, scale)
    assert result.status.tolist() == [emulated.STATUS_OK] * len(costs)


def as_log_probs(case: oracles.Case) -> oracles.Case:
    return case.with_logits(case.logits.double().log_softmax(-1).to(case.logits.dtype))


@each_dtype
@each_entry
@pytest.mark.parametrize("name", CASE_LIST)
def test_case_list(operator: ctypes.CDLL, name: str, entry: str, dtype: torch.dtype) -> None:
    lengths, vocab, blank, scale = CASE_LIST[name]
    case = oracles.make_case(lengths, vocab, blank=blank, dtype=dtype, scale=scale)
    check(operator, case, entry=entry, cores=6)


@each_dtype
def test_every_vocabulary_size_around_vector_widths(
    operator: ctypes.CDLL, dtype: torch.dtype
) -> None:
    for vocab in [*range(1, 35), *range(60, 70), 127, 128, 129, 191, 192, 193, 200, 256]:
        lengths = [(4, 2), (2, 3)] if vocab > 1 else [(4, 0), (2, 0)]
        case = oracles.make_case(lengths, vocab, blank=vocab // 2, dtype=dtype, seed=vocab)
        check(operator, case, cores=2, seed=vocab)


@each_dtype
@pytest.mark.parametrize("vocab", [2000, 2041, 4096, 9151, 9153, 12225, 24449, 60000])
def test_rows_that_fill_ub_or_more(operator: ctypes.CDLL, vocab: int, dtype: torch.dtype) -> None:
    """Rows of one window and of several, the last of them a single element."""
    for blank in (0, vocab - 1):
        case = oracles.make_case([(2, 2), (3, 0)], vocab, blank=blank, dtype=dtype, scale=3.0)
        check(operator, case, cores=2)


@each_dtype
def test_more_windows_than_are_kept_apart(operator: ctypes.CDLL, dtype: torch.dtype) -> None:
    """Above 64 windows the first ones are joined."""
    case = oracles.make_case([(1, 1)], 800_000, blank=700_000, dtype=dtype)
    logits = case.logits.clone()
    logits[0, :300_000] = -math.inf  # whole windows of nothing but -inf
    check(operator, case.with_logits(logits), cores=1)


@each_dtype
@pytest.mark.parametrize("clamp", [0.02, 0.5])
@pytest.mark.parametrize("fused_log_softmax", [True, False])
@pytest.mark.parametrize("in_place", [True, False])
def test_clamp_then_upstream(
    operator: ctypes.CDLL,
    in_place: bool,
    fused_log_softmax: bool,
    clamp: float,
    dtype: torch.dtype,
) -> None:
    case = oracles.make_case([(7, 3), (4, 2), (12, 5)], 11, blank=3, dtype=dtype)
    if not fused_log_softmax:
        case = as_log_probs(case)
    upstream = torch.tensor([1.0, -2.0, 0.5])
    options = {"clamp": clamp, "fused_log_softmax": fused_log_softmax, "upstream": upstream}
    check(operator, case, entry="split", in_place=in_place, **options)


@each_dtype
@pytest.mark.parametrize("vocab", [11, 20001])
def test_log_probabilities_are_taken_as_they_are(
    operator: ctypes.CDLL, vocab: int, dtype: torch.dtype
) -> None:
    case = as_log_probs(oracles.make_case([(6, 3), (2, 2), (1, 1)], vocab, blank=1, dtype=dtype))
    check(operator, case, fused_log_softmax=False)


@each_dtype
def test_logits_of_ten_thousand(operator: ctypes.CDLL, dtype: torch.dtype) -> None:
    for magnitude in (1e4, 3e4):
        case = oracles.make_case([(5, 3), (2, 4)], 9, dtype=torch.float64)
        check(operator, case.with_logits((case.logits.sign() * magnitude).to(dtype)))


@each_dtype
def test_many_more_samples_than_cores_and_than_the_schedule_holds(
    operator: ctypes.CDLL, dtype: torch.dtype
) -> None:
    lengths = [(1 + i % 4, i % 3) for i in range(300)]
    check(operator, oracles.make_case(lengths, 5, blank=2, dtype=dtype), cores=3)


def test_the_longest_targets_that_fit(operator: ctypes.CDLL) -> None:
    check(operator, oracles.make_case([(3, 1023), (1, 600)], 3, blank=1), cores=3)


@pytest.mark.slow
def test_the_longest_diagonal_that_fits(operator: ctypes.CDLL) -> None:
    check(operator, oracles.make_case([(1030, 1023)], 2, blank=0), cores=4)


@each_dtype
def test_masked_symbols_and_rows(operator: ctypes.CDLL, dtype: torch.dtype) -> None:
    """-inf on symbols that no path needs and on some that paths could take; a row of -inf."""
    case = oracles.make_case([(6, 3), (4, 2)], 8, blank=7, dtype=dtype)
    logits = case.logits.clone()
    unused = next(k for k in range(7) if k not in case.targets.flatten().tolist())
    logits[:, unused] = -math.inf
    logits[4, 7] = -math.inf
    logits[5, case.targets[0, 1]] = -math.inf
    check(operator, case.with_logits(logits))
    logits[30] = -math.inf  # no softmax: that sample is NaN
    check(operator, case.with_logits(logits))
    log_probs = as_log_probs(case).logits.clone()
    log_probs[5] = -math.inf  # paths go round it
    check(operator, case.with_logits(log_probs), fused_log_softmax=False)


@each_dtype
@pytest.mark.parametrize("clamp", [-1.0, 0.1])
def test_no_possible_path_costs_infinity_and_has_no_gradient(
    operator: ctypes.CDLL, clamp: float, dtype: torch.dtype
) -> None:
    case = oracles.make_case([(4, 2), (3, 3), (5, 1)], 6, blank=0, dtype=dtype)
    logits = case.logits.clone()
    logits[12:24].reshape(3, 4, -1)[2, 3, 0] = -math.inf
    check(operator, case.with_logits(logits), clamp=clamp)
    upstream = torch.tensor([1.0, -1.0, 2.0])
    check(operator, case.with_logits(logits), clamp=clamp, entry="split", upstream=upstream)


@pytest.mark.parametrize("nan_rule", range(3), ids=["drop", "second", "propagate"])
@pytest.mark.parametrize("poison", [math.nan, math.inf], ids=["nan", "inf"])
@each_dtype
def test_poison_in_every_lane_stays_in_its_sample(
    operator: ctypes.CDLL, dtype: torch.dtype, poison: float, nan_rule: int
) -> None:
    """Whatever Max and Min make of a NaN; it is no failure of the cross-check."""
    for vocab in (2, 9, 17, 67, 130):
        case = oracles.make_case([(4, 2), (3, 3), (5, 1)], vocab, blank=0, dtype=dtype)
        options = {"clamp": 0.2, "nan_rule": nan_rule}
        clean = emulated.call(operator, case, **options)
        for lane in range(0, vocab, 1 if vocab < 20 else 13):
            logits = case.logits.clone()
            logits[12 + lane % 12, lane] = poison
            result = emulated.call(operator, case.with_logits(logits), **options)
            assert result.costs.isnan().tolist() == [False, True, False]
            assert result.gradient[12:24].isnan().all()
            for rows in (slice(0, 12), slice(24, 34)):
                oracles.assert_same_bits(result.gradient[rows], clean.gradient[rows])
            oracles.assert_same_bits(result.costs[[0, 2]], clean.costs[[0, 2]])
            assert result.status.tolist() == [emulated.STATUS_OK] * 3


def test_poison_in_a_row_of_several_windows(operator: ctypes.CDLL) -> None:
    case = oracles.make_case([(2, 1), (1, 0)], 20000, blank=0)
    for lane in (0, 9151, 9152, 15000, 19999):
        for poison in (math.nan, math.inf):
            logits = case.logits.clone()
            logits[1, lane] = poison
            result = emulated.call(operator, case.with_logits(logits))
            assert result.costs.isnan().tolist() == [True, False]
            assert result.gradient[:4].isnan().all() and result.gradient[4].isfinite().all()


def test_poison_among_log_probabilities_counts_where_it_is_read(operator: ctypes.CDLL) -> None:
    case = as_log_probs(oracles.make_case([(3, 2), (2, 1)], 5, blank=4))
    clean = emulated.call(operator, case, fused_log_softmax=False)
    logits = case.logits.clone()
    logits[2, 0] = math.nan  # neither blank nor, in the last column, a label
    result = emulated.call(operator, case.with_logits(logits), fused_log_softmax=False)
    oracles.assert_same_bits(result.gradient, clean.gradient)
    logits[2, 4] = math.nan  # blank
    result = emulated.call(operator, case.with_logits(logits), fused_log_softmax=False)
    assert result.costs.isnan().tolist() == [True, False]
    assert result.gradient[:9].isnan().all() and result.gradient[9:].isfinite().all()


def test_the_largest_finite_floats(operator: ctypes.CDLL) -> None:
    case = oracles.make_case([(2, 1)], 4, blank=0)
    logits = torch.zeros_like(case.logits)
    logits[:, 1:] = torch.finfo(torch.float32).max
    logits[:, 0] = -torch.finfo(torch.float32).max
    result = emulated.call(operator, case.with_logits(logits))
    assert result.costs[0].item() > 1e38
    assert not result.gradient.isnan().any()


def test_an_upstream_gradient_of_nan_reaches_its_sample_alone(operator: ctypes.CDLL) -> None:
    case = oracles.make_case([(3, 2), (2, 1)], 5)
    clean = emulated.call(operator, case, entry="split")
    upstream = torch.tensor([math.nan, 1.0])
    result = emulated.call(operator, case, entry="split", upstream=upstream)
    assert result.gradient[:9].isnan().all()
    oracles.assert_same_bits(result.gradient[9:], clean.gradient[9:])
