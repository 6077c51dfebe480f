"""NaN, infinities, impossible paths, empty batches: contained, and said in the cost."""

from __future__ import annotations

import math

import pytest
import torch

from asr_ascend.losses import rnnt_loss, rnnt_loss_and_grad
from tests.support import oracles

NAN, INF = math.nan, math.inf
LENGTHS = [(4, 2), (3, 3), (5, 1)]


def rows_of(case: oracles.Case) -> list[slice]:
    return [rows for rows, *_ in case.samples()]


def assert_only_sample_is_nan(
    case: oracles.Case,
    sample: int,
    backend: str,
    clean: tuple[torch.Tensor, torch.Tensor],
    **options: object,
) -> None:
    """Sample's cost and whole gradient are NaN; every other sample keeps its bits."""
    costs, gradient = oracles.run(case, backend, **options)
    for b, rows in enumerate(rows_of(case)):
        if b == sample:
            assert math.isnan(costs[b].item())
            assert gradient[rows].isnan().all()
        else:
            oracles.assert_same_bits(costs[b], clean[0][b])
            oracles.assert_same_bits(gradient[rows], clean[1][rows])


@pytest.mark.parametrize("poison", [NAN, INF], ids=["nan", "inf"])
@oracles.each_dtype
@pytest.mark.parametrize("vocab", [2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65])
def test_poison_in_every_lane_stays_in_its_sample(
    vocab: int, dtype: torch.dtype, poison: float
) -> None:
    case = oracles.make_case(LENGTHS, vocab, blank=0, dtype=dtype)
    clean = oracles.run(case, "cpu")
    rows = rows_of(case)[1]
    for lane in range(vocab):
        logits = case.logits.clone()
        logits[rows.start + lane % (rows.stop - rows.start), lane] = poison
        assert_only_sample_is_nan(case.with_logits(logits), 1, "cpu", clean)


@pytest.mark.parametrize("poison", [NAN, INF], ids=["nan", "inf"])
@pytest.mark.parametrize("vocab", [2, 5, 17])
def test_poison_in_every_lane_of_the_reference(vocab: int, poison: float) -> None:
    case = oracles.make_case(LENGTHS, vocab, blank=0)
    clean = oracles.run(case, "reference")
    rows = rows_of(case)[1]
    for lane in range(vocab):
        logits = case.logits.clone()
        logits[rows.start + lane % (rows.stop - rows.start), lane] = poison
        assert_only_sample_is_nan(case.with_logits(logits), 1, "reference", clean)


@oracles.each_backend
@pytest.mark.parametrize("poison", [NAN, INF], ids=["nan", "inf"])
@pytest.mark.parametrize("options", [{}, {"clamp": 0.1}, {"reuse_logits": True}])
def test_poison_in_every_row(options: dict, poison: float, backend: str) -> None:
    """The first cell, the last, and those that few paths cross."""
    case = oracles.make_case(LENGTHS, 6)
    clean = oracles.run(case, backend, **options)
    for sample, rows in enumerate(rows_of(case)):
        # The reference is slow and knows no lanes or blocks of rows: first and last row do.
        step = 1 if backend == "cpu" else rows.stop - rows.start - 1
        for row in range(rows.start, rows.stop, step):
            logits = case.logits.clone()
            logits[row, row % 6] = poison
            assert_only_sample_is_nan(case.with_logits(logits), sample, backend, clean, **options)


@oracles.each_backend
@pytest.mark.parametrize("upstream", [1.0, -1.0, 0.5])
def test_poison_in_the_padded_layout(upstream: float, backend: str) -> None:
    case = oracles.make_case(LENGTHS, 6)
    weights = torch.full((3,), upstream)
    clean_costs, clean_gradient = oracles.run(case, backend, upstream=weights)
    logits = case.logits.clone()
    logits[rows_of(case)[1].start + 5, 2] = NAN
    poisoned = case.with_logits(logits)
    costs, padded_gradient = oracles.run(
        poisoned, backend, padded=poisoned.padded_logits(), upstream=weights
    )
    assert costs.isnan().tolist() == [False, True, False]
    assert (case.outside_lattice(padded_gradient) == 0).all()
    gradient = case.take_packed(padded_gradient)
    for b, rows in enumerate(rows_of(case)):
        if b == 1:
            assert gradient[rows].isnan().all()
        else:
            oracles.assert_same_bits(costs[b], clean_costs[b])
            torch.testing.assert_close(gradient[rows], clean_gradient[rows], rtol=0, atol=1e-6)


