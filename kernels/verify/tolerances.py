"""How near to an exact answer a loss must come: what DESIGN section 7 promises."""

from __future__ import annotations

import torch
from torch import Tensor

from asr_ascend.doctor.tolerances import (
    cost_tolerance,
    gradient_tolerance,
    outside,
    ulp,
)

__all__ = [
    "assert_costs",
    "assert_gradient",
    "assert_same_bits",
    "assert_within",
    "cost_tolerance",
    "gradient_tolerance",
    "ulp",
]


def assert_within(actual: Tensor, expected: Tensor, tolerance: Tensor, what: str) -> None:
    """Fails unless |actual - expected| <= tolerance everywhere; NaN and inf must agree exactly."""
    assert actual.shape == expected.shape, f"{what}: {actual.shape} for {expected.shape}"
    actual = actual.double()
    bad = outside(actual, expected, tolerance)
    if bad.any():
        where = bad.nonzero()[0]
        index = tuple(where.tolist())
        raise AssertionError(
            f"{what}: {int(bad.sum())} of {bad.numel()} wrong, the first at {index}: "
            f"{actual[index].item()!r} for {expected[index].item()!r}, "
            f"tolerance {tolerance[index].item():.3g}"
        )


def assert_costs(actual: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    wanted = torch.float64 if dtype == torch.float64 else torch.float32
    assert actual.dtype == wanted, f"costs of {dtype} logits must be {wanted}, not {actual.dtype}"
    assert_within(actual, expected, cost_tolerance(expected, dtype), "cost")


def assert_gradient(
    actual: Tensor, expected: Tensor, dtype: torch.dtype, upstream_scale: float = 1.0
) -> None:
    assert actual.dtype == dtype
    tolerance = gradient_tolerance(expected, dtype, upstream_scale)
    assert_within(actual, expected, tolerance, "gradient")


def assert_same_bits(a: Tensor, b: Tensor) -> None:
    """Equal bit for bit: NaN equals NaN, 0.0 does not equal -0.0."""
    assert a.dtype == b.dtype and a.shape == b.shape
    as_bytes = [x.detach().contiguous().flatten().view(torch.uint8) for x in (a, b)]
    assert torch.equal(*as_bytes), f"{int((a != b).sum())} of {a.numel()} elements differ"
