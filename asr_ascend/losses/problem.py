"""All that defines a batch of losses but the logits: made here from the caller's arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from asr_ascend.losses import checks

# Nats a frame. Scores of this size times the frames of an hour are still exact to a few nats.
_LARGEST_DELAY_PENALTY = 1e6


class Problem(NamedTuple):
    """The checked arguments of a loss, in the order in which the operators take them."""

    targets: Tensor
    logit_lengths: Tensor
    target_lengths: Tensor
    blank: int
    clamp: float
    fused_log_softmax: bool
    fastemit_lambda: float
    delay_penalty: float
    blank_in_targets: bool
    emission_windows: Tensor | None
    band: Tensor | None

    def with_indices(self, change: Callable[[Tensor], Tensor]) -> Problem:
        """Returns the problem whose integer tensors went through ``change``."""
        windows, band = self.emission_windows, self.band
        return self._replace(
            targets=change(self.targets),
            logit_lengths=change(self.logit_lengths),
            target_lengths=change(self.target_lengths),
            emission_windows=None if windows is None else change(windows),
            band=None if band is None else change(band),
        )

    def of_samples(self, samples: slice) -> Problem:
        """Returns the problem of some of the samples."""
        return self.with_indices(lambda index: index[samples])

    def split(self) -> tuple[tuple[Tensor | None, ...], tuple[Any, ...]]:
        """Splits the problem into tensors, which autograd must save by itself, and all other
        fields.

        ``joined`` is the inverse.
        """
        return (*self[:3], *self[-2:]), self[3:-2]

    @classmethod
    def joined(cls, tensors: tuple[Tensor | None, ...], options: tuple[Any, ...]) -> Problem:
        """Joins what ``split`` returned."""
        return cls._make((*tensors[:3], *options, *tensors[3:]))


def make_problem(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = -1,
    clamp: float = -1.0,
    fused_log_softmax: bool = True,
    fastemit_lambda: float = 0.0,
    blank_in_targets: str = "error",
    emission_windows: Tensor | None = None,
    band: Tensor | None = None,
    *,
    delay_penalty: float = 0.0,
    targets_may_be_on_cpu: bool = False,
) -> Problem:
    """Checks all that needs no value of a tensor, and makes ``blank`` non-negative.

    Args:
        logits: (N, V) or (B, T, U1, V).
        targets, logit_lengths, target_lengths, blank, clamp, fused_log_softmax, fastemit_lambda,
            blank_in_targets, emission_windows, band, delay_penalty: as for ``rnnt_loss``.
        targets_may_be_on_cpu: whether they may be there wherever ``logits`` are.

    Raises:
        ValueError, TypeError: as :func:`rnnt_loss`.
    """
    checks.check_logits(logits)
    checks.check_targets(targets, logits, targets_may_be_on_cpu)
    checks.check_lengths(logits, logit_lengths, target_lengths, targets.shape[0])
    blank = checks.as_int("blank", blank)
    vocab_size = logits.shape[-1]
    if not -vocab_size <= blank < vocab_size:
        raise ValueError(f"`blank` must be in [{-vocab_size}, {vocab_size - 1}], but is {blank}.")
    clamp = checks.as_float("clamp", clamp)
    if not -math.inf <= clamp <= math.inf:
        raise ValueError(f"`clamp` must be a number, but is {clamp}.")
    checks.check_flag("fused_log_softmax", fused_log_softmax)
    fastemit_lambda = checks.as_float("fastemit_lambda", fastemit_lambda)
    if not 0.0 <= fastemit_lambda < math.inf:
        raise ValueError(
            f"`fastemit_lambda` must be finite and at least 0, but is {fastemit_lambda}."
        )
    delay_penalty = checks.as_float("delay_penalty", delay_penalty)
    if not 0.0 <= delay_penalty <= _LARGEST_DELAY_PENALTY:
        raise ValueError(
            f"`delay_penalty` must be in [0, {_LARGEST_DELAY_PENALTY:g}], but is {delay_penalty}."
        )
    if blank_in_targets not in ("error", "allow"):
        raise ValueError(
            '`blank_in_targets` must be "error" or "allow", '
            f"but is {checks.quoted(blank_in_targets)}."
        )
    if emission_windows is not None:
        checks.check_windows(logits, targets, emission_windows)
    if band is not None:
        checks.check_band(logits, targets, band)
    return Problem(
        targets,
        logit_lengths,
        target_lengths,
        blank % vocab_size,
        clamp,
        fused_log_softmax,
        fastemit_lambda,
        delay_penalty,
        blank_in_targets == "allow",
        emission_windows,
        band,
    )


def on_device(index: Tensor, device: torch.device) -> Tensor:
    """Moves ``index`` to a device.

    From the CPU it does not wait for the device's work. That needs pinned memory, which a graph of
    torch.compile can't make.
    """
    stays = index.device == device
    if stays or index.device.type != "cpu" or torch.compiler.is_compiling():
        return index.to(device)
    return index.pin_memory().to(device, non_blocking=True)


def cost_dtype(logits_dtype: torch.dtype) -> torch.dtype:
    """Returns the dtype of the costs that the public functions return for logits of a dtype."""
    return torch.float64 if logits_dtype == torch.float64 else torch.float32


def lattice_dtype(device: torch.device) -> torch.dtype:
    """Returns float64 where the device has it: an NPU and MPS lack it, or have a part of it."""
    return torch.float64 if device.type in ("cpu", "cuda") else torch.float32


def reduced(costs: Tensor, reduction: str) -> Tensor:
    """Returns the mean or the sum of costs (B,), or the costs themselves for "none"."""
    if reduction == "mean":
        return costs.mean()
    return costs.sum() if reduction == "sum" else costs
