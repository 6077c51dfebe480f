"""Gradients next to nothing are zero: denormal numbers make the products after the loss slow."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from asr_ascend.losses import joiner_rnnt_loss, rnnt_loss

T, U, V, H = 120, 30, 20, 8
NEGLIGIBLE = math.exp(-76)
LENGTHS = torch.tensor([T]), torch.tensor([U])
TARGETS = (torch.arange(U)[None] % (V - 1)) + 1


def logits(dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return (4 * torch.randn(T * (U + 1), V, generator=generator)).to(dtype)


def gradient(given: Tensor, upstream: float = 1.0, **options: object) -> Tensor:
    given = given.clone().requires_grad_()
    loss = rnnt_loss(given, TARGETS, *LENGTHS, blank=0, reduction="sum", **options)
    (loss * upstream).backward()
    assert given.grad is not None
    return given.grad


@pytest.mark.parametrize("clamp", [-1.0, 0.5])
@pytest.mark.parametrize("upstream", [1.0, -3.0, 1e-3])
def test_float32_has_no_denormal_numbers(upstream: float, clamp: float) -> None:
    given = logits(torch.float32)
    exact = gradient(given.double(), upstream, clamp=clamp)
    ours = gradient(given, upstream, clamp=clamp)
    tiny = exact.abs() < 0.9 * NEGLIGIBLE * abs(upstream)
    assert 0.1 < tiny.double().mean() < 0.9
    # All but the entries of blank and label, which are differences of two terms.
    entries = torch.zeros_like(tiny)
    entries[:, 0] = True
    entries.view(T, U + 1, V)[:, torch.arange(U), TARGETS[0]] = True
    assert (ours[tiny & ~entries] == 0).all()
    assert (ours[exact.abs() > 1.1 * NEGLIGIBLE * abs(upstream)] != 0).all()
    torch.testing.assert_close(ours.double(), exact, rtol=0, atol=1e-6 * abs(upstream))


def test_float64_keeps_them() -> None:
    ours = gradient(logits(torch.float64))
    small = (ours != 0) & (ours.abs() < NEGLIGIBLE)
    assert small.double().mean() > 0.1


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_the_joiners_products_are_those_of_float64(reduction: str) -> None:
    generator = torch.Generator().manual_seed(6)
    sizes = (1, T, H), (1, U + 1, H), (V, H)
    inputs = [3 * torch.randn(size, generator=generator) for size in sizes]

    def gradients(dtype: torch.dtype) -> list[Tensor]:
        given = [tensor.to(dtype, copy=True).requires_grad_() for tensor in inputs]
        loss = joiner_rnnt_loss(
            *given, None, TARGETS, *LENGTHS, blank=0, reduction=reduction, max_bytes=2**14
        )
        return list(torch.autograd.grad(loss.sum(), given))

    for ours, exact in zip(gradients(torch.float32), gradients(torch.float64), strict=True):
        torch.testing.assert_close(ours.double(), exact, rtol=2e-5, atol=2e-5)