@oracles.each_backend
def test_poison_reaches_the_mean_and_the_sum(backend: str) -> None:
    """A loss scaler has to see it."""
    case = oracles.make_case(LENGTHS, 6)
    logits = case.logits.clone()
    logits[0, 0] = NAN
    for reduction in ("mean", "sum"):
        value, gradient = oracles.run(case.with_logits(logits), backend, reduction=reduction)
        assert math.isnan(value.item())
        first = rows_of(case)[0]
        assert gradient[first].isnan().all() and gradient[first.stop :].isfinite().all()


@oracles.each_backend
@pytest.mark.filterwarnings("ignore:`fused_log_softmax=False` takes log-probabilities")
@pytest.mark.parametrize("poison", [NAN, INF], ids=["nan", "inf"])
def test_poison_among_log_probabilities(poison: float, backend: str) -> None:
    """Only blank and label are read there, so only they poison."""
    case = oracles.make_case([(3, 2), (2, 1)], 5, blank=4)
    case = case.with_logits(case.logits.log_softmax(-1))
    clean = oracles.run(case, backend, fused_log_softmax=False)
    logits = case.logits.clone()
    logits[2, 4] = poison  # blank of cell (0, 2)
    poisoned = case.with_logits(logits)
    assert_only_sample_is_nan(poisoned, 0, backend, clean, fused_log_softmax=False)


@oracles.each_backend
@oracles.each_dtype
def test_masked_symbols(dtype: torch.dtype, backend: str) -> None:
    """-inf logits on symbols that no path needs, and on some that paths could take."""
    case = oracles.make_case([(6, 3), (4, 2)], 8, blank=7, dtype=dtype)
    logits = case.logits.clone()
    unused = next(k for k in range(7) if k not in case.targets.flatten().tolist())
    logits[:, unused] = -INF
    logits[4, 7] = -INF  # no blank in cell (1, 0): its paths must emit there
    logits[5, case.targets[0, 1]] = -INF  # no label in cell (1, 1)
    masked = case.with_logits(logits)
    costs, gradient = oracles.run(masked, backend)
    exact_costs, exact_gradient = oracles.exact(masked)
    assert exact_costs.isfinite().all()
    oracles.assert_costs(costs, exact_costs, dtype)
    oracles.assert_gradient(gradient, exact_gradient, dtype)
    assert (gradient[:, unused] == 0).all()


def impossible(case: oracles.Case, how: str) -> torch.Tensor:
    """Logits under which sample 1 (T=3, U=3) of LENGTHS has no path."""
    logits = case.logits.clone()
    rows = rows_of(case)[1]
    block = logits[rows].reshape(3, 4, -1)
    if how == "last_blank":
        block[2, 3, case.blank_index] = -INF
    elif how == "one_label_everywhere":
        block[:, 1, case.targets[1, 1]] = -INF
    elif how == "no_blank_in_a_frame":
        block[1, :, case.blank_index] = -INF
    elif how == "first_cell":
        block[0, 0, case.blank_index] = -INF
        block[0, 0, case.targets[1, 0]] = -INF
    logits[rows] = block.reshape(12, -1)
    return logits


