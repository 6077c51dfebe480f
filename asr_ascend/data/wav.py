"""Wav files that appear whole."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import soundfile

from asr_ascend.system.atomic import replaced_file


def write_wav(
    path: Path, samples: np.ndarray, sample_rate_hz: int, subtype: str = "PCM_16"
) -> None:
    """Writes (samples,) or (samples, channels) in one step.

    `path` is never half written: it is the whole new file or stays as it was.

    Raises:
        OSError: the file can't be written. libsndfile itself would only say "System error".
    """
    content = io.BytesIO()
    soundfile.write(content, samples, sample_rate_hz, subtype=subtype, format="WAV")
    with replaced_file(path) as temporary:
        temporary.write_bytes(content.getbuffer())
