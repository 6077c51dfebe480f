"""How near to an exact answer a loss must come: what DESIGN section 7 promises."""

from __future__ import annotations

import torch
from torch import Tensor

GRADIENT_TOLERANCE = 1e-5


def ulp(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Distance between neighbours of `dtype` at |values|, float64."""
    info = torch.finfo(dtype)
    size = values.double().abs().clamp_min(info.smallest_normal)
    exponent = torch.frexp(size).exponent - 1
    return torch.ldexp(torch.full_like(size, info.eps), exponent)


def cost_tolerance(costs: Tensor, dtype: torch.dtype) -> Tensor:
    """1 ulp of float32 (at least that of 1.0: a cost near 0 is a difference of larger numbers)."""
    if dtype == torch.float64:
        return 1e-11 * costs.abs().clamp_min(1.0)
    return ulp(costs.abs().clamp_min(1.0), torch.float32)


def gradient_tolerance(gradient: Tensor, dtype: torch.dtype, upstream_scale: float = 1.0) -> Tensor:
    """1e-5 from exact arithmetic, and for half types the rounding of the result as well.

    upstream_scale: largest upstream gradient, which multiplies the error of the arithmetic.
    """
    if dtype == torch.float64:
        return torch.full_like(gradient, 1e-10 * upstream_scale)
    arithmetic = GRADIENT_TOLERANCE * upstream_scale
    if dtype == torch.float32:
        return torch.full_like(gradient, arithmetic)
    return arithmetic + 0.5 * ulp(gradient.abs() + arithmetic, dtype)


def assert_within(actual: Tensor, expected: Tensor, tolerance: Tensor, what: str) -> None:
    """Fails unless |actual - expected| <= tolerance everywhere; NaN and inf must agree exactly."""
    assert actual.shape == expected.shape, f"{what}: {actual.shape} for {expected.shape}"
    actual = actual.double()
    error = (actual - expected).abs()
    same_special = (actual == expected) | (actual.isnan() & expected.isnan())
    bad = ~(same_special | (error <= tolerance))
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
