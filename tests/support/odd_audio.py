"""Audio files as recorders, joiners and faulty disks leave them, made by soundfile and by hand."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import soundfile

from tests.support.speech_like import babble

RATE_HZ = 16000


def encoded(seconds: float = 2.0, form: str = "WAV", subtype: str | None = None) -> bytes:
    """`babble` at 16 kHz in a container."""
    stream = io.BytesIO()
    soundfile.write(stream, babble(seconds), RATE_HZ, format=form, subtype=subtype)
    return stream.getvalue()


def with_field(content: bytes, place: int, value: int, form: str = "<I") -> bytes:
    """`content` with a number overwritten."""
    field = struct.pack(form, value)
    return content[:place] + field + content[place + len(field) :]


def with_hole(content: bytes, place: float, size: int) -> bytes:
    """`content` with `size` zeros from a part of its length on."""
    first = int(place * len(content))
    return content[:first] + bytes(size) + content[first + size :]


def mp3_without_header(seconds: float = 20.0) -> bytes:
    """An mp3 of variable bit rate, hissing in its second half, whose Xing header was taken off."""
    draws = np.random.default_rng(0)
    count = round(seconds * RATE_HZ)
    wave = 0.2 * np.sin(2 * np.pi * 440 * np.arange(count) / RATE_HZ)
    wave[count // 2 :] += 0.3 * draws.standard_normal(count - count // 2)
    stream = io.BytesIO()
    options = {"bitrate_mode": "VARIABLE", "compression_level": 0.5}
    soundfile.write(stream, wave, RATE_HZ, format="MP3", subtype="MPEG_LAYER_III", **options)
    content = stream.getvalue()
    first = content.find(b"\xff\xf3")
    assert b"Xing" in content[first : first + 64]
    return content[content.find(b"\xff\xf3", first + 2) :]


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
