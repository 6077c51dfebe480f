"""Frames of MPEG audio (mp3, mp2): how many there are, and where reading must start again.

mpg123, which libsndfile reads with, guesses the length of a file without a Xing header from its
first frames, trusts the header of the first of several joined files for all of them, and stops at
damage of more than 1,024 bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from asr_ascend.data.audio_files.parts import Content, Layout, Part, span

# Source: ISO/IEC 11172-3, section 2.4.2.3, and 13818-3; MPEG 2.5 is an extension of Fraunhofer's.
_KILOBITS = {
    (1, 1): (0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (1, 2): (0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (1, 3): (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (2, 1): (0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (2, 2): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (2, 3): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_RATES_HZ = (44100, 48000, 32000)
_INFO = (b"Xing", b"Info")
_ID3V1 = 128
_SYNC_FRAMES = 3  # this many in a row are frames, and not bytes that look like one


@dataclass(frozen=True)
class _Frame:
    """The header of a frame: its bytes, what must be the same in all of a file, and the rest."""

    size: int
    stream: tuple[int, int, int, int]  # version, layer, rate, channels
    samples: int
    kilobits: int


@dataclass(frozen=True)
class _Run:
    """Frames that follow each other without a gap.

    Args:
        start, stop: their bytes.
        first: header of the first of them that holds sound.
        frames: that hold sound.
        info: frames that a Xing header at the start states; None: there is no such header.
        varies: whether their bit rates differ.
    """

    start: int
    stop: int
    first: _Frame
    frames: int
    info: int | None
    varies: bool = False

    @property
    def samples(self) -> int:
        return self.frames * self.first.samples


def is_frame(start: bytes) -> bool:
    """Returns whether these bytes (four at least) begin with a frame of layer II or III."""
    frame = _frame_at(start, 0)
    return frame is not None and frame.stream[1] != 1


def mpeg_layout(content: Content) -> Layout:
    """Returns the layout of an MPEG audio file.

    It has parts where mpg123 would not read all, and sentences where frames are missing.
    """
    runs, skipped, cut = _runs(content)
    if not runs:
        return Layout()
    truncated = "its last frame is cut off" if cut else None
    stated = [run.info for run in runs]
    # Damage takes frames away, and the header still counts them.
    if stated[0] is not None and all(info is None for info in stated[1:]):
        have = sum(run.frames for run in runs)
        if not skipped and have < stated[0] - 1:
            samples, rate_hz = runs[0].first.samples, runs[0].first.stream[2]
            pair = span(stated[0] * samples, have * samples, rate_hz, "samples")
            truncated = f"its header states {pair[0]}, but it has {pair[1]}"
    damaged = f"{skipped} of its bytes belong to no frame" if skipped else None
    whole = not (truncated or damaged)
    # mpg123 takes tags behind the last frame for sound where no header counts the frames.
    tail = len(content) > runs[0].stop and runs[0].info is None
    if len(runs) == 1 and not tail and not _needs_header(runs[0]):
        return Layout((), truncated, damaged, whole=whole)
    parts = tuple(_part(content, run) for run in runs)
    return Layout(parts, truncated, damaged, whole=whole)


def _needs_header(run: _Run) -> bool:
    return run.varies if run.info is None else abs(run.info - run.frames) > 1


def _part(content: Content, run: _Run) -> Part:
    if not _needs_header(run):
        return Part(run.start, run.stop)
    start = run.start
    if run.info is not None:
        info = _frame_at(content, start)
        start += info.size if info else 0
    if start >= run.stop:
        return Part(start, run.stop)
    return Part(start, run.stop, _xing(content[start : start + 4], run.frames))


def _xing(header: bytes, frames: int) -> bytes:
    """A frame without sound that states how many follow it."""
    # No checksum, 64 kbit/s, no padding; in a frame of that size the fields fit for every stream.
    kilobits = _KILOBITS[(1 if header[1] & 8 else 2, 3)].index(64)
    made = bytes([header[0], header[1] | 1, kilobits << 4 | header[2] & 0x0C, header[3]])
    frame = _frame_at(made, 0)
    if frame is None:
        return b""
    content = made + bytes(_side_bytes(frame)) + b"Xing" + struct.pack(">II", 1, frames)
    return content.ljust(frame.size, b"\0")


def _runs(content: Content) -> tuple[list[_Run], int, bool]:
    """Runs of frames, bytes that belong to none or to a tag, and whether the last one is cut."""
    runs: list[_Run] = []
    run: _Run | None = None
    skipped, place, size = 0, 0, len(content)
    cut = False
    while place < size:
        frame = _frame_at(content, place)
        if frame is not None and run is not None and place + frame.size > size:
            cut = frame.stream[:3] == run.first.stream[:3]
            break
        if frame is not None and (run is not None or in_sync(content, place)):
            info = _stated_frames(content, place, frame)
            if run is None or info is not None or frame.stream[:3] != run.first.stream[:3]:
                if run is not None:
                    runs.append(run)
                held = 0 if info is not None else 1
                run = _Run(place, place + frame.size, frame, held, info)
            elif run.frames == 0:
                run = replace(run, first=frame, frames=1, stop=place + frame.size)
            else:
                varies = run.varies or frame.kilobits != run.first.kilobits
                run = replace(run, frames=run.frames + 1, varies=varies, stop=place + frame.size)
            place += frame.size
            continue
        tag = _tag_size(content, place)
        if tag:
            place += tag
            continue
        if run is not None:
            runs.append(run)
            run = None
        following = _next_frame(content, place + 1)
        if following is None:
            # What is behind the last frame may be a tag of a kind that isn't known.
            break
        skipped += following - place
        place = following
    if run is not None:
        runs.append(run)
    return [found for found in runs if found.frames], skipped if runs else 0, cut


def _next_frame(content: Content, place: int) -> int | None:
    while (found := content.find(b"\xff", place)) >= 0:
        if in_sync(content, found):
            return found
        place = found + 1
    return None


def in_sync(content: Content, place: int) -> bool:
    """Returns whether three frames of one stream follow each other from `place` on.

    Fewer are enough where the content or a tag ends them.
    """
    first = _frame_at(content, place)
    frame = first
    for _ in range(_SYNC_FRAMES - 1):
        if frame is None or first is None:
            return False
        place += frame.size
        if place >= len(content) or content[place : place + 3] in (b"TAG", b"ID3", b"APE"):
            return place <= len(content)
        frame = _frame_at(content, place)
        if frame is None or frame.stream[:3] != first.stream[:3]:
            return False
    return True


def _tag_size(content: Content, place: int) -> int:
    """Bytes of the tag at `place`, 0 where there is none."""
    head = content[place : place + 32]
    if head[:3] == b"ID3" and len(head) >= 10 and max(head[6:10]) < 0x80:
        size = sum(byte << shift for byte, shift in zip(head[6:10], (21, 14, 7, 0), strict=True))
        return 10 + size + (10 if head[5] & 0x10 else 0)
    if head[:3] == b"TAG" and len(content) - place >= _ID3V1:
        return _ID3V1
    if head[:8] == b"APETAGEX" and len(head) == 32:
        footer = not head[23] & 0x20
        return 32 if footer else 32 + int(struct.unpack("<I", head[12:16])[0])
    if not any(head):  # padding
        stop = place
        while stop < len(content) and not any(content[stop : stop + 4096]):
            stop += 4096
        return len(content) - place if stop >= len(content) else 0
    return 0


def _stated_frames(content: Content, place: int, frame: _Frame) -> int | None:
    """What a Xing or VBRI header in this frame states, -1 for nothing; None: there is none."""
    found = place + 4 + _side_bytes(frame)
    if content[found : found + 4] in _INFO:
        flags = content[found + 4 : found + 12]
        has_frames = len(flags) == 8 and flags[3] & 1
        return int(struct.unpack(">I", flags[4:])[0]) if has_frames else -1
    if content[place + 36 : place + 40] == b"VBRI" and place + 54 <= len(content):
        return int(struct.unpack(">I", content[place + 50 : place + 54])[0])
    return None


def _side_bytes(frame: _Frame) -> int:
    """Bytes of a frame's side information, behind which a Xing header stands."""
    mono = frame.stream[3] == 1
    return (17 if mono else 32) if frame.stream[0] == 3 else (9 if mono else 17)


def _frame_at(content: Content, place: int) -> _Frame | None:
    header = content[place : place + 4]
    if len(header) < 4 or header[0] != 0xFF or header[1] & 0xE0 != 0xE0:
        return None
    version, layer = (header[1] >> 3) & 3, 4 - ((header[1] >> 1) & 3)
    rate, kilobits = (header[2] >> 2) & 3, header[2] >> 4
    if version == 1 or layer == 4 or rate == 3 or kilobits in (0, 15):
        return None
    generation = 1 if version == 3 else 2
    rate_hz = _RATES_HZ[rate] >> {3: 0, 2: 1, 0: 2}[version]
    bits = 1000 * _KILOBITS[(generation, layer)][kilobits]
    padding = (header[2] >> 1) & 1
    samples = 384 if layer == 1 else 576 if layer == 3 and generation == 2 else 1152
    unit = 4 if layer == 1 else 1
    size = (samples // 8 // unit * bits // rate_hz + padding) * unit
    channels = 1 if header[3] >> 6 == 3 else 2
    return _Frame(size, (version, layer, rate_hz, channels), samples, kilobits)
