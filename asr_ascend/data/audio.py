"""Audio files as mono float32 at one sampling rate."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import soundfile
import torch
import torchaudio.functional
from torch import Tensor

from asr_ascend.data.manifest import Utterance


class AudioError(ValueError):
    """An audio file that cannot be used; `path` and `reason` say which and why."""

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        self.path = Path(path)
        self.reason = reason
        super().__init__(f"{self.path} cannot be read as audio: {reason}")


def load_utterance(utterance: Utterance, sample_rate_hz: int = 16000) -> Tensor:
    """Waveform of an utterance: the span that its `offset` and `duration` name, or the whole file.

    Returns and raises as `load_audio`.
    """
    if utterance.offset is None:
        return load_audio(utterance.audio_path, sample_rate_hz)
    span = (utterance.offset, utterance.duration)
    return load_audio(utterance.audio_path, sample_rate_hz, *span)


def load_audio(
    path: str | os.PathLike[str],
    sample_rate_hz: int = 16000,
    offset: float = 0.0,
    duration: float | None = None,
) -> Tensor:
    """Waveform of a file or a span of it: channels averaged, resampled to `sample_rate_hz`.

    Args:
        path: anything libsndfile reads (wav, flac, ogg, ...), any rate, any number of channels.
        sample_rate_hz: rate of the result.
        offset: seconds of the file to pass over; nothing before is read.
        duration: seconds to read, None for all; fewer where the file ends.

    Returns:
        (samples,) float32, full scale at 1; (0,) for a file without samples.

    Raises:
        AudioError: the file is missing, not audio, ends before `offset`, or holds NaN or infinity.
        ValueError: `sample_rate_hz` is not positive, `offset` or `duration` negative.
    """
    if sample_rate_hz <= 0:
        raise ValueError(f"`sample_rate_hz` must be positive, but is {sample_rate_hz}.")
    for name, seconds in (("offset", offset), ("duration", duration)):
        if seconds is not None and seconds < 0:
            raise ValueError(f"`{name}` must not be negative, but is {seconds}.")
    if not Path(path).is_file():
        raise AudioError(path, "there is no such file")
    try:
        samples, rate_hz = _read(path, offset, duration)
    except (soundfile.SoundFileError, RuntimeError, OSError) as error:
        reason = getattr(error, "error_string", None) or str(error)
        raise AudioError(path, str(reason).rstrip(".")) from error
    waveform = torch.from_numpy(samples).mean(dim=1)
    if not bool(torch.isfinite(waveform).all()):
        raise AudioError(path, "it holds NaN or infinity")
    return resample(waveform, rate_hz, sample_rate_hz)


def _read(
    path: str | os.PathLike[str], offset: float, duration: float | None
) -> tuple[np.ndarray, int]:
    with soundfile.SoundFile(path) as file:
        rate_hz = int(file.samplerate)
        start = round(offset * rate_hz)
        if start > file.frames:
            seconds = file.frames / rate_hz
            raise AudioError(path, f"it ends at {seconds:g} s, before the offset of {offset:g} s")
        if start > 0:
            file.seek(start)
        frames = -1 if duration is None else round((offset + duration) * rate_hz) - start
        return file.read(frames, dtype="float32", always_2d=True), rate_hz


def resample(waveform: Tensor, from_hz: int, to_hz: int) -> Tensor:
    """Waveform (samples,) at `to_hz`, ceil(samples * to_hz / from_hz) samples long."""
    if from_hz == to_hz or waveform.numel() == 0:
        return waveform
    return torchaudio.functional.resample(waveform, from_hz, to_hz)
