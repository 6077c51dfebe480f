"""Pieces of a file that one decoder can read, and what is wrong with the whole."""

from __future__ import annotations

import io
import mmap
import os
from dataclasses import dataclass, field
from pathlib import Path

# Behind a mmap or as plain bytes: both are sliced and searched alike.
Content = mmap.mmap | bytes


@dataclass(frozen=True)
class Part:
    """A span of a file's bytes that is a recording of its own.

    Args:
        start, stop: its bytes.
        head: bytes to be read before them: a header mended, or one that was missing.
    """

    start: int
    stop: int
    head: bytes = b""


@dataclass(frozen=True)
class Layout:
    """What is known of a file before its samples are decoded.

    Args:
        parts: to be read one after the other; none: the file as it is.
        truncated: a sentence, if the file ends before its header says, or the header is unfinished.
        damaged: a sentence, if bytes within it belong to no recording.
        sample_rate: a sentence, if the header contradicts itself about the sampling rate.
        whole: whether all that was recorded is there as far as can be known, `truncated` or not: so
            it is where only a header is unfinished.
    """

    parts: tuple[Part, ...] = ()
    truncated: str | None = None
    damaged: str | None = None
    sample_rate: str | None = None
    whole: bool = field(default=True)


class PartFile(io.RawIOBase):
    """A part of a file, read as if it were a file."""

    def __init__(self, path: Path, part: Part) -> None:
        super().__init__()
        self._file = path.open("rb")
        self._part = part
        self._size = len(part.head) + part.stop - part.start
        self._place = 0

    def readable(self) -> bool:
        """Returns True: the part can be read."""
        return True

    def seekable(self) -> bool:
        """Returns True: the part can be read from any place on."""
        return True

    def tell(self) -> int:
        """Returns the place in bytes from the start of the part's head."""
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves to a place in bytes, as `io.IOBase.seek` does, and returns the new place."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        self._place = max(0, base + offset)
        return self._place

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        """Reads bytes into `buffer` and returns their number, 0 at the end."""
        view = memoryview(buffer).cast("B")
        data = self._bytes(min(len(view), max(0, self._size - self._place)))
        view[: len(data)] = data
        self._place += len(data)
        return len(data)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
        super().close()

    def _bytes(self, count: int) -> bytes:
        head = self._part.head[self._place : self._place + count]
        if len(head) == count:
            return head
        within = max(0, self._place - len(self._part.head))
        self._file.seek(self._part.start + within)
        return head + self._file.read(count - len(head))


def span(stated: float, found: float, rate: float | None, unit: str) -> tuple[str, str]:
    """Returns two lengths in words that differ: in seconds, or in `unit` if seconds look alike.

    Returns two lengths in words that differ: in seconds, or in `unit` where seconds look alike.

    Args:
        stated, found: lengths in `unit`.
        rate: of `unit` in a second, None where it isn't known.
        unit: "samples" or "bytes".
    """
    if rate:
        pair = f"{stated / rate:.2f} s", f"{found / rate:.2f} s"
        if pair[0] != pair[1]:
            return pair
    return f"{stated:.0f} {unit}", f"{found:.0f} {unit}"
