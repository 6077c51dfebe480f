"""What every streaming encoder shares: interface, state, and cutting a stream into chunks."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from asr_ascend.config.frames import FEATURE_FRAMES_PER_ENCODER_FRAME, features_for_frames
from asr_ascend.models.subsampling import subsampled_lengths


@dataclass(frozen=True)
class EncoderState:
    """Everything a stream needs between two calls of `StreamingEncoder.step`; never mutated.

    Attributes:
        chunk_frames, left_chunks: what the stream was started with.
        features: (B, f, num_mel_bins) feature frames that later encoder frames still look at.
        layers: what each layer remembers, as the encoder defines it; None before the first chunk.
        encoder_frames: encoder frames given out so far.
        finished: True after a call with ``final=True``.
    """

    chunk_frames: int | None
    left_chunks: int | None
    features: Tensor
    layers: tuple[Any, ...] | None = None
    encoder_frames: int = 0
    finished: bool = False


class StreamingEncoder(nn.Module):
    """Features to encoder frames, over whole utterances (`forward`) or as a stream (`step`).

    Attributes:
        num_mel_bins: width of a feature frame.
        output_dim: D, width of an encoder frame.
        look_ahead_frames: encoder frames after a chunk that the chunk waits for.
        fixed_chunks: the only (chunk_frames, left_chunks) that the encoder can serve; None: any,
            full context included.
    """

    num_mel_bins: int
    output_dim: int
    look_ahead_frames: int = 0
    fixed_chunks: tuple[int, int] | None = None

    def output_lengths(self, feature_lengths: Tensor) -> Tensor:
        """Returns the encoder frames of numbers of feature frames, as `subsampled_lengths` does."""
        return subsampled_lengths(feature_lengths)

    @abstractmethod
    def forward(
        self, features: Tensor, lengths: Tensor, chunk_frames: int | None, left_chunks: int | None
    ) -> tuple[Tensor, Tensor]:
        """Encodes whole utterances, as a stream with these chunks would.

        Args:
            features: (B, F, num_mel_bins) normalised features; padding is never looked at by
                frames before a length.
            lengths: (B,) feature frames of each utterance.
            chunk_frames: encoder frames in a chunk; None: every frame sees the whole utterance.
            left_chunks: chunks of the past in sight; None: all.

        Returns:
            (B, T, D) and (B,) lengths in encoder frames. Frames beyond a length hold anything.
        """

    def check_chunks(self, chunk_frames: int | None, left_chunks: int | None) -> None:
        """Checks that the encoder can work with these chunks.

        Raises:
            ValueError: ``chunk_frames`` is below 1, ``left_chunks`` below 0, or they are not
                ``fixed_chunks``.
        """
        if chunk_frames is not None and chunk_frames < 1:
            raise ValueError(f"`chunk_frames` must be at least 1 or None, but is {chunk_frames}.")
        if left_chunks is not None and left_chunks < 0:
            raise ValueError(f"`left_chunks` must be at least 0 or None, but is {left_chunks}.")
        if self.fixed_chunks not in (None, (chunk_frames, left_chunks)):
            raise ValueError(
                f"`chunk_frames` and `left_chunks` must be {self.fixed_chunks}, which the encoder "
                f"was built with, but are ({chunk_frames}, {left_chunks})."
            )

    def step(
        self,
        features: Tensor,
        state: EncoderState | None,
        chunk_frames: int | None,
        left_chunks: int | None,
        final: bool,
    ) -> tuple[Tensor, EncoderState]:
        """Encodes the chunks that ``features`` complete; see `Transducer.encode_step`."""
        if state is None:
            state = EncoderState(chunk_frames, left_chunks, features[:, :0])
        if state.finished:
            raise ValueError("`state` belongs to a stream that was finished; start with None.")
        if (state.chunk_frames, state.left_chunks) != (chunk_frames, left_chunks):
            raise ValueError(
                "`chunk_frames` and `left_chunks` must stay what the stream was started with "
                f"({state.chunk_frames}, {state.left_chunks}), "
                f"but are ({chunk_frames}, {left_chunks})."
            )
        pending = torch.cat([state.features, features], dim=1)
        layers = state.layers
        outputs = []
        least = features_for_frames(1) if final else self._chunk_features(chunk_frames)
        while least is not None and pending.shape[1] >= least:
            out, layers = self._step_chunk(
                pending[:, : self._chunk_features(chunk_frames)], layers, chunk_frames, left_chunks
            )
            outputs.append(out)
            pending = pending[:, FEATURE_FRAMES_PER_ENCODER_FRAME * out.shape[1] :]
        if final:
            pending = pending[:, :0]
        encoded = (
            torch.cat(outputs, dim=1)
            if outputs
            else features.new_zeros(features.shape[0], 0, self.output_dim)
        )
        emitted = state.encoder_frames + encoded.shape[1]
        # A slice would keep the whole push alive for as long as the stream waits.
        pending = pending.clone()
        return encoded, EncoderState(chunk_frames, left_chunks, pending, layers, emitted, final)

    def _chunk_features(self, chunk_frames: int | None) -> int | None:
        """Returns the feature frames that a whole chunk and its look-ahead need; None: all there
        are.
        """
        if chunk_frames is None:
            return None
        return features_for_frames(chunk_frames + self.look_ahead_frames)

    @abstractmethod
    def _step_chunk(
        self,
        features: Tensor,
        states: tuple[Any, ...] | None,
        chunk_frames: int | None,
        left_chunks: int | None,
    ) -> tuple[Tensor, tuple[Any, ...]]:
        """Runs one chunk through all layers; returns its output and the states. The last may be
        shorter.

        Args:
            features: of at least one encoder frame; of the chunk's and those it waits for unless
                the stream ends before.
            states: as returned for the chunk before; None at the start.
            chunk_frames, left_chunks: as for `forward`.
        """
