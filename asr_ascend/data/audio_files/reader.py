"""The one reader of audio files: everything that libsndfile decodes, in pieces, and all of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import numpy as np
import soundfile

from asr_ascend.data.audio_files.layout import find_layout
from asr_ascend.data.audio_files.parts import Part, PartFile, span

RATES_HZ = (4000, 384000)
_UNKNOWN_FRAMES = 2**62
_SKIPPED_AT_A_TIME = 2**16
_SHORT_BLOCK = 256
# Decoders of mp3 and Opus start with samples that they then leave out: a file may lack this much.
_TOLERANCE_SECONDS = 0.05


class AudioError(ValueError):
    """An audio file that cannot be used; `path` and `reason` say which and why."""

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        self.path = Path(path)
        self.reason = reason
        super().__init__(f"{self.path} cannot be read as audio: {reason}")


class SampleRateError(AudioError):
    """An audio file whose header states a sampling rate that no recording of speech has."""


class EndsBeforeError(AudioError):
    """An audio file that ends, after `seconds`, before the span that was asked for begins."""

    def __init__(self, path: str | os.PathLike[str], offset: float, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(path, f"it ends at {seconds:g} s, before the offset of {offset:g} s")


class _Forward(soundfile.SoundFile):
    """Reads without seeking, which soundfile does after each block and not all formats can."""

    def seekable(self) -> bool:
        return False


class AudioReader:
    """An audio file, opened; a context manager.

    Recordings joined in one file are read one after the other, and past damage if the format
    allows. What is missing is said: `warnings` after the last block.

    Args:
        path: anything libsndfile reads, any number of channels.

    Attributes:
        rate_hz: sampling rate.
        channels: how many.
        format: for example "WAV PCM_16".
        frames: samples of each channel as far as the file says; None: it doesn't.
        layout: what its header says of itself.

    Raises:
        AudioError: the file is missing, not audio, or of parts that don't go together.
        SampleRateError: its rate is outside of 4 to 384 kHz.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._given = 0  # samples of each channel that were read or passed over
        self._shortfall: str | None = None
        self._complete = False  # whether a span was asked for and is there
        if not self.path.is_file():
            raise AudioError(path, "there is no such file")
        try:
            if self.path.stat().st_size == 0:
                raise AudioError(path, "the file is empty")
            self.layout = find_layout(self.path)
            self._parts: list[Part | None] = list(self.layout.parts) or [None]
            self._file = self._open(self._parts[0])
        except OSError as error:
            raise AudioError(path, error.strerror or str(error)) from error
        self.rate_hz, self.channels = int(self._file.samplerate), int(self._file.channels)
        self.format = f"{self._file.format} {self._file.subtype}"
        self.frames = _known(self._file) if len(self._parts) == 1 else None
        low, high = RATES_HZ
        if not low <= self.rate_hz <= high:
            self._file.close()
            raise SampleRateError(
                path, f"its sampling rate must be in [{low}, {high}] Hz, but is {self.rate_hz} Hz"
            )

    def __enter__(self) -> AudioReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def blocks(
        self, block_frames: int, offset: float = 0.0, duration: float | None = None
    ) -> Iterator[np.ndarray]:
        """Yields samples (n, channels) float32, full scale at 1.

        Args:
            block_frames: n of each block but the last, which may be shorter, but is never empty.
            offset: seconds at the start of the file to skip.
            duration: seconds to read, None for all; fewer where the file ends.

        Raises:
            AudioError: nothing can be decoded, or the file ends before `offset`.
        """
        pieces: list[np.ndarray] = []
        missing = block_frames
        for piece in self._pieces(block_frames, offset, duration):
            # Pieces are shorter at the end of a part, and where decoding broke.
            while len(piece) >= missing:
                yield np.concatenate([*pieces, piece[:missing]]) if pieces else piece[:missing]
                piece, pieces, missing = piece[missing:], [], block_frames
            if len(piece):
                pieces.append(piece)
                missing -= len(piece)
        if pieces:
            yield np.concatenate(pieces)

    def _pieces(
        self, block_frames: int, offset: float, duration: float | None
    ) -> Iterator[np.ndarray]:
        start = round(offset * self.rate_hz)
        stop = None if duration is None else round((offset + duration) * self.rate_hz)
        if self.frames is not None and start > self.frames:
            raise EndsBeforeError(self.path, offset, self.frames / self.rate_hz)
        for number, part in enumerate(self._parts):
            if number > 0:
                self._next(part)
            yield from self._pieces_of_part(part, block_frames, start, stop)
        self._complete = stop is not None and self._given >= stop
        if self._given < start:
            raise EndsBeforeError(self.path, offset, self._given / self.rate_hz)

    @property
    def warnings(self) -> list[str]:
        """What is wrong with the file, in a sentence each, once it was read to its end."""
        # What is before the place where a file was cut off is as good as ever.
        truncated = None if self._complete else self.layout.truncated
        found = (truncated, self.layout.damaged, self._shortfall)
        return [sentence for sentence in found if sentence]

    @property
    def lost(self) -> bool:
        """Whether a part of the recording is known to be missing, once it was read to its end."""
        if self._complete:
            return self.layout.damaged is not None
        return self._shortfall is not None or not self.layout.whole

    def _open(self, part: Part | None) -> _Forward:
        # As bytes: a name need not be UTF-8.
        source = os.fsencode(self.path) if part is None else PartFile(self.path, part)
        try:
            return _Forward(source)
        except (soundfile.SoundFileError, RuntimeError) as error:
            raise AudioError(self.path, _reason(error)) from error
        except TypeError as error:  # libsndfile asks what raw samples are
            raise AudioError(
                self.path, "samples without a header say nothing of their rate"
            ) from error

    def _next(self, part: Part | None) -> None:
        self._file.close()
        self._file = self._open(part)
        found = int(self._file.samplerate), int(self._file.channels)
        if found != (self.rate_hz, self.channels):
            raise AudioError(
                self.path,
                f"it is joined of recordings at {self.rate_hz} Hz with {self.channels} channels "
                f"and at {found[0]} Hz with {found[1]}",
            )

    def _pieces_of_part(
        self, part: Part | None, block_frames: int, start: int, stop: int | None
    ) -> Iterator[np.ndarray]:
        before = self._given
        if start > self._given:
            self._skip(part, start - self._given)
        reason = ""
        while stop is None or self._given < stop:
            size = block_frames if stop is None else min(block_frames, stop - self._given)
            try:
                block = self._file.read(size, "float32", always_2d=True)
            except (soundfile.SoundFileError, RuntimeError) as error:
                if reason or block_frames <= _SHORT_BLOCK:
                    reason = _reason(error)
                    break
                # The error took the block's samples before it along: once more, in short ones.
                reason, block_frames = _reason(error), _SHORT_BLOCK
                self._file.close()
                self._file = self._open(part)
                self._given, again = before, self._given - before
                self._skip(part, again)
                continue
            if not len(block):
                break
            self._given += len(block)
            yield block
        stated = _known(self._file)
        found = self._given - before
        if reason and found == 0:
            raise AudioError(self.path, reason)
        if stop is not None and self._given >= stop:
            return
        missing = 0 if stated is None else stated - found
        if reason or missing > _TOLERANCE_SECONDS * self.rate_hz:
            self._fall_short(found if stated is None else stated, found, reason)

    def _fall_short(self, stated: int, found: int, reason: str) -> None:
        if self.layout.truncated or self.layout.damaged:
            return  # why it does has been said otherwise
        pair = span(stated, found, self.rate_hz, "samples")
        why = f" ({reason})" if reason else ""
        self._shortfall = f"{pair[0]} are stated, but {pair[1]} come{why}"

    def _skip(self, part: Part | None, frames: int) -> None:
        """Skips `frames` samples of the open file, or all that it has."""
        known = _known(self._file)
        if known is not None and frames < known:
            with suppress(soundfile.SoundFileError, RuntimeError):
                self._file.seek(frames)
                self._given += frames
                return
            self._file.close()
            self._file = self._open(part)
        while frames > 0:
            try:
                block = self._file.read(min(frames, _SKIPPED_AT_A_TIME), "float32", always_2d=True)
            except (soundfile.SoundFileError, RuntimeError):
                return  # reading on says why
            if not len(block):
                return
            frames -= len(block)
            self._given += len(block)


def _known(file: soundfile.SoundFile) -> int | None:
    frames = int(file.frames)
    return frames if frames < _UNKNOWN_FRAMES else None


def _reason(error: Exception) -> str:
    """libsndfile's words for an error, without what it puts around them."""
    text = str(getattr(error, "error_string", None) or error).strip()
    return text.removeprefix("Error : ").rstrip(".")
