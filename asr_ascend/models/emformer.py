"""Streaming Emformer encoder: torchaudio's, behind the interface that the Conformer has.

Segment, left context, right context and memory are fixed when the model is built: attention is
trained for them. What comes after a segment is copied to it (the right context) and goes through
all layers again with the next one, so that no layer looks further ahead than the first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from asr_ascend.models.encoder import StreamingEncoder
from asr_ascend.models.subsampling import ConvSubsampling

try:
    from torchaudio.models import Emformer
except (ImportError, OSError) as error:  # a torchaudio built for another torch fails with OSError
    raise ImportError(
        "The Emformer needs torchaudio, and one that was built for the installed torch "
        f"({torch.__version__}): install both from the same index, or use a Conformer."
    ) from error


class EmformerEncoder(StreamingEncoder):
    """Subsampling and torchaudio's Emformer.

    The stream equals `forward` over the whole to float tolerance, for every length: each segment
    sees its own frames, copies of the ``right_context_frames`` that follow (zeros after the end),
    ``left_segments`` segments of the past, and one summary of each of the ``memory_segments`` last
    ones. The last segment is as short as the utterance leaves it. A batch of padded utterances
    gives each utterance the same frames as a batch of only that utterance.

    Args:
        num_mel_bins: width of a feature frame.
        subsampling_channels: channels of the subsampling convolutions.
        encoder_dim: D.
        num_layers, num_heads, feedforward_dim: as in the Conformer.
        dropout: probability.
        segment_frames: encoder frames in a segment, the chunk of the stream.
        left_segments: segments of the past that attention sees.
        right_context_frames: encoder frames after a segment that it waits for.
        memory_segments: past segments whose summaries attention sees; 0: none.

    Source: Shi et al. 2021, "Emformer: Efficient Memory Transformer Based Acoustic Model for Low
        Latency Streaming Speech Recognition".
    """

    def __init__(
        self,
        num_mel_bins: int,
        subsampling_channels: int,
        encoder_dim: int,
        num_layers: int,
        num_heads: int,
        feedforward_dim: int,
        dropout: float,
        segment_frames: int,
        left_segments: int,
        right_context_frames: int,
        memory_segments: int,
    ) -> None:
        super().__init__()
        self.num_mel_bins = num_mel_bins
        self.output_dim = encoder_dim
        self.look_ahead_frames = right_context_frames
        self.fixed_chunks = (segment_frames, left_segments)
        self.subsampling = ConvSubsampling(num_mel_bins, subsampling_channels, encoder_dim)
        self.emformer = Emformer(
            encoder_dim,
            num_heads,
            feedforward_dim,
            num_layers,
            segment_frames,
            dropout=dropout,
            activation="silu",
            left_context_length=left_segments * segment_frames,
            right_context_length=right_context_frames,
            max_memory_size=memory_segments,
            tanh_on_mem=True,
        )

    def forward(
        self, features: Tensor, lengths: Tensor, chunk_frames: int | None, left_chunks: int | None
    ) -> tuple[Tensor, Tensor]:
        """Encodes whole utterances, as `StreamingEncoder.forward` says.

        The chunks must be ``fixed_chunks``.
        """
        self.check_chunks(chunk_frames, left_chunks)
        x = self.subsampling(features)
        out_lengths = self.output_lengths(lengths)
        longest = int(out_lengths.max()) if out_lengths.numel() else 0
        if longest == 0:
            return x, out_lengths
        sizes = out_lengths.to(x.device)
        # torchaudio hides padding from attention, but not the copies of frames that follow an
        # utterance's end; and hides it only where the longest utterance has none.
        beyond = torch.arange(longest, device=x.device) >= sizes[:, None]
        frames = x[:, :longest].masked_fill(beyond[:, :, None], 0.0)
        out, _ = self.emformer(F.pad(frames, (0, 0, 0, self.look_ahead_frames)), sizes)
        return F.pad(out, (0, 0, 0, x.shape[1] - longest)), out_lengths

    def _step_chunk(
        self,
        features: Tensor,
        states: tuple[Any, ...] | None,
        chunk_frames: int | None,
        left_chunks: int | None,
    ) -> tuple[Tensor, tuple[Any, ...]]:
        """Runs one chunk, as `Emformer.infer` does, which takes no shorter last segment."""
        assert chunk_frames is not None
        x = self.subsampling(features)
        missing = self.look_ahead_frames - max(0, x.shape[1] - chunk_frames)
        right = F.pad(x[:, chunk_frames:], (0, 0, 0, missing)).transpose(0, 1)
        out = x[:, :chunk_frames].transpose(0, 1)
        lengths = torch.full((out.shape[1],), out.shape[0], device=x.device)
        memory = out.new_empty(0)
        if self.emformer.use_mem:
            memory = self.emformer.memory_op(out.permute(1, 2, 0)).permute(2, 0, 1)
        new_states = []
        for i, layer in enumerate(self.emformer.emformer_layers):
            # The layer puts new tensors into the list it is given.
            state = None if states is None else list(states[i])
            out, right, state, memory = layer.infer(out, lengths, right, state, memory)
            new_states.append(tuple(state))
        return out.transpose(0, 1), tuple(new_states)
