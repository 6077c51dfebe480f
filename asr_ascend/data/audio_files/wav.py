"""Headers of wav files: what they state, what is there, and how to mend them."""

from __future__ import annotations

import struct

from asr_ascend.data.audio_files.chunks import UNCOMPRESSED, Sound, chunks, is_chunk
from asr_ascend.data.audio_files.parts import Content, Layout, Part


def wav_layout(content: Content) -> Layout:
    """Returns the layout of RIFF, RIFX and RF64 files, and of several joined in one file."""
    layouts: list[Layout] = []
    starts = [0]
    while (found := _wav_at(content, starts[-1])) is not None:
        layout, stop = found
        layouts.append(layout)
        if stop is None:
            break
        starts.append(stop)
    if not layouts:
        return Layout()
    if len(layouts) == 1:
        return layouts[0]
    stops = [*starts[1:], len(content)]
    parts = [
        layout.parts[0] if layout.parts else Part(start, stop)
        for layout, start, stop in zip(layouts, starts, stops, strict=False)
    ]
    last = layouts[-1]
    rate = next((layout.sample_rate for layout in layouts if layout.sample_rate), None)
    return Layout(tuple(parts), last.truncated, None, rate, last.whole)


def _wav_at(content: Content, start: int) -> tuple[Layout, int | None] | None:
    """Layout of the wav file at `start`, and where the next one begins, if one does."""
    magic = content[start : start + 4]
    if content[start + 8 : start + 12] != b"WAVE":
        return None
    order = ">" if magic == b"RIFX" else "<"
    fields: tuple[int, ...] = ()
    long_size: int | None = None
    place = start + 12
    for name, body, size in chunks(content, place, f"{order}I"):
        if name == b"fmt " and size >= 16:
            fields = struct.unpack(f"{order}HHIIHH", content[body : body + 16].ljust(16, b"\0"))
        elif name == b"ds64" and size >= 16:
            long_size = int(struct.unpack("<Q", content[body + 8 : body + 16])[0])
        elif name == b"data":
            stated = size if long_size is None or size < 0xFFFFFFFF else long_size
            return _wav_sound(content, start, body, stated, fields)
    return Layout(sample_rate=_rate_fault(fields)), None


def _wav_sound(
    content: Content, start: int, body: int, stated: int, fields: tuple[int, ...]
) -> tuple[Layout, int | None]:
    rate_fault = _rate_fault(fields)
    kind, _, rate_hz, bytes_per_second, frame_bytes, _ = fields or (0,) * 6
    known = bool(bytes_per_second) and not rate_fault
    frame = frame_bytes if known and kind in UNCOMPRESSED and rate_hz else 0
    sound = Sound(body, stated, len(content) - body, bytes_per_second if known else 0, frame)
    behind = body + stated + stated % 2
    following = _next_wav(content, behind)
    if stated == 0 and (sound.there == 0 or is_chunk(content, body)):
        return Layout(sample_rate=rate_fault), following
    if stated == 0:
        # libsndfile takes a size beyond the file's end for the file's end.
        riff = content[start:body]
        size = struct.pack(">I" if riff[:4] == b"RIFX" else "<I", 0xFFFFFFFF)
        head = b"RIFF" if riff[:4] == b"RF64" else riff[:4]
        head += (
            size + (b"WAVE" + riff[12:-4] if riff[:4] != b"RF64" else _without_ds64(riff)) + size
        )
        part = Part(body, len(content), head)
        truncated, whole = sound.fault()
        return Layout((part,), truncated, None, rate_fault, whole), None
    truncated, whole = sound.fault()
    more = None
    if following is None and not is_chunk(content, behind):
        more = sound.uncounted()
    return Layout((), truncated, more, rate_fault, whole and more is None), following


def _without_ds64(riff: bytes) -> bytes:
    """The chunks of an RF64 header from WAVE on, without the one that holds the long sizes."""
    kept = b"WAVE"
    for name, body, size in chunks(riff, 12, "<I"):
        if name not in (b"ds64", b"data"):
            kept += riff[body - 8 : body + size + size % 2]
    return kept + b"data"


def _next_wav(content: Content, place: int) -> int | None:
    magic, form = content[place : place + 4], content[place + 8 : place + 12]
    return place if magic in (b"RIFF", b"RIFX", b"RF64") and form == b"WAVE" else None


def _rate_fault(fields: tuple[int, ...]) -> str | None:
    if not fields:
        return None
    kind, channels, rate_hz, bytes_per_second, frame_bytes, bits = fields
    if kind not in UNCOMPRESSED or not frame_bytes:
        return None
    if frame_bytes != channels * ((bits + 7) // 8):
        return f"its header states {frame_bytes} bytes for {channels} channels of {bits} bits each"
    if bytes_per_second != rate_hz * frame_bytes:
        return (
            f"its header states {rate_hz} Hz, but {bytes_per_second} bytes a second, which is "
            f"{bytes_per_second / frame_bytes:g} Hz"
        )
    return None
