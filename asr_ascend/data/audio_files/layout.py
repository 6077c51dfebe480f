"""What a file holds by its own account: parts that a decoder must be handed one by one, and faults.

libsndfile reads the first of several recordings in one file, trusts a length that a recorder could
not yet know, and says nothing of the end that a header promises and the file lacks.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path

from asr_ascend.data.audio_files import flac, headers, mpeg, ogg, wav
from asr_ascend.data.audio_files.parts import Layout


def find_layout(path: Path) -> Layout:
    """Returns the layout of a file, empty for a file of an unknown kind.

    Raises:
        OSError: the file can't be opened.
    """
    if path.stat().st_size == 0:
        return Layout()
    with path.open("rb") as file:
        kind = _kind(file.read(16))
        if kind is None:
            return Layout()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return kind[1](content)


_KINDS: dict[bytes, tuple[str, Callable[[mmap.mmap], Layout]]] = {
    b"RIFF": ("WAV", wav.wav_layout),
    b"RIFX": ("WAV", wav.wav_layout),
    b"RF64": ("WAV", wav.wav_layout),
    b"riff\x2e\x91\xcf\x11": ("W64", headers.w64_layout),
    b"FORM": ("AIFF", headers.aiff_layout),
    b"caff": ("CAF", headers.caf_layout),
    b".snd": ("AU", headers.au_layout),
    b"NIST_1A\n": ("NIST", headers.nist_layout),
    b"Creative Voice F": ("VOC", headers.voc_layout),
    b"OggS": ("OGG", ogg.ogg_layout),
    b"fLaC": ("FLAC", flac.flac_layout),
    b"ID3": ("MP3", mpeg.mpeg_layout),
}


def _kind(start: bytes) -> tuple[str, Callable[[mmap.mmap], Layout]] | None:
    for magic, kind in _KINDS.items():
        if start.startswith(magic):
            return kind
    return ("MP3", mpeg.mpeg_layout) if mpeg.is_frame(start) else None


def recognise(start: bytes) -> str | None:
    """Returns the kind of audio file that begins with `start` (16 bytes), or None."""
    kind = _kind(start)
    return None if kind is None else kind[0]
