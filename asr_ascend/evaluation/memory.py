"""Memory that full context takes, asked for before anything is decoded."""

from __future__ import annotations

from asr_ascend.config.frames import ENCODER_HOP_MS
from asr_ascend.config.keys import ConfigError
from asr_ascend.decoding.chunks import attention_bytes
from asr_ascend.models import StreamingEncoder
from asr_ascend.system.memory import available_bytes


def check_memory(encoder: StreamingEncoder, count: int, frames: int, name: str) -> None:
    """Checks that there is memory for full context over a batch.

    Args:
        encoder: that hears the batch.
        count: utterances in the batch.
        frames: encoder frames of the longest of them.
        name: of the longest, for the message.

    Raises:
        ConfigError: says how much is needed, and how much is free.
    """
    room, needed = available_bytes(), count * attention_bytes(encoder, frames)
    if room is not None and needed > room:
        seconds = frames * ENCODER_HOP_MS / 1000
        batch = "" if count == 1 else f"{count} x "
        raise ConfigError(
            f"Full context over {batch}{seconds:.0f} s (utterance '{name}') takes "
            f"{needed / 1e9:.1f} GB of memory, but {room / 1e9:.1f} GB are free; choose chunks: "
            "chunk_ms=320 full_context=false."
        )
