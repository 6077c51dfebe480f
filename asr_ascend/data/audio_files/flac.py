"""FLAC streams: where in a file each of several begins."""

from __future__ import annotations

import re

from asr_ascend.data.audio_files.parts import Content, Layout, Part

# The marker, then STREAMINFO, which is the first block and 34 bytes long (RFC 9639, section 8).
_START = re.compile(rb"fLaC[\x00\x80]\x00\x00\x22")


def flac_layout(content: Content) -> Layout:
    """Returns the layout of a FLAC file: one part for each stream, none where there is only one."""
    starts = [found.start() for found in _START.finditer(content)]
    if len(starts) < 2 or starts[0] != 0:
        return Layout()
    stops = [*starts[1:], len(content)]
    return Layout(tuple(Part(start, stop) for start, stop in zip(starts, stops, strict=True)))
