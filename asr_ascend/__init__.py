"""RNN-T training for streaming speech recognition on Ascend NPUs and CPUs.

Nothing is imported here, so that ``from asr_ascend.losses import rnnt_loss`` needs torch only.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from asr_ascend.system.starting import quiet_start

if TYPE_CHECKING:
    import os

    from asr_ascend.recognizer import Recognizer

quiet_start()

try:
    __version__ = version("asr-ascend")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"


def load(
    checkpoint: str | os.PathLike[str], chunk_ms: int | str = 320, left_chunks: int = 4
) -> Recognizer:
    """Loads the recogniser of a checkpoint: it transcribes files, samples and streams.

    Args:
        checkpoint: a file that training wrote.
        chunk_ms: the model hears chunks of this many ms, a multiple of 40; "full": the whole.
        left_chunks: chunks of the past that attention sees.

    Raises:
        CheckpointError: the file is missing or not a checkpoint.
        ValueError: the model's encoder can't work with these chunks.
    """
    from asr_ascend import recognizer

    return recognizer.load(checkpoint, chunk_ms, left_chunks)
