"""A value of one kind with the gradient of another, as some frameworks' losses have them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _ValueWithGradientOf(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, source: Tensor, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


def value_with_gradient_of(source: Tensor, value: Tensor) -> Tensor:
    """``value``, through which gradients reach ``source``, of the same shape, unchanged."""
    result: Tensor = _ValueWithGradientOf.apply(source, value.detach())
    return result
