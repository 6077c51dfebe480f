"""Losses to compare: ours, and what else is installed, each called as its documentation says.

All are asked for the same: the sum of the batch's costs, and the gradient by the logits, through
autograd. Conversions of indices happen before the clock starts.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from asr_ascend.losses import rnnt_loss
from benchmarks import antidiagonal
from benchmarks.cases import BLANK

Call = Callable[[Tensor], tuple[Tensor, Tensor]]
Indices = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Implementation:
    """One way to compute the loss.

    Args:
        name: as ``--implementations`` takes it.
        title: as tables show it.
        prepare: makes, from targets, logit_lengths and target_lengths, a function of the logits
            that returns the summed cost and the gradient. It may overwrite the logits.
        layout: "packed" or "padded" logits.
        dtype: of the logits.
        extra: memory it needs beside the logits, as a multiple of them, to tell what fits.
        value_rtol, gradient_atol: errors that are allowed, against float64.
    """

    name: str
    title: str
    prepare: Callable[[Indices], Call]
    layout: str = "packed"
    dtype: torch.dtype = torch.float32
    extra: float = 0.1
    value_rtol: float = 1e-6
    gradient_atol: float = 1e-5


# The lattices of the others are float32: torchaudio's gradient is 3.9e-3 off at S4 (measured).
THEIRS = {"value_rtol": 1e-4, "gradient_atol": 1e-2}


class _FromJoiner(torch.autograd.Function):
    """Logits that autograd takes for the output of something, as a joiner's are: not a leaf."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, logits: Tensor) -> Tensor:
        return logits.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None]:
        return None, None


def _gradient(loss: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    (gradient,) = torch.autograd.grad(loss, logits)
    return loss.detach(), gradient.detach()  # some hand out gradients that require grad


def ours(reuse_logits: bool) -> Callable[[Indices], Call]:
    def prepare(indices: Indices) -> Call:
        weight = torch.ones((), requires_grad=True)

        def call(logits: Tensor) -> tuple[Tensor, Tensor]:
            logits = _FromJoiner.apply(weight, logits)
            loss = rnnt_loss(
                logits, *indices, BLANK, reduction="sum", reuse_logits=reuse_logits, backend="cpu"
            )
            return _gradient(loss, logits)

        return call

    return prepare


def plain_torch(indices: Indices) -> Call:
    def call(logits: Tensor) -> tuple[Tensor, Tensor]:
        logits = logits.detach().requires_grad_()
        return _gradient(antidiagonal.rnnt_loss(logits, *indices, BLANK).sum(), logits)

    return call


def torchaudio(indices: Indices) -> Call:
    function = importlib.import_module("torchaudio.functional").rnnt_loss
    targets, logit_lengths, target_lengths = (index.int() for index in indices)

    def call(logits: Tensor) -> tuple[Tensor, Tensor]:
        logits = logits.detach().requires_grad_()
        loss = function(
            logits, targets, logit_lengths, target_lengths, blank=BLANK, reduction="sum"
        )
        return _gradient(loss, logits)

    return call


def optimized_transducer(indices: Indices) -> Call:
    function = importlib.import_module("optimized_transducer").transducer_loss
    targets, logit_lengths, target_lengths = (index.int() for index in indices)

    def call(logits: Tensor) -> tuple[Tensor, Tensor]:
        logits = logits.detach().requires_grad_()
        loss = function(
            logits=logits,
            targets=targets,
            logit_lengths=logit_lengths,
            target_lengths=target_lengths,
            blank=BLANK,
            from_log_softmax=False,
            one_sym_per_frame=False,
            reduction="sum",
        )
        return _gradient(loss, logits)

    return call


def warprnnt_pytorch(indices: Indices) -> Call:
    function = importlib.import_module("warprnnt_pytorch").rnnt_loss
    targets, logit_lengths, target_lengths = (index.int() for index in indices)

    def call(logits: Tensor) -> tuple[Tensor, Tensor]:
        logits = logits.detach().requires_grad_()
        loss = function(
            logits, targets, logit_lengths, target_lengths, blank=BLANK, reduction="sum"
        )
        return _gradient(loss.sum(), logits)

    return call


def fast_rnnt(indices: Indices) -> Call:
    function = importlib.import_module("fast_rnnt").rnnt_loss
    targets, logit_lengths, target_lengths = indices
    zeros = torch.zeros_like(logit_lengths)
    # First label and frame, last label and frame.
    boundary = torch.stack((zeros, zeros, target_lengths, logit_lengths), dim=1)

    def call(logits: Tensor) -> tuple[Tensor, Tensor]:
        logits = logits.detach().requires_grad_()
        loss = function(
            logits=logits,
            symbols=targets,
            termination_symbol=BLANK,
            boundary=boundary,
            reduction="sum",
        )
        return _gradient(loss, logits)

    return call


OURS = "in-place"
IMPLEMENTATIONS = {
    implementation.name: implementation
    for implementation in (
        Implementation(OURS, "ours, in place", ours(True)),
        Implementation("no-reuse", "ours, logits kept", ours(False), extra=1.1),
        Implementation("float16", "ours, in place, float16", ours(True), dtype=torch.float16),
        Implementation("bfloat16", "ours, in place, bfloat16", ours(True), dtype=torch.bfloat16),
        Implementation("torch", "plain torch", plain_torch, "padded", extra=3.2, **THEIRS),
        Implementation("torchaudio", "torchaudio", torchaudio, "padded", extra=2.1, **THEIRS),
        Implementation(
            "optimized_transducer",
            "optimized_transducer",
            optimized_transducer,
            extra=1.1,
            **THEIRS,
        ),
        Implementation(
            "warprnnt_pytorch", "warprnnt_pytorch", warprnnt_pytorch, "padded", extra=3.2, **THEIRS
        ),
        Implementation("fast_rnnt", "fast_rnnt", fast_rnnt, "padded", extra=4.2, **THEIRS),
    )
}
MODULES = ("torchaudio", "optimized_transducer", "warprnnt_pytorch", "fast_rnnt")


def absent() -> dict[str, str]:
    """Implementations that can't be imported here, with the reason."""
    reasons = {}
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            found = error.name != name
            reasons[name] = f"can't be imported: {error}" if found else "not installed"
        except Exception as error:  # such as an extension built for another torch
            reasons[name] = f"can't be imported: {str(error).splitlines()[0]}"
    return reasons