@oracles.each_backend
@oracles.each_dtype
@pytest.mark.parametrize("upstream", [1.0, -1.0])
@pytest.mark.parametrize(
    "how", ["last_blank", "one_label_everywhere", "no_blank_in_a_frame", "first_cell"]
)
def test_no_possible_path_costs_infinity_and_has_no_gradient(
    how: str, upstream: float, dtype: torch.dtype, backend: str
) -> None:
    case = oracles.make_case(LENGTHS, 6, blank=0, dtype=dtype)
    weights = torch.full((3,), upstream)
    clean_costs, clean_gradient = oracles.run(case, backend, upstream=weights)
    closed = case.with_logits(impossible(case, how))
    costs, gradient = oracles.run(closed, backend, upstream=weights)
    assert costs[1].item() == INF
    rows = rows_of(case)[1]
    assert (gradient[rows] == 0).all()
    for b in (0, 2):
        other = rows_of(case)[b]
        oracles.assert_same_bits(costs[b], clean_costs[b])
        oracles.assert_same_bits(gradient[other], clean_gradient[other])


@oracles.each_backend
@oracles.each_dtype
def test_a_row_of_nothing_but_minus_infinity_has_no_softmax(
    dtype: torch.dtype, backend: str
) -> None:
    """As NaN in torch's log_softmax, so NaN here, in that sample."""
    case = oracles.make_case([(4, 2), (3, 0)], 6, blank=0, dtype=dtype)
    assert torch.full((6,), -INF).log_softmax(-1).isnan().all()
    clean = oracles.run(case, backend)
    logits = case.logits.clone()
    logits[4] = -INF
    assert_only_sample_is_nan(case.with_logits(logits), 0, backend, clean)


@oracles.each_backend
@oracles.each_dtype
def test_a_row_of_minus_infinity_among_log_probabilities(dtype: torch.dtype, backend: str) -> None:
    """It allows no symbol: paths go round it, and where none can the cost is infinite."""
    case = oracles.make_case([(4, 2), (3, 0)], 6, blank=0, dtype=dtype)
    logits = case.logits.log_softmax(-1)
    logits[4] = -INF  # cell (1, 1) of the first sample
    logits[rows_of(case)[1].start + 1] = -INF  # frame 1 of the second, which has but one column
    masked = case.with_logits(logits)
    costs, gradient = oracles.run(masked, backend, fused_log_softmax=False)
    exact_costs, exact_gradient = oracles.exact(masked, fused_log_softmax=False)
    assert exact_costs[0].isfinite() and exact_costs[1].item() == INF
    oracles.assert_costs(costs, exact_costs, dtype)
    oracles.assert_gradient(gradient, exact_gradient, dtype)


@oracles.each_backend
def test_every_sample_impossible(backend: str) -> None:
    case = oracles.make_case([(2, 1), (3, 2)], 4, blank=0)
    logits = case.logits.clone()
    logits[:, 0] = -INF
    costs, gradient = oracles.run(case.with_logits(logits), backend)
    assert costs.tolist() == [INF, INF]
    assert torch.count_nonzero(gradient) == 0
    value, gradient = oracles.run(case.with_logits(logits), backend, reduction="mean")
    assert value.item() == INF
    assert torch.count_nonzero(gradient) == 0


@oracles.each_backend
def test_a_nan_beside_an_impossible_path_in_one_batch(backend: str) -> None:
    case = oracles.make_case(LENGTHS, 6, blank=0)
    clean_costs, _ = oracles.run(case, backend)
    logits = impossible(case, "last_blank")
    logits[0, 3] = NAN
    costs, gradient = oracles.run(case.with_logits(logits), backend)
    first, second, third = rows_of(case)
    assert math.isnan(costs[0].item()) and gradient[first].isnan().all()
    assert costs[1].item() == INF and (gradient[second] == 0).all()
    oracles.assert_same_bits(costs[2], clean_costs[2])
    assert gradient[third].isfinite().all()


@oracles.each_backend
@pytest.mark.parametrize("magnitude", [1e4, 3e4])
@oracles.each_dtype
def test_logits_of_ten_thousand(dtype: torch.dtype, magnitude: float, backend: str) -> None:
    case = oracles.make_case([(5, 3), (2, 4)], 9, dtype=torch.float64)
    signs = case.logits.sign() * magnitude
    case = case.with_logits(signs.to(dtype))
    costs, gradient = oracles.run(case, backend)
    exact_costs, exact_gradient = oracles.exact(case)
    oracles.assert_costs(costs, exact_costs, dtype)
    oracles.assert_gradient(gradient, exact_gradient, dtype)


