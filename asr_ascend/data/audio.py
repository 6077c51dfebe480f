"""Audio files as mono float32 at one sampling rate: whole recordings and spans of them."""

from __future__ import annotations

import os
import sys
import warnings as python_warnings
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from asr_ascend.data.audio_files.reader import (
    AudioError,
    AudioReader,
    EndsBeforeError,
    SampleRateError,
)
from asr_ascend.data.audio_files.resampling import StreamResampler, resample
from asr_ascend.data.manifest import Utterance

__all__ = [
    "AudioError",
    "AudioReader",
    "EndsBeforeError",
    "Recording",
    "SampleRateError",
    "StreamResampler",
    "load_audio",
    "load_utterance",
    "mono",
    "print_warnings",
    "read_audio",
    "read_utterance",
    "resample",
]
_BLOCK_SECONDS = 10


@dataclass(frozen=True)
class Recording:
    """What a file, or a span of it, gave.

    Args:
        waveform: (samples,) float32, full scale at 1.
        warnings: what is wrong with the file, a sentence each.
        lost: whether a part of what was recorded is known to be missing.
    """

    waveform: Tensor
    warnings: tuple[str, ...] = ()
    lost: bool = False


def read_utterance(utterance: Utterance, sample_rate_hz: int = 16000) -> Recording:
    """Reads the part of a file that an utterance names.

    That part is `duration` seconds from `offset` on, or the whole file where `offset` is None.
    Raises what `load_audio` raises.
    """
    if utterance.offset is None:
        return read_audio(utterance.audio_path, sample_rate_hz)
    span = (utterance.offset, utterance.duration)
    return read_audio(utterance.audio_path, sample_rate_hz, *span)


def load_utterance(utterance: Utterance, sample_rate_hz: int = 16000) -> Tensor:
    """Returns the waveform of an utterance, (samples,) float32 with full scale at 1.

    The part of the file is that of `read_utterance`. Warns and raises as `load_audio` does.
    """
    return _told(read_utterance(utterance, sample_rate_hz), utterance.audio_path)


def load_audio(
    path: str | os.PathLike[str],
    sample_rate_hz: int = 16000,
    offset: float = 0.0,
    duration: float | None = None,
) -> Tensor:
    """Returns the waveform of a file or of a span of it, as one channel at `sample_rate_hz`.

    The channels are averaged. A fault of the file that still lets it be read gives a Python
    warning.

    Args:
        path: anything libsndfile reads (wav, flac, ogg, mp3, ...), from 4 to 384 kHz, any number of
            channels.
        sample_rate_hz: rate of the result.
        offset: seconds at the start of the file to skip; formats that can seek don't read them.
        duration: seconds to read, None for all; fewer where the file ends.

    Returns:
        (samples,) float32, full scale at 1; (0,) for a file without samples.

    Raises:
        AudioError: the file is missing, not audio, ends before `offset`, or holds NaN or infinity.
        ValueError: `sample_rate_hz` is not positive, `offset` or `duration` negative.
    """
    return _told(read_audio(path, sample_rate_hz, offset, duration), path)


def read_audio(
    path: str | os.PathLike[str],
    sample_rate_hz: int = 16000,
    offset: float = 0.0,
    duration: float | None = None,
) -> Recording:
    """Reads as `load_audio` does, and returns the faults of the file instead of warning of them.

    Raises what `load_audio` raises.
    """
    if sample_rate_hz <= 0:
        raise ValueError(f"`sample_rate_hz` must be positive, but is {sample_rate_hz}.")
    for name, seconds in (("offset", offset), ("duration", duration)):
        if seconds is not None and seconds < 0:
            raise ValueError(f"`{name}` must not be negative, but is {seconds}.")
    with AudioReader(path) as reader:
        blocks = reader.blocks(_BLOCK_SECONDS * reader.rate_hz, offset, duration)
        pieces = [mono(block, path) for block in blocks]
        waveform = torch.cat(pieces) if pieces else torch.zeros(0)
        resampled = resample(waveform, reader.rate_hz, sample_rate_hz)
        return Recording(resampled, tuple(reader.warnings), reader.lost)


def print_warnings(path: str | os.PathLike[str], sentences: Iterable[str]) -> None:
    """Prints on stderr what is wrong with a file that is used nevertheless."""
    for sentence in sentences:
        print(f"Warning: {path}: {sentence}.", file=sys.stderr)


def mono(block: np.ndarray, path: str | os.PathLike[str]) -> Tensor:
    """Returns the mean of the channels of a block: (n, channels) float32 gives (n,) float32.

    Raises:
        AudioError: the block holds NaN or infinity.
    """
    waveform = torch.from_numpy(block).mean(dim=1)
    if not bool(torch.isfinite(waveform).all()):
        raise AudioError(path, "it holds NaN or infinity")
    return waveform


def _told(recording: Recording, path: str | os.PathLike[str]) -> Tensor:
    for sentence in recording.warnings:
        python_warnings.warn(f"{path}: {sentence}", stacklevel=3)
    return recording.waveform
