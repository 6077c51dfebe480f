"""How near to exact arithmetic a loss must come, for the doctor, kernels/verify and the tests."""

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


def outside(actual: Tensor, expected: Tensor, tolerance: Tensor) -> Tensor:
    """Where |actual - expected| > tolerance; NaN and inf must agree exactly."""
    actual = actual.double()
    same_special = (actual == expected) | (actual.isnan() & expected.isnan())
    return ~(same_special | ((actual - expected).abs() <= tolerance))