@oracles.each_backend
@pytest.mark.parametrize("magnitude", [1e15, 1e30])
def test_a_gradient_stays_bounded_where_scores_lose_their_fractions(
    magnitude: float, backend: str
) -> None:
    """Scores of so many digits round by more than 1, and a posterior must not exceed 1 for it."""
    case = oracles.make_case([(150, 40)], 5, dtype=torch.float64)
    digits = torch.linspace(1.0, 2.0, case.logits.numel(), dtype=torch.float64)
    case = case.with_logits(case.logits * digits.view_as(case.logits) * magnitude)
    costs, gradient = oracles.run(case, backend)
    assert magnitude < costs.item() < 1e3 * magnitude
    assert 0.0 < gradient.abs().max() <= 1.0


@oracles.each_backend
@oracles.each_dtype
@pytest.mark.parametrize("margin", [17.0, 20.0, 30.0])
def test_no_cost_is_negative(margin: float, dtype: torch.dtype, backend: str) -> None:
    """Nearly all goes into one path, and what is left into others that end as surely."""
    case = oracles.make_case([(40, 1)], 5, blank=4, dtype=dtype, scale=0.0)
    logits = case.logits.clone().unflatten(0, (40, 2))
    logits[:, 0, case.targets[0, 0]] = margin
    logits[:, 1, 4] = margin
    costs, _ = oracles.run(case.with_logits(logits.flatten(0, 1)), backend)
    assert 0.0 <= costs.item() < 1e-5


@oracles.each_backend
def test_the_largest_finite_floats(backend: str) -> None:
    """Differences overflow float32: the cost is infinite or huge, never NaN, never negative."""
    case = oracles.make_case([(2, 1)], 4, blank=0)
    logits = torch.zeros_like(case.logits)
    logits[:, 1:] = torch.finfo(torch.float32).max
    logits[:, 0] = -torch.finfo(torch.float32).max
    costs, gradient = oracles.run(case.with_logits(logits), backend)
    assert costs[0].item() > 1e38
    assert not gradient.isnan().any()


@oracles.each_backend
@oracles.each_dtype
@pytest.mark.parametrize("padded", [False, True])
def test_an_empty_batch(padded: bool, dtype: torch.dtype, backend: str) -> None:
    shape = (0, 4, 3, 5) if padded else (0, 5)
    logits = torch.empty(shape, dtype=dtype)
    integers = (
        torch.empty(0, 2, dtype=torch.int64),
        torch.empty(0, dtype=torch.int64),
        torch.empty(0, dtype=torch.int64),
    )
    wanted = torch.float64 if dtype == torch.float64 else torch.float32
    for reduction in ("none", "sum", "mean"):
        leaf = logits.clone().requires_grad_()
        value = rnnt_loss(leaf, *integers, reduction=reduction, backend=backend)
        assert value.dtype == wanted
        if reduction == "none":
            assert value.shape == (0,)
        elif reduction == "sum":
            assert value.item() == 0.0
        else:
            assert math.isnan(value.item())
        value.sum().backward()
        assert leaf.grad.shape == shape
    costs, gradient = rnnt_loss_and_grad(logits, *integers, backend=backend)
    assert costs.shape == (0,) and gradient.shape == shape


@oracles.each_backend
def test_a_costs_gradient_of_nan_or_infinity_is_passed_on(backend: str) -> None:
    """What the user multiplies by is the user's: a NaN upstream gives NaN, in that sample only."""
    case = oracles.make_case([(3, 2), (2, 1)], 5)
    _, clean = oracles.run(case, backend)
    _, gradient = oracles.run(case, backend, upstream=torch.tensor([NAN, 1.0]))
    first, second = rows_of(case)
    assert gradient[first].isnan().any()
    oracles.assert_same_bits(gradient[second], clean[second])
