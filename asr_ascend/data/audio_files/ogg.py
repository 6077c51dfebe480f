"""Ogg pages: where in a file each of several chained streams begins, and whether it is whole."""

from __future__ import annotations

from asr_ascend.data.audio_files.parts import Content, Layout, Part

# Source: RFC 3533, section 6.
_MARK = b"OggS"
_HEADER = 27
_FIRST_PAGE = 2


def ogg_layout(content: Content) -> Layout:
    """Returns the layout of an Ogg file: one part for each of several chained streams."""
    starts: list[int] = []
    skipped = 0
    truncated = None
    # Streams side by side (sound and pictures) begin together: such pages are one beginning.
    beginning = False
    place = 0
    while place < len(content):
        size = _page_size(content, place)
        if size is None:
            found = content.find(_MARK, place + 1)
            skipped += (found if found >= 0 else len(content)) - place
            place = found if found >= 0 else len(content)
            continue
        if place + size > len(content):
            following = content.find(_MARK, place + 1)
            if following < 0:
                truncated = "its last Ogg page is cut off"
                break
            skipped += following - place
            place = following
            continue
        first = bool(content[place + 5] & _FIRST_PAGE)
        if first and not beginning:
            starts.append(place)
        beginning = first
        place += size
    # The mark of a stream's last page proves nothing: a third of real files lack it.
    parts: tuple[Part, ...] = ()
    if len(starts) > 1:
        stops = [*starts[1:], len(content)]
        parts = tuple(Part(start, stop) for start, stop in zip(starts, stops, strict=True))
    damaged = f"{skipped} of its bytes belong to no Ogg page" if skipped else None
    if damaged and not truncated and content.rfind(_MARK) + _HEADER > len(content):
        return Layout(parts, "its last Ogg page is cut off", None, whole=False)
    return Layout(parts, truncated, damaged, whole=not (truncated or damaged))


def _page_size(content: Content, place: int) -> int | None:
    """Bytes of the page at `place`; None where there is none."""
    if content[place : place + 4] != _MARK or place + _HEADER > len(content):
        return None
    segments = content[place + 26]
    table = content[place + _HEADER : place + _HEADER + segments]
    return _HEADER + segments + sum(table)
