"""The losses of a batch: RNN-T in the way that the config says, CTC, divergence from a teacher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from asr_ascend.config.loss_options import LossOptions
from asr_ascend.config.train_options import DistillationOptions
from asr_ascend.data.datamodule import Batch
from asr_ascend.losses import joiner_rnnt_loss, rnnt_loss
from asr_ascend.losses.distillation import distilled_rnnt_loss
from asr_ascend.losses.problem import on_device
from asr_ascend.training.ctc_alignment import first_frames
from asr_ascend.training.lattice_bands import Cells, LatticeBands
from asr_ascend.training.saved_batch import (
    MAX_LOGITS_BYTES,
    SavedBatch,
    joined_statistics,
    statistics_of,
)
from asr_ascend.training.teacher import Teacher

Number = TypeVar("Number", Tensor, float)
_BLOCK_BYTES = 16 * 2**20  # of logits that are described at a time


@dataclass(frozen=True)
class Losses(Generic[Number]):
    """The losses of a batch (tensors) or their means over a step (floats), in nats.

    Args:
        ctc: auxiliary CTC loss.
        rnnt: RNN-T loss; None while CTC trains alone.
        distillation: divergence from the teacher; None without a teacher and while CTC trains
            alone.
        simple: loss of the simple joiner; None without one and while CTC trains alone.
    """

    ctc: Number
    rnnt: Number | None = None
    distillation: Number | None = None
    simple: Number | None = None


class Objective:
    """Computes what a transducer is trained on: the losses of a batch and their weighted total.

    Args:
        model: from `build_transducer`.
        blank: id of blank in [0, V - 1].
        options: of the loss.
        distillation: its options; they count where there is a teacher.
        teacher: of the distillation, or None.
    """

    def __init__(
        self,
        model: nn.Module,
        blank: int,
        options: LossOptions,
        distillation: DistillationOptions,
        teacher: Teacher | None,
    ) -> None:
        self.model: Any = model
        self.blank = blank
        self.options = options
        self.distillation = distillation
        self.logits_dtype: torch.dtype = getattr(torch, options.dtype)
        self.teacher = teacher
        self.bands = LatticeBands(model, blank, options)

    def losses(
        self, batch: Batch, chunks: tuple[int | None, int | None], ctc_only: bool
    ) -> Losses[Tensor]:
        """Computes the losses of a batch, reduced as `loss.reduction` says.

        Args:
            batch: with at least one utterance.
            chunks: encoder frames in a chunk, and chunks of the past; both None: full context.
            ctc_only: whether only CTC is trained.
        """
        encoded, lengths = self._encode(batch, chunks)
        ctc_log_probs = self.model.ctc_log_probs(encoded)
        # Lengths as numbers: torch_npu has no kernel of the overload that takes tensors.
        ctc = functional.ctc_loss(
            ctc_log_probs.transpose(0, 1),
            batch.targets,
            lengths.tolist(),  # type: ignore[arg-type]
            batch.target_lengths.tolist(),  # type: ignore[arg-type]
            blank=self.blank,
            reduction="sum",
            zero_infinity=True,
        )
        if self.options.reduction == "mean":
            ctc = ctc / batch.targets.shape[0]
        if ctc_only:
            return Losses(ctc)
        windows = self._emission_windows(ctc_log_probs, batch, lengths)
        predicted = self._predicted(batch)
        has_teacher = self.teacher is not None
        cells = self.bands.cells(encoded, predicted, lengths, batch, windows, has_teacher)
        if self.teacher is not None:
            rnnt, distilled = self._distillation_losses(encoded, predicted, lengths, batch, cells)
            return Losses(ctc, rnnt, distilled, cells.simple_loss)
        fused = self.options.joiner == "fused"
        make_loss = self._fused_loss if fused else self._packed_loss
        rnnt = make_loss(encoded, predicted, lengths, batch, cells)
        return Losses(ctc, rnnt, simple=cells.simple_loss)

    @torch.no_grad()
    def saved_batch(self, batch: Batch, chunks: tuple[int | None, int | None]) -> SavedBatch:
        """Returns the call of the RNN-T loss that `losses` makes, with the same random draws.

        Args:
            batch, chunks: as for `losses`.

        Returns:
            The loss's arguments, with logits if they are small, and statistics of the features, the
            encoder's output, the CTC head's and the joiner's.
        """
        encoded, lengths = self._encode(batch, chunks)
        ctc_log_probs = self.model.ctc_log_probs(encoded)
        windows = self._emission_windows(ctc_log_probs, batch, lengths)
        sizes = lengths, batch.targets, batch.target_lengths
        predicted = self._predicted(batch)
        has_teacher = self.teacher is not None
        cells = self.bands.cells(encoded, predicted, lengths, batch, windows, has_teacher)
        rows = max(1, _BLOCK_BYTES // (self.model.vocab_size * self.logits_dtype.itemsize))
        kept: list[Tensor] | None = []
        described, taken = [], 0
        blocks = self.model.join_packed_blocks(encoded, *sizes, rows, cells.band, predicted)
        for block in blocks:
            if not self.options.fused_log_softmax:
                block = block.log_softmax(-1)
            block = block.to(self.logits_dtype)
            described.append(statistics_of(block))
            taken += block.numel() * block.element_size()
            kept = [*kept, block.cpu()] if kept is not None and taken <= MAX_LOGITS_BYTES else None
        found = {"features": batch.features, "encoder": encoded, "ctc_log_probs": ctc_log_probs}
        statistics = {name: statistics_of(value) for name, value in found.items()}
        return SavedBatch(
            ids=list(batch.ids),
            targets=batch.targets,
            logit_lengths=lengths,
            target_lengths=batch.target_lengths,
            blank=self.blank,
            clamp=self.options.clamp,
            fused_log_softmax=self.options.fused_log_softmax,
            fastemit_lambda=self.options.fastemit_lambda,
            delay_penalty=self.options.delay_penalty,
            emission_windows=cells.windows,
            band=cells.band,
            logits=torch.cat(kept) if kept else None,
            statistics={**statistics, "logits": joined_statistics(described)},
        )

    def _predicted(self, batch: Batch) -> Tensor:
        """The predictor's outputs (B, U + 1, P) for the batch's labels."""
        sizes = on_device(batch.target_lengths, batch.targets.device)
        predicted: Tensor = self.model.predicted(batch.targets, sizes)
        return predicted

    def _encode(self, batch: Batch, chunks: tuple[int | None, int | None]) -> tuple[Tensor, Tensor]:
        """Encoder frames on the device of the batch; their lengths on the CPU, for the host."""
        feature_lengths = on_device(batch.feature_lengths, batch.features.device)
        encoded, _ = self.model.encode(batch.features, feature_lengths, *chunks)
        return encoded, self.model.encoder_lengths(batch.feature_lengths.cpu())

    def total(self, losses: Losses[Number], rnnt_steps: int | None = None) -> Number:
        """Computes the minimised sum.

        It is RNN-T + `loss.ctc_weight` CTC + `distillation.weight` divergence. While only CTC is
        trained it is the CTC loss, unweighted. With a simple joiner its loss is added, and both
        have the weights of their warm-up.

        Args:
            losses: of a batch or a step.
            rnnt_steps: optimiser steps with the transducer's loss before this one; None: many.
        """
        if losses.rnnt is None:
            return losses.ctc
        total = losses.rnnt
        if losses.simple is not None:
            rnnt_scale, simple_scale = self.bands.scales(rnnt_steps)
            total = rnnt_scale * total + simple_scale * losses.simple
        total = total + self.options.ctc_weight * losses.ctc
        if losses.distillation is not None:
            total = total + self.distillation.weight * losses.distillation
        return total

    def _emission_windows(
        self, ctc_log_probs: Tensor, batch: Batch, lengths: Tensor
    ) -> Tensor | None:
        """(B, U, 2): the frames around where the CTC head hears each token; None: every frame."""
        if self.options.alignment_frames is None:
            return None
        early, late = self.options.alignment_frames
        sizes = lengths, batch.targets, batch.target_lengths
        heard = first_frames(ctc_log_probs, *sizes, self.blank)
        return torch.stack([heard - early, heard + late], dim=-1)

    def _fused_loss(
        self, encoded: Tensor, predicted: Tensor, lengths: Tensor, batch: Batch, cells: Cells
    ) -> Tensor:
        """Joiner and loss in one, which never makes the logits of all utterances together."""
        return joiner_rnnt_loss(
            *self.model.joiner_terms(encoded, batch.targets, batch.target_lengths, predicted),
            batch.targets,
            lengths,
            batch.target_lengths,
            logits_dtype=self.logits_dtype,
            **self._loss_options(cells),
        )

    def _packed_loss(
        self, encoded: Tensor, predicted: Tensor, lengths: Tensor, batch: Batch, cells: Cells
    ) -> Tensor:
        """The joiner's packed logits, then the loss."""
        logits = self._packed_logits(encoded, predicted, lengths, batch, cells)
        fused = self.options.fused_log_softmax
        if not fused:
            logits = logits.log_softmax(-1)
        return rnnt_loss(
            logits.to(self.logits_dtype),
            batch.targets,
            lengths,
            batch.target_lengths,
            fused_log_softmax=fused,
            # log_softmax keeps its output for its own backward, so it can't be overwritten.
            reuse_logits=self.options.reuse_logits and fused,
            **self._loss_options(cells),
        )

    def _packed_logits(
        self, encoded: Tensor, predicted: Tensor, lengths: Tensor, batch: Batch, cells: Cells
    ) -> Tensor:
        sizes = lengths, batch.targets, batch.target_lengths
        logits: Tensor = self.model.join_packed(encoded, *sizes, cells.band, predicted)
        return logits

    def _distillation_losses(
        self, encoded: Tensor, predicted: Tensor, lengths: Tensor, batch: Batch, cells: Cells
    ) -> tuple[Tensor, Tensor]:
        """RNN-T loss and divergence from the teacher."""
        assert self.teacher is not None
        taught = self.teacher.log_probs(batch, cells.band)
        logits = self._packed_logits(encoded, predicted, lengths, batch, cells)
        options = self._loss_options(cells)
        del options["clamp"]  # off, see config/rules.py
        return distilled_rnnt_loss(
            logits.to(self.logits_dtype),
            taught,
            batch.targets,
            lengths,
            batch.target_lengths,
            reuse_logits=self.options.reuse_logits,
            block_bytes=self.distillation.block_bytes,
            **options,
        )

    def _loss_options(self, cells: Cells) -> dict[str, Any]:
        return {
            "blank": self.blank,
            "clamp": self.options.clamp,
            "reduction": self.options.reduction,
            "fastemit_lambda": self.options.fastemit_lambda,
            "delay_penalty": self.options.delay_penalty,
            "emission_windows": cells.windows,
            "band": cells.band,
            "backend": self.options.backend,
        }
