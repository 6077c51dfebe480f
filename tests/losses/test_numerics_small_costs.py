"""Costs near zero, to their own last bits: what a model costs that is nearly certain."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import pytest
import torch

from tests.support import oracles

FRAMES, VOCAB, BLANK, LABEL = 40, 100, 0, 3
# Of the cost. float32 terms are each right to 2 or 3 ulp; the reference sums in float64 beside a 1,
# so what it has of a cost is what float64 has of a logit of 30, frame by frame.
RELATIVE = {torch.float64: 1e-14, torch.float32: 3e-7, torch.float16: 3e-7, torch.bfloat16: 3e-7}
REFERENCE_ABSOLUTE = FRAMES * 2.0**-48


def nearly_certain(margin: float, noise: float, dtype: torch.dtype) -> oracles.Case:
    """One label, emitted in the middle frame; every row's right symbol stands `margin` above."""
    generator = torch.Generator().manual_seed(int(margin))
    logits = noise * torch.randn(FRAMES, 2, VOCAB, generator=generator, dtype=torch.float64)
    logits[:, :, BLANK] += margin
    logits[FRAMES // 2, 0, BLANK] -= margin
    logits[FRAMES // 2, 0, LABEL] += margin
    return oracles.Case(
        logits.reshape(-1, VOCAB).to(dtype),
        torch.tensor([[LABEL]]),
        torch.tensor([FRAMES]),
        torch.tensor([1]),
        BLANK,
    )


def exact_cost(case: oracles.Case) -> float:
    """Every path's probability, in decimal arithmetic; log1p keeps the last bits of a row's sum."""
    blank, label = [], []
    for row in case.logits.double().tolist():
        best = max(range(VOCAB), key=row.__getitem__)
        others = math.fsum(math.exp(x - row[best]) for k, x in enumerate(row) if k != best)
        log_sum = Decimal(math.log1p(others))
        blank.append(Decimal(row[BLANK]) - Decimal(row[best]) - log_sum)
        label.append(Decimal(row[LABEL]) - Decimal(row[best]) - log_sum)
    with localcontext() as context:
        context.prec = 60
        paths = (
            sum(blank[: 2 * t : 2], label[2 * t]) + sum(blank[2 * t + 1 :: 2])
            for t in range(FRAMES)
        )
        return float(-sum(path.exp() for path in paths).ln())


def test_the_oracle_itself() -> None:
    """A row of equal others costs ln(1 + 99 e^-30), which is 99 e^-30 to ten digits."""
    case = nearly_certain(30.0, 0.0, torch.float64)
    cost = exact_cost(case)
    row = (VOCAB - 1) * math.exp(-30.0)
    # Forty blanks and a label; on each of twenty other paths the label comes early, for e^-30.
    assert cost == pytest.approx((FRAMES + 1) * row - FRAMES / 2 * math.exp(-30.0), rel=1e-9)


@oracles.each_backend
@oracles.each_dtype
@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("margin", [5.0, 10.0, 15.0, 20.0, 30.0])
def test_a_nearly_certain_utterance(
    margin: float, noise: float, dtype: torch.dtype, backend: str
) -> None:
    """Costs from 20 down to 4e-10; at a margin of 20 float32 beside a 1 is wrong by 42%."""
    case = nearly_certain(margin, noise, dtype)
    costs, gradient = oracles.run(case, backend)
    exact = exact_cost(case)
    allowed = RELATIVE[dtype] * exact + (REFERENCE_ABSOLUTE if backend == "reference" else 0.0)
    assert abs(costs.item() - exact) <= allowed
    assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_log_probabilities_far_below_float64s_last_bit_of_one(dtype: torch.dtype) -> None:
    """A margin of 60: each row leaves 1e-24, which 1 + 1e-24 doesn't show."""
    case = nearly_certain(60.0, 0.3, dtype)
    costs, _ = oracles.run(case, "cpu")
    exact = exact_cost(case)
    assert 1e-23 < exact < 1e-22
    assert abs(costs.item() - exact) <= 3e-7 * exact


@oracles.each_backend
@oracles.each_dtype
def test_impossible_symbols_cost_nothing(dtype: torch.dtype, backend: str) -> None:
    case = nearly_certain(0.0, 0.0, dtype)
    logits = torch.full_like(case.logits, -math.inf)
    logits[:, BLANK] = 7.0
    logits[FRAMES, BLANK] = -math.inf
    logits[FRAMES, LABEL] = 7.0
    costs, _ = oracles.run(case.with_logits(logits), backend)
    assert costs.tolist() == [0.0]
