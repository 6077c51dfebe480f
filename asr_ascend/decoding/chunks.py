"""The chunks that a command asks for, checked against what its model's encoder can serve."""

from __future__ import annotations

from asr_ascend.config.command_options import EvaluateOptions
from asr_ascend.config.frames import ENCODER_HOP_MS, chunk_frames
from asr_ascend.config.keys import ConfigError
from asr_ascend.models import StreamingEncoder
from asr_ascend.models.attention import ChunkAttention

Chunks = tuple[int | None, int | None]


def stream_chunks(encoder: StreamingEncoder, chunk_ms: int | str, left_chunks: int) -> Chunks:
    """Returns the encoder frames in a chunk and the chunks of the past that attention sees.

    Both are None for full context.

    Args:
        encoder: may have been built for its own chunks (``fixed_chunks``).
        chunk_ms: a multiple of 40, or `full`.
        left_chunks: chunks of the past that attention sees.

    Raises:
        ConfigError: the encoder can't work with these chunks.
    """
    frames = chunk_frames(chunk_ms)
    chunks: Chunks = (None, None) if frames is None else (frames, left_chunks)
    fixed = encoder.fixed_chunks
    if fixed not in (None, chunks):
        raise ConfigError(
            f"`chunk_ms` and `left_chunks` must be {_milliseconds(fixed)} and {fixed[1]}, which "
            f"the model's encoder was built with, but are {chunk_ms} and {left_chunks}."
        )
    return chunks


def evaluation_chunks(encoder: StreamingEncoder, options: EvaluateOptions) -> list[Chunks]:
    """Returns the chunks that an evaluation decodes with.

    They are the stream's and, if wanted and possible, full context.

    Returns the chunks of an evaluation: the stream's and, if wanted and possible, full context.

    Raises:
        ConfigError: the encoder can't work with these chunks, or not with full context.
    """
    chunks = stream_chunks(encoder, options.chunk_ms, options.left_chunks)
    fixed, wanted = encoder.fixed_chunks, options.full_context
    if fixed is not None and wanted:
        raise ConfigError(
            "`full_context` must be false or null, since the model's encoder was built with chunks "
            f"of {_milliseconds(fixed)} ms and has no full context, but is true."
        )
    beside = fixed is None if wanted is None else wanted
    full: Chunks = (None, None)
    return [chunks, full] if beside and chunks != full else [chunks]


def _milliseconds(chunks: tuple[int, int]) -> int:
    return chunks[0] * ENCODER_HOP_MS


def attention_bytes(encoder: StreamingEncoder, frames: int) -> int:
    """Returns the bytes that attention over `frames` encoder frames at once takes.

    Every pair of frames has a bias and a score of float32 for each head, and an int64 index of the
    bias. Measured with 4 heads: 42 bytes a pair; this gives 44.
    """
    heads = max(
        (m.num_heads for m in encoder.modules() if isinstance(m, ChunkAttention)), default=1
    )
    return frames * frames * (8 * heads + 12)
