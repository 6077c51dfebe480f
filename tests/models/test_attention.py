"""Chunk mask, relative positions and attention against the formula written out."""

import math

import pytest
import torch

from asr_ascend.models.attention import ChunkAttention, chunk_mask, relative_positions


def test_chunk_mask_without_past():
    expected = [
        [1, 1, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 0, 0, 1],
    ]
    assert chunk_mask(5, 2, 0).int().tolist() == expected


def test_chunk_mask_with_one_chunk_of_past():
    expected = [
        [1, 1, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 1, 1, 0],
        [0, 0, 1, 1, 1],
    ]
    assert chunk_mask(5, 2, 1).int().tolist() == expected


def test_chunk_mask_with_all_the_past():
    expected = [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    assert chunk_mask(3, 2, None).int().tolist() == expected


def test_relative_positions_of_the_last_queries():
    expected = [[4, 4, 3, 2, 1], [4, 4, 4, 3, 2]]
    assert relative_positions(2, 5, 2).tolist() == expected


def test_attention_is_the_formula():
    torch.manual_seed(0)
    dim, heads, frames = 8, 2, 5
    attention = ChunkAttention(dim, heads, max_relative_position=3)
    torch.nn.init.normal_(attention.relative_bias)
    x = torch.randn(1, frames, dim)
    blocked = ~chunk_mask(frames, 2, 1)
    out, (keys, values) = attention(x, relative_positions(frames, frames, 3), blocked)

    query, key, value = attention.query_key_value(attention.norm(x))[0].split(dim, dim=-1)
    heads_out = []
    for h in range(heads):
        part = slice(h * dim // heads, (h + 1) * dim // heads)
        scores = query[:, part] @ key[:, part].T / math.sqrt(dim // heads)
        for i in range(frames):
            for j in range(frames):
                distance = max(-3, min(3, i - j))
                scores[i, j] += attention.relative_bias[h, distance + 3]
                if blocked[i, j]:
                    scores[i, j] = -math.inf
        heads_out.append(scores.softmax(-1) @ value[:, part])
        torch.testing.assert_close(keys[0, h], key[:, part])
        torch.testing.assert_close(values[0, h], value[:, part])
    torch.testing.assert_close(out[0], attention.output(torch.cat(heads_out, dim=-1)))


def test_heads_must_divide_the_width():
    message = r"^`encoder_dim` must be a multiple of `num_heads` \(3\), but is 8\.$"
    with pytest.raises(ValueError, match=message):
        ChunkAttention(8, 3, 4)
