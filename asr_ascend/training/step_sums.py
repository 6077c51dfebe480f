"""What the batches of an optimiser step add up to: no value leaves the device before its end."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from asr_ascend.data.dataset import Batch
from asr_ascend.losses.problem import lattice_dtype, on_device
from asr_ascend.training.objective import Losses


class StepBatch(NamedTuple):
    """A batch of the step that is under way.

    Args:
        batch_idx: its place in the epoch.
        batch: as the model got it.
        losses: (4,) RNN-T, CTC, distillation, simple, undivided, on the device; None for an empty
            batch.
    """

    batch_idx: int
    batch: Batch
    losses: Tensor | None


class StepTotals(NamedTuple):
    """Sums of a whole step, over accumulation and ranks, on the host."""

    weight: float  # what losses and gradients are divided by
    utterances: float
    tokens: float
    skipped: float
    asked_to_end: float  # ranks that were asked to end the training
    rnnt: float
    ctc: float
    distillation: float
    simple: float
    grad_norm: float


class StepSums:
    """Adds up counts, which the host knows, and losses, which stay on their device.

    Losses are added in float64 where the device has it, else in float32.
    """

    def __init__(self) -> None:
        self.counts = [0.0] * 4
        self.batches: list[StepBatch] = []

    def add(
        self, batch_idx: int, batch: Batch, weight: float, losses: Losses[Tensor] | None
    ) -> None:
        """Adds a batch.

        Args:
            batch_idx: its place in the epoch.
            batch: with its lengths on the CPU.
            weight: what it counts in the division of the step's gradient.
            losses: None for an empty batch.
        """
        size, tokens = batch.features.shape[0], int(batch.target_lengths.sum())
        counted = (weight, size, tokens, sum(batch.num_skipped.values()))
        self.counts = [sum_ + count for sum_, count in zip(self.counts, counted, strict=True)]
        values = None
        if losses is not None:
            parts = losses.rnnt, losses.ctc, losses.distillation, losses.simple
            nothing = torch.zeros((), device=losses.ctc.device)
            given = [nothing if part is None else part.detach() for part in parts]
            values = torch.stack([part.to(lattice_dtype(part.device)) for part in given])
        self.batches.append(StepBatch(batch_idx, batch, values))

    def on_device(self, device: torch.device, asked_to_end: bool) -> Tensor:
        """Returns this rank's sums: the fields of `StepTotals` except the last, in their order."""
        dtype = lattice_dtype(device)
        counts = torch.tensor([*self.counts, float(asked_to_end)], dtype=dtype)
        given = [item.losses for item in self.batches if item.losses is not None]
        losses = torch.zeros(4, dtype=dtype, device=device)
        for values in given:
            losses = losses + values
        return torch.cat([on_device(counts, device), losses])


def totals(values: Tensor, grad_norm: Tensor) -> StepTotals:
    """Copies the totals to the host: the one copy of a step.

    Args:
        values: from `StepSums.on_device`, added up over the ranks.
        grad_norm: () of the step's gradient.
    """
    return StepTotals._make(torch.cat([values, grad_norm.to(values).reshape(1)]).tolist())
