"""Speech on standard input, as raw samples or in any container, in pieces as it comes."""

from __future__ import annotations

import io
import shutil
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import soundfile
import torch
from torch import Tensor

from asr_ascend.config.keys import ConfigError
from asr_ascend.data.audio import AudioError, AudioReader, StreamResampler, mono
from asr_ascend.data.audio_files import mpeg
from asr_ascend.data.audio_files.chunks import Sound
from asr_ascend.data.audio_files.layout import recognise
from asr_ascend.data.audio_files.reader import RATES_HZ

NAME = "standard input"
_BLOCK_MS = 100
_START_BYTES = 16
_MPEG_BYTES = 8192
_RAW = {
    (1, 8): "PCM_U8",
    (1, 16): "PCM_16",
    (1, 24): "PCM_24",
    (1, 32): "PCM_32",
    (3, 32): "FLOAT",
    (3, 64): "DOUBLE",
    (6, 8): "ALAW",
    (7, 8): "ULAW",
}


@dataclass(frozen=True)
class _WavHeader:
    """A wav header whose samples can be decoded block by block."""

    rate_hz: int
    channels: int
    subtype: str
    endian: str
    frame_bytes: int
    stated: int | None  # bytes; None where the writer couldn't know


class StdinPieces:
    """Pieces of about 100 ms of what a binary stream holds.

    Raw samples are mono, 16 bits, little-endian. A container is recognised by its first bytes:
    plain wav is decoded as it comes, every other one is read to its end first.

    Args:
        stream: to read.
        sample_rate_hz: of raw samples.
        to_hz: of the pieces.

    Attributes:
        seconds: read so far.
        warnings: what is wrong with the stream, a sentence each, once it was read.
        lost: whether a part of it is known to be missing, once it was read.
    """

    def __init__(self, stream: BinaryIO, sample_rate_hz: int, to_hz: int) -> None:
        self.stream = stream
        self.to_hz = to_hz
        self.sample_rate_hz = sample_rate_hz
        self.seconds = 0.0
        self.warnings: list[str] = []
        self.lost = False

    def __iter__(self) -> Iterator[Tensor]:
        start = self._read(_START_BYTES)
        kind = recognise(start)
        if kind == "MP3" and not start.startswith(b"ID3"):
            # Two bytes that a raw sample may have as well.
            start += self._read(_MPEG_BYTES)
            kind = kind if mpeg.in_sync(start, 0) else None
        if kind is None:
            return self._raw(start)
        if kind == "WAV":
            header, start = self._wav_header(start)
            if header is not None:
                return self._wav(header, start)
        return self._whole(start)

    def _read(self, count: int) -> bytes:
        """The next `count` bytes, fewer where the stream ends."""
        pieces = b""
        while len(pieces) < count and (data := self.stream.read(count - len(pieces))):
            pieces += data
        return pieces

    def _raw(self, start: bytes) -> Iterator[Tensor]:
        resampler = StreamResampler(self.sample_rate_hz, self.to_hz)
        size = 2 * (self.sample_rate_hz * _BLOCK_MS // 1000)
        rest = start
        while (data := self.stream.read(size)) or len(rest) > 1:
            data = rest + data
            whole = len(data) // 2 * 2
            rest = data[whole:]
            samples = np.frombuffer(data[:whole], dtype="<i2").astype(np.float32) / 32768
            self.seconds += len(samples) / self.sample_rate_hz
            yield resampler.push(torch.from_numpy(samples))
        if rest:
            raise ConfigError("The samples on stdin must be 16 bits each, but end in half of one.")
        yield resampler.push(torch.zeros(0), final=True)

    def _wav_header(self, start: bytes) -> tuple[_WavHeader | None, bytes]:
        """The header, None where its samples are compressed, and what was read of the stream."""
        order, endian = (">", "BIG") if start[:4] == b"RIFX" else ("<", "LITTLE")
        seen, place = start, 12
        form = (0, 0, 0, 0)
        long_size: int | None = None
        while True:
            seen += self._read(place + 8 - len(seen))
            if len(seen) < place + 8:
                return None, seen
            name = seen[place : place + 4]
            size = int(struct.unpack(f"{order}I", seen[place + 4 : place + 8])[0])
            place += 8
            if name == b"data":
                break
            seen += self._read(place + size + size % 2 - len(seen))
            body = seen[place : place + size]
            place += size + size % 2
            if name == b"fmt " and len(body) >= 16:
                kind, channels, rate_hz, _, _, bits = struct.unpack(f"{order}HHIIHH", body[:16])
                if kind == 0xFFFE and len(body) >= 26:
                    kind = struct.unpack(f"{order}H", body[24:26])[0]
                form = kind, channels, rate_hz, bits
            elif name == b"ds64" and len(body) >= 16:
                long_size = int(struct.unpack("<Q", body[8:16])[0])
        subtype = _RAW.get((form[0], form[3]))
        if subtype is None or form[1] == 0:
            return None, seen
        stated = long_size if long_size is not None and size == 0xFFFFFFFF else size
        known = stated if stated > 0 and not Sound(0, stated, 0).is_placeholder else None
        frame_bytes = form[1] * form[3] // 8
        return _WavHeader(form[2], form[1], subtype, endian, frame_bytes, known), seen[place:]

    def _wav(self, header: _WavHeader, rest: bytes) -> Iterator[Tensor]:
        low, high = RATES_HZ
        rate_hz = header.rate_hz
        if not low <= rate_hz <= high:
            reason = f"its sampling rate must be in [{low}, {high}] Hz, but is {rate_hz} Hz"
            raise AudioError(NAME, reason)
        resampler = StreamResampler(rate_hz, self.to_hz)
        size = header.frame_bytes * max(1, rate_hz * _BLOCK_MS // 1000)
        there = 0
        while data := rest + self.stream.read(max(1, size - len(rest))):
            if header.stated is not None:
                data = data[: header.stated - there]
            whole = len(data) // header.frame_bytes * header.frame_bytes
            if not data or (whole == 0 and data == rest):
                break  # all that the header counts, or half a sample at the end
            rest = data[whole:]
            there += whole
            self.seconds += whole / header.frame_bytes / rate_hz
            if whole:
                yield resampler.push(mono(_decode(data[:whole], header), NAME))
        yield resampler.push(torch.zeros(0), final=True)
        if header.stated is not None:
            per_second = header.frame_bytes * rate_hz
            fault, whole_sound = Sound(
                0, header.stated, there, per_second, header.frame_bytes
            ).fault()
            self.warnings += [fault] if fault else []
            self.lost = not whole_sound

    def _whole(self, start: bytes) -> Iterator[Tensor]:
        with tempfile.TemporaryDirectory(prefix="asr_ascend-") as folder:
            path = Path(folder) / "stdin"
            with path.open("wb") as file:
                file.write(start)
                shutil.copyfileobj(self.stream, file)
            try:
                yield from self._file(path)
            except AudioError as error:
                raise AudioError(NAME, error.reason) from error

    def _file(self, path: Path) -> Iterator[Tensor]:
        with AudioReader(path) as reader:
            resampler = StreamResampler(reader.rate_hz, self.to_hz)
            for block in reader.blocks(reader.rate_hz):
                self.seconds += len(block) / reader.rate_hz
                yield resampler.push(mono(block, path))
            yield resampler.push(torch.zeros(0), final=True)
            self.warnings, self.lost = reader.warnings, reader.lost


def _decode(data: bytes, header: _WavHeader) -> np.ndarray:
    samples, _ = soundfile.read(
        io.BytesIO(data),
        dtype="float32",
        always_2d=True,
        samplerate=header.rate_hz,
        channels=header.channels,
        format="RAW",
        subtype=header.subtype,
        endian=header.endian,
    )
    return np.asarray(samples)
