"""Self-attention over chunks, with a learned relative position bias and a bounded past."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

KeysAndValues = tuple[Tensor, Tensor]


def chunk_mask(
    num_frames: int, chunk_frames: int, left_chunks: int | None, device: torch.device | None = None
) -> Tensor:
    """Returns which frames each frame attends to: its own chunk and ``left_chunks`` before it.

    Args:
        num_frames: T.
        chunk_frames: frames in a chunk, at least 1.
        left_chunks: chunks of the past in sight; None: all of it.
        device: where the mask is made.

    Returns:
        (T, T) bool, [query, key], True where the query may look.
    """
    frame = torch.arange(num_frames, device=device)
    chunk = frame // chunk_frames
    chunks_back = chunk[:, None] - chunk[None, :]
    mask = chunks_back >= 0
    return mask if left_chunks is None else mask & (chunks_back <= left_chunks)


def relative_positions(
    num_queries: int, num_keys: int, max_distance: int, device: torch.device | None = None
) -> Tensor:
    """Returns the index of the bias for each query and key; the last query is the last key.

    Returns:
        (num_queries, num_keys) int64 in [0, 2 * max_distance]: query position minus key position,
        clamped to [-max_distance, max_distance], plus ``max_distance``.
    """
    key = torch.arange(num_keys, device=device)
    query = torch.arange(num_keys - num_queries, num_keys, device=device)
    distance = query[:, None] - key[None, :]
    return distance.clamp(-max_distance, max_distance) + max_distance


class ChunkAttention(nn.Module):
    """Pre-norm multi-head self-attention with a bias learned per head and distance.

    Args:
        dim: D, a multiple of ``num_heads``.
        num_heads: attention heads.
        max_relative_position: distances beyond it, in frames, share one bias.

    Source: Shaw et al. 2018 (relative positions), in the scalar form of Raffel et al. 2020.
    """

    def __init__(self, dim: int, num_heads: int, max_relative_position: int) -> None:
        super().__init__()
        if dim % num_heads:
            raise ValueError(
                f"`encoder_dim` must be a multiple of `num_heads` ({num_heads}), but is {dim}."
            )
        self.num_heads = num_heads
        self.norm = nn.LayerNorm(dim)
        self.query_key_value = nn.Linear(dim, 3 * dim)
        self.output = nn.Linear(dim, dim)
        self.relative_bias = nn.Parameter(torch.zeros(num_heads, 2 * max_relative_position + 1))

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        blocked: Tensor | None = None,
        past: KeysAndValues | None = None,
    ) -> tuple[Tensor, KeysAndValues]:
        """Computes the attention output, and returns the keys and values that it saw.

        Args:
            x: (B, T, D).
            positions: (T, K) from `relative_positions`; K is T plus the length of the past.
            blocked: bool, broadcast to (B, num_heads, T, K); True where a query must not look.
            past: keys and values of earlier frames, each (B, num_heads, K - T, D / num_heads).

        Returns:
            (B, T, D), and keys and values, each (B, num_heads, K, D / num_heads).
        """
        batch, frames, dim = x.shape
        qkv = self.query_key_value(self.norm(x))
        qkv = qkv.view(batch, frames, 3, self.num_heads, dim // self.num_heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        if past is not None:
            key = torch.cat([past[0], key], dim=2)
            value = torch.cat([past[1], value], dim=2)
        bias = self.relative_bias.index_select(1, positions.flatten())
        bias = bias.view(1, self.num_heads, *positions.shape).to(query.dtype)
        if blocked is not None:
            bias = bias.masked_fill(blocked, float("-inf"))
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return self.output(out.transpose(1, 2).reshape(batch, frames, dim)), (key, value)
