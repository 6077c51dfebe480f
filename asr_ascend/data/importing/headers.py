"""What wav and Ogg headers state, where libsndfile passes over it silently."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

# From here on a size is what programs write that don't know it yet (ffmpeg, sox into a pipe).
_UNKNOWN_SIZE = 0x7FFF0000
_LARGEST_PAGE = 27 + 255 + 255 * 255
# PCM, float, and extensible around either: their bytes per second follow from the other fields.
_UNCOMPRESSED = (1, 3, 0xFFFE)


@dataclass(frozen=True)
class HeaderFaults:
    """Sentences about a header, or None: `truncated` and `sample_rate` as in `problems`."""

    truncated: str | None = None
    sample_rate: str | None = None


def header_faults(path: Path) -> HeaderFaults:
    """Where the header of a wav or Ogg file contradicts its length or itself.

    Other formats and headers that can't be followed give none: reading tells what they are.
    """
    with path.open("rb") as file:
        start = file.read(12)
        if start[:4] in (b"RIFF", b"RIFX") and start[8:12] == b"WAVE":
            return _wav_faults(file, "<" if start[:4] == b"RIFF" else ">", path.stat().st_size)
        if start[:4] == b"OggS":
            return _ogg_faults(file, path.stat().st_size)
    return HeaderFaults()


def _wav_faults(file: BinaryIO, order: str, file_size: int) -> HeaderFaults:
    sample_rate: str | None = None
    bytes_per_second = 0
    while len(head := file.read(8)) == 8:
        name, size = head[:4], struct.unpack(f"{order}I", head[4:])[0]
        if name == b"fmt ":
            fields = file.read(size + size % 2)
            if len(fields) < 16:
                break
            _, _, _, bytes_per_second, _, _ = struct.unpack(f"{order}HHIIHH", fields[:16])
            sample_rate = _rate_fault(struct.unpack(f"{order}HHIIHH", fields[:16]))
        elif name == b"data":
            there = file_size - file.tell()
            if there < size < _UNKNOWN_SIZE:
                stated = f"{size} bytes"
                if bytes_per_second and not sample_rate:
                    stated = f"{size / bytes_per_second:.2f} s"
                    found = f"{there / bytes_per_second:.2f} s"
                else:
                    found = f"{there} bytes"
                return HeaderFaults(f"its header states {stated}, but it has {found}", sample_rate)
            break
        else:
            file.seek(size + size % 2, 1)
    return HeaderFaults(None, sample_rate)


def _rate_fault(fields: tuple[int, ...]) -> str | None:
    kind, channels, rate_hz, bytes_per_second, frame_bytes, bits = fields
    if kind not in _UNCOMPRESSED or not frame_bytes:
        return None
    if frame_bytes != channels * ((bits + 7) // 8):
        return f"its header states {frame_bytes} bytes for {channels} channels of {bits} bits each"
    if bytes_per_second != rate_hz * frame_bytes:
        return (
            f"its header states {rate_hz} Hz, but {bytes_per_second} bytes a second, which is "
            f"{bytes_per_second / frame_bytes:g} Hz"
        )
    return None


def _ogg_faults(file: BinaryIO, file_size: int) -> HeaderFaults:
    file.seek(max(0, file_size - 2 * _LARGEST_PAGE))
    tail = file.read()
    last = tail.rfind(b"OggS")
    table = tail[last + 27 : last + 27 + tail[last + 26]] if last + 27 <= len(tail) else b""
    if last < 0 or not table or last + 27 + len(table) + sum(table) > len(tail):
        return HeaderFaults("its last Ogg page is cut off")
    # The mark of a stream's last page proves nothing: a third of real files lack it.
    return HeaderFaults()
