"""Headers of the other uncompressed containers: what they state and what is there."""

from __future__ import annotations

import struct

from asr_ascend.data.audio_files.chunks import UNCOMPRESSED, Sound, chunks, is_chunk
from asr_ascend.data.audio_files.parts import Content, Layout, Part


def w64_layout(content: Content) -> Layout:
    """Returns the layout of a Sony Wave64 file.

    Its chunks begin with a name of 16 bytes and a size of 8, which counts both.
    """
    place, per_second, per_frame = 40, 0.0, 0.0
    while place + 24 <= len(content):
        name = content[place : place + 4]
        size = int(struct.unpack("<Q", content[place + 16 : place + 24])[0])
        if name == b"fmt ":
            fields = struct.unpack("<HHIIHH", content[place + 24 : place + 40].ljust(16, b"\0"))
            per_second = fields[3]
            per_frame = fields[4] if fields[0] in UNCOMPRESSED else 0
        elif name == b"data":
            there = len(content) - place - 24
            stated = size - 24 if 24 <= size < 2**62 else 0
            if stated == 0 and there > 0:
                return Layout()  # libsndfile reads all that is there
            truncated, whole = Sound(place + 24, stated, there, per_second, per_frame).fault()
            return Layout((), truncated, whole=whole)
        if size < 24:
            break
        place += (size + 7) // 8 * 8
    return Layout()


def aiff_layout(content: Content) -> Layout:
    """Returns the layout of an AIFF or AIFF-C file."""
    per_second = per_frame = 0.0
    for name, body, size in chunks(content, 12, ">I"):
        if name == b"COMM" and size >= 18:
            channels, _, bits = struct.unpack(">HIH", content[body : body + 8])
            rate_hz = _extended(content[body + 8 : body + 18])
            compressed = size >= 22 and content[body + 18 : body + 22] not in (b"NONE", b"sowt")
            per_frame = 0.0 if compressed else channels * ((bits + 7) // 8)
            per_second = per_frame * rate_hz
        elif name == b"SSND" and size > 8:
            there = len(content) - body - 8
            sound = Sound(body + 8, size - 8, there, per_second, per_frame)
            truncated, whole = sound.fault()
            behind = body + size + size % 2
            more = None if is_chunk(content, behind, ">I") else sound.uncounted()
            return Layout((), truncated, more, whole=whole and more is None)
    return Layout()


def _extended(number: bytes) -> float:
    """A float of 80 bits (IEEE 754 extended), as AIFF has its rate."""
    exponent, mantissa = struct.unpack(">HQ", number.ljust(10, b"\0"))
    return float(mantissa) * 2.0 ** ((exponent & 0x7FFF) - 16383 - 63) if mantissa else 0.0


def caf_layout(content: Content) -> Layout:
    """Returns the layout of a Core Audio file.

    libsndfile refuses a file whose sound goes beyond the end, so the layout then has a mended
    header.
    """
    per_second = per_frame = 0.0
    for name, body, size in chunks(content, 8, ">q"):
        if name == b"desc" and len(content) >= body + 32:
            rate_hz, _, _, packet, in_packet = struct.unpack(">d4sIII", content[body : body + 24])
            per_frame = packet / in_packet if in_packet else 0.0
            per_second = per_frame * rate_hz
        elif name == b"data":
            there = len(content) - body
            unknown = size == -1 or (size <= 4 < there)  # 4 bytes count edits
            if not unknown and size <= there:
                return Layout()
            head = content[: body - 8] + struct.pack(">q", there)
            part = Part(body, len(content), head)
            if unknown:
                return Layout((part,))
            sound = Sound(body, size - 4, there - 4, per_second, per_frame)
            truncated, whole = sound.fault()
            return Layout((part,), truncated, whole=whole)
    return Layout()


# Bits of a sample by AU's encodings; those of the others vary with the sound.
_AU_BITS = {1: 8, 2: 8, 3: 16, 4: 24, 5: 32, 6: 32, 7: 64, 23: 4, 25: 3, 26: 5, 27: 8}


def au_layout(content: Content) -> Layout:
    """Returns the layout of an AU file; a size of 2^32 - 1 means that it isn't known."""
    if len(content) < 24:
        return Layout()
    body, stated, encoding, rate_hz, channels = struct.unpack(">5I", content[4:24])
    there = len(content) - body
    if there <= 0 or stated == 0xFFFFFFFF:
        return Layout()
    per_frame = _AU_BITS.get(encoding, 0) * channels / 8
    sound = Sound(body, stated, there, per_frame * rate_hz, per_frame)
    truncated, whole = sound.fault()
    parts: tuple[Part, ...] = ()
    if stated == 0 or stated > there:
        parts = (Part(8 + 4, len(content), content[:8] + b"\xff\xff\xff\xff"),)
    more = None if stated == 0 else sound.uncounted()
    return Layout(parts, truncated, more, whole=whole and more is None)


def nist_layout(content: Content) -> Layout:
    """Returns the layout of a NIST Sphere file, whose header is text."""
    lines = content[:1024].decode("latin-1").split("\n")
    values = {words[0]: words[2] for line in lines if len(words := line.split()) == 3}
    try:
        header, samples = int(lines[1]), int(values["sample_count"])
        size, rate_hz = int(values["sample_n_bytes"]), int(values["sample_rate"])
        per_frame = size * int(values.get("channel_count", "1"))
    except (ValueError, KeyError, IndexError):
        return Layout()
    if values.get("sample_coding", "pcm") not in ("pcm", "ulaw", "alaw", "mu-law"):
        return Layout()  # compressed
    there = len(content) - header
    sound = Sound(header, samples * per_frame, there, per_frame * rate_hz, per_frame)
    truncated, whole = sound.fault()
    return Layout((), truncated, whole=whole)


def voc_layout(content: Content) -> Layout:
    """Returns the layout of a Creative Voice file.

    It consists of blocks, each with a kind of 1 byte and a size of 3 bytes.
    """
    if len(content) < 26:
        return Layout()
    place = int(struct.unpack("<H", content[20:22])[0])
    while place + 4 <= len(content) and content[place] != 0:
        size = int.from_bytes(content[place + 1 : place + 4], "little")
        if place + 4 + size > len(content):
            there = len(content) - place - 4
            truncated = f"its last block states {size} bytes, but it has {there} bytes"
            return Layout((), truncated, whole=False)
        place += 4 + size
    return Layout()
