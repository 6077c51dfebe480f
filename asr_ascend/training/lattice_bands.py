"""Which lattice cells a loss computes, as `loss.band` says, and the loss of a simple joiner."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from asr_ascend.config.loss_options import LossOptions
from asr_ascend.config.train_options import TrainOptions
from asr_ascend.data.datamodule import Batch
from asr_ascend.data.filtering import FULL_LATTICE, LatticeBound
from asr_ascend.losses import backends, lattice_band, pruned_band, simple_rnnt_loss

# Weight of the pruned loss at the start of the warm-up, as in icefall.
_FIRST_PRUNED_SCALE = 0.1


class Cells(NamedTuple):
    """What bounds the lattices of a batch.

    Args:
        windows: (B, U, 2) first and last frame of each label, or None.
        band: (B, T, 2) first and last column of each frame; None: the loss's own choice, which is
            every cell, or for the fused joiner what the windows leave.
        simple_loss: of the simple joiner whose band it is, reduced; or None.
    """

    windows: Tensor | None
    band: Tensor | None = None
    simple_loss: Tensor | None = None


class LatticeBands:
    """Makes the bands of batches.

    Args:
        model: from `build_transducer`, with simple heads for `loss.band=simple`.
        blank: id of blank in [0, V - 1].
        options: of the loss.
    """

    def __init__(self, model: nn.Module, blank: int, options: LossOptions) -> None:
        self.model: Any = model
        self.blank = blank
        self.options = options

    def cells(
        self,
        encoded: Tensor,
        predicted: Tensor,
        lengths: Tensor,
        batch: Batch,
        windows: Tensor | None,
        has_teacher: bool,
    ) -> Cells:
        """Chooses the cells of a batch that the loss computes.

        The divergence from a teacher is summed over every cell, also where windows are given; only
        pruning bounds it.

        Args:
            encoded: (B, T, D) from the model.
            predicted: (B, U + 1, P) from the model.
            lengths: (B,) encoder frames.
            batch: the batch that they come from.
            windows: (B, U, 2), or None.
            has_teacher: whether a divergence from a teacher is computed too.
        """
        options = self.options
        if options.band == "simple":
            return self._pruned(encoded, predicted, lengths, batch)
        chosen = backends.for_loss("rnnt_loss", encoded, options.backend)
        if windows is None or has_teacher or not chosen.HAS_BANDS:
            return Cells(windows)
        sizes = lengths.cpu(), batch.target_lengths.cpu()
        if options.band == "full":
            return Cells(windows, full_band(*sizes) if options.joiner == "fused" else None)
        if options.joiner == "fused":
            return Cells(windows)  # `joiner_rnnt_loss` makes the same band
        return Cells(windows, lattice_band(windows.cpu(), *sizes, on_empty="widen"))

    def scales(self, rnnt_steps: int | None) -> tuple[float, float]:
        """Returns the weights of the pruned and the simple loss.

        They change linearly over the warm-up, as in icefall.

        Args:
            rnnt_steps: optimiser steps with both losses so far; None: past the warm-up.
        """
        simple, warmup = self.options.simple_loss_scale, self.options.simple_warmup_steps
        if rnnt_steps is None or rnnt_steps >= warmup:
            return 1.0, simple
        done = rnnt_steps / warmup
        pruned = _FIRST_PRUNED_SCALE + (1.0 - _FIRST_PRUNED_SCALE) * done
        return pruned, 1.0 - done * (1.0 - simple)

    def _pruned(self, encoded: Tensor, predicted: Tensor, lengths: Tensor, batch: Batch) -> Cells:
        options = self.options
        result = simple_rnnt_loss(
            *self.model.simple_heads(encoded, predicted),
            batch.targets,
            lengths,
            batch.target_lengths,
            self.blank,
            options.reduction,
            lm_only_scale=options.lm_only_scale,
            am_only_scale=options.am_only_scale,
            delay_penalty=options.delay_penalty,
            backend=options.backend,
            return_occupancies=True,
        )
        assert isinstance(result, tuple)
        loss, occupancies = result
        band = pruned_band(
            occupancies,
            lengths,
            batch.target_lengths,
            symbols_per_frame=options.symbols_per_frame,
        )
        return Cells(None, band, loss)


def full_band(logit_lengths: Tensor, target_lengths: Tensor) -> Tensor:
    """Returns a band (B, max T_b, 2) int64 with every column of every frame."""
    last = target_lengths.to(torch.int64)[:, None].expand(-1, int(logit_lengths.max()))
    return torch.stack([torch.zeros_like(last), last], dim=-1)


def lattice_bound(options: TrainOptions) -> LatticeBound:
    """Returns the most cells that the loss of an utterance computes, known from its lengths.

    Windows have early + 1 + late frames around increasing ones. Column u spans at most the frames
    from ``heard[u - 1] - early`` to ``heard[u] + late``. All columns together have at most T + U
    (early + 1 + late) cells.

    Args:
        options: of the training.
    """
    loss = options.loss
    if loss.band == "simple":
        return LatticeBound(symbols_per_frame=loss.symbols_per_frame)
    has_teacher = options.distillation.teacher is not None
    if loss.band == "full" or loss.alignment_frames is None or has_teacher:
        return FULL_LATTICE
    return LatticeBound(window_frames=sum(loss.alignment_frames) + 1)
