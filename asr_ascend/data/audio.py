"""Audio files as mono float32 at one sampling rate."""

from __future__ import annotations

import os
from pathlib import Path

import soundfile
import torch
import torchaudio.functional
from torch import Tensor


class AudioError(ValueError):
    """An audio file that cannot be used; `path` and `reason` say which and why."""

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        self.path = Path(path)
        self.reason = reason
        super().__init__(f"{self.path} cannot be read as audio: {reason}")


def load_audio(path: str | os.PathLike[str], sample_rate_hz: int = 16000) -> Tensor:
    """Waveform of a file: channels averaged, resampled to `sample_rate_hz`.

    Args:
        path: anything libsndfile reads (wav, flac, ogg, ...), any rate, any number of channels.
        sample_rate_hz: rate of the result.

    Returns:
        (samples,) float32, full scale at 1; (0,) for a file without samples.

    Raises:
        AudioError: the file is missing, not audio, or holds NaN or infinity.
        ValueError: `sample_rate_hz` is not positive.
    """
    if sample_rate_hz <= 0:
        raise ValueError(f"`sample_rate_hz` must be positive, but is {sample_rate_hz}.")
    if not Path(path).is_file():
        raise AudioError(path, "there is no such file")
    try:
        samples, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, RuntimeError, OSError) as error:
        reason = getattr(error, "error_string", None) or str(error)
        raise AudioError(path, str(reason).rstrip(".")) from error
    waveform = torch.from_numpy(samples).mean(dim=1)
    if not bool(torch.isfinite(waveform).all()):
        raise AudioError(path, "it holds NaN or infinity")
    return resample(waveform, rate_hz, sample_rate_hz)


def resample(waveform: Tensor, from_hz: int, to_hz: int) -> Tensor:
    """Waveform (samples,) at `to_hz`, ceil(samples * to_hz / from_hz) samples long."""
    if from_hz == to_hz or waveform.numel() == 0:
        return waveform
    return torchaudio.functional.resample(waveform, from_hz, to_hz)
