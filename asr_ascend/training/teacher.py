"""The teacher of a distillation: a trained transducer that hears whole utterances."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from asr_ascend.checkpoints.checkpoint import load_model
from asr_ascend.config.rules import ConfigError
from asr_ascend.data.datamodule import Batch
from asr_ascend.data.tokenizer import Tokenizer
from asr_ascend.losses.distillation import collapse_blocks, rows_per_block
from asr_ascend.models import Transducer


class Teacher:
    """A frozen transducer in evaluation mode, with full context.

    No `nn.Module`, so that the student's checkpoints and optimiser know nothing of it.

    Args:
        model: whose encoder has full context.
        block_bytes: its logits are made a block at a time, each of so many bytes.
    """

    def __init__(self, model: Transducer, block_bytes: int) -> None:
        self.model = model.eval().requires_grad_(False)
        self.block_rows = rows_per_block(model.vocab_size, block_bytes)

    def to(self, device: torch.device) -> None:
        """Moves the teacher to the student's device."""
        self.model.to(device)

    @torch.no_grad()
    def log_probs(self, batch: Batch, band: Tensor | None = None) -> Tensor:
        """Returns log-probabilities (N, 3) of blank, label and the rest at the lattices' cells.

        Args:
            batch: with at least one utterance.
            band: (B, T, 2) first and last column of each frame; None: every column.
        """
        enc, lengths = self.model.encode(batch.features, batch.feature_lengths)
        sizes = batch.targets, batch.target_lengths
        blocks = self.model.join_packed_blocks(enc, lengths, *sizes, self.block_rows, band)
        return collapse_blocks(
            blocks, batch.targets, lengths, batch.target_lengths, self.model.blank, band
        )


def load_teacher(
    path: str | os.PathLike[str],
    tokenizer: Tokenizer,
    num_mel_bins: int,
    sample_rate_hz: int,
    block_bytes: int,
) -> Teacher:
    """Loads the teacher of a checkpoint and checks it against the student.

    Args:
        path: a checkpoint of this package.
        tokenizer: the student's.
        num_mel_bins: the student's width of a feature frame.
        sample_rate_hz: the rate of the student's audio.
        block_bytes: as for `Teacher`.

    Raises:
        CheckpointError: the checkpoint can't be read.
        ConfigError: a teacher with other tokens, another blank or other features than the
            student, or without full context.
    """
    trained = load_model(path)
    theirs, ours = trained.tokenizer, tokenizer
    if (theirs.pieces, theirs.blank) != (ours.pieces, ours.blank):
        raise ConfigError(
            f"`distillation.teacher` must have the student's tokens ({ours.vocab_size} with blank "
            f"{ours.blank}), but {path} has {theirs.vocab_size} with blank {theirs.blank}"
            + (", other ones." if theirs.vocab_size == ours.vocab_size else ".")
        )
    encoder = trained.model.encoder
    if encoder.num_mel_bins != num_mel_bins:
        raise ConfigError(
            f"`distillation.teacher` must have the student's `model.num_mel_bins` ({num_mel_bins}),"
            f" but {path} has {encoder.num_mel_bins}."
        )
    if trained.sample_rate_hz != sample_rate_hz:
        raise ConfigError(
            f"`distillation.teacher` must have the student's `data.sample_rate_hz` "
            f"({sample_rate_hz}), but {path} has {trained.sample_rate_hz}."
        )
    if encoder.fixed_chunks is not None:
        raise ConfigError(
            f"`distillation.teacher` must have full context, but the encoder of {path} was built "
            "with chunks."
        )
    return Teacher(trained.model, block_bytes)
