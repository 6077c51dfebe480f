"""Streaming Conformer encoder: one network, run over a whole utterance or chunk by chunk."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from asr_ascend.models.attention import (
    ChunkAttention,
    KeysAndValues,
    chunk_mask,
    relative_positions,
)
from asr_ascend.models.dropout import Dropout
from asr_ascend.models.encoder import StreamingEncoder
from asr_ascend.models.subsampling import ConvSubsampling


class FeedForward(nn.Sequential):
    """Pre-norm feed-forward module, (..., D) to (..., D).

    Dropout is on the output alone: over the four times wider hidden layer it would take a tenth of
    a training step on a CPU, to draw its random numbers.
    """

    def __init__(self, dim: int, hidden_dim: int, dropout: float) -> None:
        super().__init__(
            nn.LayerNorm(dim),
            nn.Linear(dim, hidden_dim),
            nn.SiLU(),
            nn.Linear(hidden_dim, dim),
            Dropout(dropout),
        )


class CausalConvolution(nn.Module):
    """Pre-norm gated depthwise convolution that looks only at the past.

    LayerNorm stands where the Conformer has BatchNorm, whose statistics would depend on padding.
    """

    def __init__(self, dim: int, kernel: int) -> None:
        super().__init__()
        self.past_frames = kernel - 1
        self.norm = nn.LayerNorm(dim)
        self.gate = nn.Linear(dim, 2 * dim)
        # 2-D, because it reads (B, T, D) as it lies, as channels last; Conv1d would copy twice.
        self.depthwise = nn.Conv2d(dim, dim, (1, kernel), groups=dim)
        self.depthwise_norm = nn.LayerNorm(dim)
        self.output = nn.Linear(dim, dim)

    def forward(self, x: Tensor, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Computes the convolution's output, and the inputs that later frames still see.

        Args:
            x: (B, T, D).
            past: (B, kernel - 1, D), as returned by the previous call; None at the start.

        Returns:
            (B, T, D) and (B, kernel - 1, D).
        """
        gated = F.glu(self.gate(self.norm(x)), dim=-1)
        if past is None:
            gated = F.pad(gated, (0, 0, self.past_frames, 0))
        else:
            gated = torch.cat([past, gated], dim=1)
        y = self.depthwise(gated.transpose(1, 2).unsqueeze(2)).squeeze(2).transpose(1, 2)
        y = self.output(F.silu(self.depthwise_norm(y)))
        return y, gated[:, gated.shape[1] - self.past_frames :]


@dataclass(frozen=True)
class LayerState:
    """What one layer remembers: attention keys and values, and inputs of the convolution."""

    attention: KeysAndValues
    convolution: Tensor


class ConformerLayer(nn.Module):
    """Half feed-forward, attention, causal convolution, half feed-forward, LayerNorm.

    Source: Gulati et al. 2020, "Conformer: Convolution-augmented Transformer".
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        feedforward_dim: int,
        conv_kernel: int,
        dropout: float,
        max_relative_position: int,
    ) -> None:
        super().__init__()
        self.feedforward1 = FeedForward(dim, feedforward_dim, dropout)
        self.attention = ChunkAttention(dim, num_heads, max_relative_position)
        self.convolution = CausalConvolution(dim, conv_kernel)
        self.dropout = Dropout(dropout)
        self.feedforward2 = FeedForward(dim, feedforward_dim, dropout)
        self.norm = nn.LayerNorm(dim)

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        blocked: Tensor | None = None,
        state: LayerState | None = None,
    ) -> tuple[Tensor, LayerState]:
        """Computes the layer's output (B, T, D) and the state after it.

        Arguments are those of `ChunkAttention.forward`; ``state`` is that of the frames before.
        """
        x = x + 0.5 * self.feedforward1(x)
        attended, keys_and_values = self.attention(
            x, positions, blocked, None if state is None else state.attention
        )
        x = x + self.dropout(attended)
        convolved, conv_past = self.convolution(x, None if state is None else state.convolution)
        x = x + self.dropout(convolved)
        x = x + 0.5 * self.feedforward2(x)
        return self.norm(x), LayerState(keys_and_values, conv_past)


class ConformerEncoder(StreamingEncoder):
    """Subsampling and Conformer layers.

    Args:
        num_mel_bins: width of a feature frame.
        subsampling_channels: channels of the subsampling convolutions.
        encoder_dim: D.
        num_layers, num_heads, feedforward_dim: as in the Conformer.
        conv_kernel: frames that the causal convolution sees, the present one included.
        dropout: probability, on what each module adds to the residual stream.
        max_relative_position: frames beyond which all distances share one attention bias.
    """

    def __init__(
        self,
        num_mel_bins: int,
        subsampling_channels: int,
        encoder_dim: int,
        num_layers: int,
        num_heads: int,
        feedforward_dim: int,
        conv_kernel: int,
        dropout: float,
        max_relative_position: int,
    ) -> None:
        super().__init__()
        self.num_mel_bins = num_mel_bins
        self.output_dim = encoder_dim
        self.max_relative_position = max_relative_position
        self.subsampling = ConvSubsampling(num_mel_bins, subsampling_channels, encoder_dim)
        self.layers = nn.ModuleList(
            ConformerLayer(
                encoder_dim, num_heads, feedforward_dim, conv_kernel, dropout, max_relative_position
            )
            for _ in range(num_layers)
        )

    def forward(
        self, features: Tensor, lengths: Tensor, chunk_frames: int | None, left_chunks: int | None
    ) -> tuple[Tensor, Tensor]:
        """Encodes whole utterances under a chunk mask; see `StreamingEncoder.forward`."""
        x = self.subsampling(features)
        out_lengths = self.output_lengths(lengths)
        frames = x.shape[1]
        if frames == 0:
            return x, out_lengths
        positions = relative_positions(frames, frames, self.max_relative_position, x.device)
        blocked = self._blocked(frames, out_lengths.to(x.device), chunk_frames, left_chunks)
        for layer in self.layers:
            x, _ = layer(x, positions, blocked)
        return x, out_lengths

    @staticmethod
    def _blocked(
        frames: int, lengths: Tensor, chunk_frames: int | None, left_chunks: int | None
    ) -> Tensor:
        """Returns where attention must not look, (B, 1, T, T) bool."""
        frame = torch.arange(frames, device=lengths.device)
        allowed = (frame < lengths[:, None])[:, None, None, :]
        if chunk_frames is not None:
            allowed = allowed & chunk_mask(frames, chunk_frames, left_chunks, lengths.device)
        # A padding frame may see nothing else; a row without any key would be NaN.
        itself = frame[:, None] == frame[None, :]
        return ~(allowed | itself)

    def _step_chunk(
        self,
        features: Tensor,
        states: tuple[LayerState, ...] | None,
        chunk_frames: int | None,
        left_chunks: int | None,
    ) -> tuple[Tensor, tuple[LayerState, ...]]:
        """Runs one chunk through all layers; returns its output and the states, with their past cut
        to size.
        """
        x = self.subsampling(features)
        frames = x.shape[1]
        past = 0 if states is None else states[0].attention[0].shape[2]
        positions = relative_positions(frames, past + frames, self.max_relative_position, x.device)
        keep = past + frames
        if chunk_frames is not None and left_chunks is not None:
            keep = min(keep, left_chunks * chunk_frames)
        cut = past + frames - keep
        new_states = []
        for i, layer in enumerate(self.layers):
            x, new = layer(x, positions, None, None if states is None else states[i])
            key, value = new.attention
            new_states.append(LayerState((key[:, :, cut:], value[:, :, cut:]), new.convolution))
        return x, tuple(new_states)
