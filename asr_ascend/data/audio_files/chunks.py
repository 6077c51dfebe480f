"""Chunks of which containers are made, and the one that holds the samples."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from asr_ascend.data.audio_files.parts import Content, span

# PCM, float, and extensible around either: their bytes per second follow from the other fields.
UNCOMPRESSED = (1, 3, 0xFFFE)
# Sizes from here on are what programs write that don't know it yet: 2,000,000,000, 2^31 - 1 less
# what comes before, 2^32 - 1. From the second on they come from pipes (ffmpeg, sox, arecord).
_PLACEHOLDER = 0x77000000
_FROM_A_PIPE = 0x7FFF0000
_WORTH_TELLING_SECONDS = 1.0


@dataclass(frozen=True)
class Sound:
    """The chunk of the samples.

    Args:
        place: of its first byte.
        stated: bytes by its header.
        there: bytes from `place` to the file's end.
        bytes_per_second: 0 where it isn't known.
        bytes_per_frame: of all channels' samples at one time; 0 where it isn't known.
    """

    place: int
    stated: int
    there: int
    bytes_per_second: float = 0.0
    bytes_per_frame: float = 0.0

    @property
    def is_placeholder(self) -> bool:
        """Whether the size is one that programs write before they know it."""
        return self.stated >= _PLACEHOLDER

    def fault(self) -> tuple[str | None, bool]:
        """Returns a sentence if the header's size is wrong, and whether all of the recording is
        there.
        """
        if self.stated == 0 and self.there > 0:
            return (
                f"its header states no sound, but {self._found()} follow; all of it is read",
                True,
            )
        if self.stated <= self.there or self.stated >= _FROM_A_PIPE:
            return None, True
        if self.is_placeholder:
            return (
                f"its header states {self.stated} bytes, as a recorder writes before it knows, but "
                f"{self._found()} are there; all of it is read"
            ), True
        stated, found = self._pair(self.stated, self.there)
        return f"its header states {stated}, but it has {found}", False

    def uncounted(self) -> str | None:
        """Returns a sentence if at least one second of sound follows what the header counts."""
        rest = self.there - self.stated
        if not self.bytes_per_second or rest < _WORTH_TELLING_SECONDS * self.bytes_per_second:
            return None
        seconds = rest / self.bytes_per_second
        return f"{seconds:.2f} s follow on the sound that its header counts, and are not read"

    def _found(self) -> str:
        if self.bytes_per_second:
            return f"{self.there / self.bytes_per_second:.2f} s"
        return f"{self.there} bytes"

    def _pair(self, stated: int, found: int) -> tuple[str, str]:
        if not self.bytes_per_frame or not self.bytes_per_second:
            return span(stated, found, self.bytes_per_second, "bytes")
        rate = self.bytes_per_second / self.bytes_per_frame
        frames = stated // self.bytes_per_frame, found // self.bytes_per_frame
        return span(*frames, rate, "samples")


def chunks(content: Content, place: int, size_format: str) -> Iterator[tuple[bytes, int, int]]:
    """Yields name, place of the first byte and size in bytes of each chunk.

    Stops where the next chunk's header lies beyond the end, or a size is negative.
    """
    width = struct.calcsize(size_format)
    while place + 4 + width <= len(content):
        size = int(struct.unpack(size_format, content[place + 4 : place + 4 + width])[0])
        body = place + 4 + width
        yield content[place : place + 4], body, size
        if size < 0:
            return
        place = body + size + (size % 2 if width == 4 else 0)


def is_chunk(content: Content, place: int, size_format: str = "<I") -> bool:
    """Returns whether the bytes at `place` can be a chunk: a printable name, a size that fits."""
    name, size = content[place : place + 4], content[place + 4 : place + 8]
    if len(size) < 4 or not all(0x20 <= byte < 0x7F for byte in name):
        return False
    return int(struct.unpack(size_format, size)[0]) <= len(content) - place - 8
