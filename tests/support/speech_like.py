"""Signals with the spectrum of speech where checks look at it, and files in odd containers."""

import struct
from pathlib import Path

import numpy as np
import soundfile


def babble(seconds: float = 1.0, rate_hz: int = 16000, seed: int = 0) -> np.ndarray:
    """Noise that falls off by 6 dB an octave from 300 Hz, its peak at 0.5, with pauses."""
    count = round(seconds * rate_hz)
    draw = np.random.default_rng(seed)
    spectrum = np.fft.rfft(draw.standard_normal(count))
    spectrum /= np.maximum(np.fft.rfftfreq(count, 1 / rate_hz), 300)
    wave = np.fft.irfft(spectrum, count) * np.abs(np.sin(np.arange(count) * 12 / rate_hz))
    return 0.5 * wave / np.abs(wave).max()


def write_wav(path: Path, seconds: float = 1.0, rate_hz: int = 16000, **options: str) -> Path:
    """A file of `babble`, its folder made if need be; `options` go to soundfile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, babble(seconds, rate_hz), rate_hz, **options)
    return path


def patch_wav(path: Path, offset: int, value: int) -> None:
    """Overwrites a 32-bit field of a wav file: 4 RIFF size, 24 rate, 28 bytes a second, 40 data."""
    content = bytearray(path.read_bytes())
    content[offset : offset + 4] = struct.pack("<I", value)
    path.write_bytes(content)


def lay(folder: Path, files: dict[str, str | None]) -> Path:
    """Writes text files by relative path; those without content get 0.1 s of sound."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            write_wav(path, 0.1)
        else:
            path.write_text(content, encoding="utf-8")
    return folder
