"""Streaming decoding: tokens as the speech comes in."""

from __future__ import annotations

import torch
from torch import Tensor

from asr_ascend.decoding.greedy import GreedySearch, Hypothesis
from asr_ascend.models.encoder import EncoderState
from asr_ascend.models.transducer import Transducer


class StreamingDecoder:
    """Greedy decoding of one stream, equal to `greedy_decode` over `encode` with the same chunks.

    Args:
        model: in evaluation mode.
        chunk_frames: encoder frames (40 ms) in a chunk; None: all is decoded at `finish`.
        left_chunks: chunks of the past that attention sees; None: all of it, memory grows.
        max_symbols_per_frame: as for `greedy_decode`.
        keep_encoded: keep all encoder frames for `encoded`; memory grows with the stream.
    """

    def __init__(
        self,
        model: Transducer,
        chunk_frames: int | None,
        left_chunks: int | None,
        max_symbols_per_frame: int = 3,
        keep_encoded: bool = False,
    ) -> None:
        self.model = model
        self.chunk_frames = chunk_frames
        self.left_chunks = left_chunks
        self._search = GreedySearch(model, 1, max_symbols_per_frame)
        self._state: EncoderState | None = None
        self._encoded: list[Tensor] | None = [] if keep_encoded else None

    @property
    def hypothesis(self) -> Hypothesis:
        """What was heard so far."""
        return self._search.hypotheses[0]

    @property
    def encoded(self) -> Tensor:
        """(T, D) the encoder frames so far.

        Raises:
            ValueError: they are not kept.
        """
        if self._encoded is None:
            raise ValueError("`keep_encoded` must be True for `encoded`, but is False.")
        if not self._encoded:
            return torch.empty(0, self.model.encoder.output_dim)
        return torch.cat(self._encoded)

    def push(self, features: Tensor) -> list[int]:
        """Decodes the chunks that ``features`` complete and returns their tokens.

        Args:
            features: (f, num_mel_bins) raw log-mel, the next frames of the stream, any number.

        Returns:
            New token ids, often none.

        Raises:
            ValueError: the shape is wrong, or the stream is finished.
        """
        return self._decode(features, final=False)

    def finish(self) -> list[int]:
        """Decodes the last, partial chunk and returns its tokens.

        Nothing can be pushed after it.
        """
        empty = torch.empty(
            0, self.model.feature_mean.shape[0], device=self.model.feature_mean.device
        )
        return self._decode(empty, final=True)

    @torch.no_grad()
    def _decode(self, features: Tensor, final: bool) -> list[int]:
        known = len(self.hypothesis.tokens)
        enc, self._state = self.model.encode_step(
            features.unsqueeze(0), self._state, self.chunk_frames, self.left_chunks, final
        )
        if self._encoded is not None:
            self._encoded.append(enc[0])
        self._search.advance(enc, torch.tensor([enc.shape[1]]))
        return self.hypothesis.tokens[known:]
