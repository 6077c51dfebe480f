"""What an audio file really holds, found by reading all of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from asr_ascend.data.audio import AudioError, AudioReader, EndsBeforeError, SampleRateError
from asr_ascend.data.importing import problems

TOLERANCE_SECONDS = 0.05
_SILENT_RMS = 1e-3
_FULL_SCALE = 0.98  # 16-bit mu-law reaches no more
_FLAT = 1.5 / 32768
_CLIPPED_SHARE = 1e-3
_WINDOW = 1024
# Speech that once was sampled at 8 kHz has nothing from 4 kHz on, but common resamplers leave a
# mirror image up to 5 kHz. Density of power in the upper of these bands, as a part of the lower:
# 1e-4 or more in recordings of wide-band speech, 1e-5 in telephone speech at 16 kHz.
_TELEPHONE_HZ = (2000, 3400)
_WIDE_HZ = (5200, 7600)
_NOTHING = 3e-5


@dataclass(frozen=True)
class AudioFacts:
    """What was found in a file or a span of it.

    Args:
        seconds: length of the file, or of the part of the span that is there; 0 if unreadable.
        rate_hz: sampling rate, 0 if unreadable.
        format: for example "WAV PCM_16", "" if unreadable.
        faults: kind and detail of each problem.
    """

    seconds: float = 0.0
    rate_hz: int = 0
    format: str = ""
    faults: tuple[tuple[str, str], ...] = ()

    def readable(self) -> bool:
        """Returns whether any audio could be measured."""
        return self.rate_hz > 0


def inspect_audio(path: Path, offset: float | None, duration: float | None) -> AudioFacts:
    """Reads a file, or `duration` seconds of it from `offset`, and says what is wrong with it.

    Args:
        path: of the file.
        offset: seconds, None for the whole file.
        duration: seconds as stated; None: to the end.
    """
    if not path.is_file():
        return AudioFacts(faults=((problems.MISSING, "there is no such file"),))
    try:
        with AudioReader(path) as reader:
            return _inspect(reader, offset, duration)
    except SampleRateError as error:
        return AudioFacts(faults=((problems.SAMPLE_RATE, error.reason),))
    except AudioError as error:
        return AudioFacts(faults=((problems.UNREADABLE, error.reason),))
    except OSError as error:
        return AudioFacts(faults=((problems.UNREADABLE, error.strerror or str(error)),))


def _inspect(reader: AudioReader, offset: float | None, duration: float | None) -> AudioFacts:
    rate_hz = reader.rate_hz
    faults: list[tuple[str, str]] = []
    scan = _Scan(rate_hz, reader.channels)
    span = None if offset is None else duration
    ended: float | None = None  # where the file does, if its span begins later
    try:
        for block in reader.blocks(rate_hz, offset or 0.0, span):
            scan.add(block)
    except EndsBeforeError as error:
        ended = error.seconds
    if reader.layout.sample_rate:
        faults.append((problems.SAMPLE_RATE, reader.layout.sample_rate))
    faults += [(problems.TRUNCATED, sentence) for sentence in reader.warnings]
    seconds = scan.frames / rate_hz
    # A truncated file differs as well, but that is no second problem.
    if not reader.warnings:
        faults += _duration_faults(offset, duration, seconds, ended)
    if scan.frames > 0 or not faults:  # why there are no samples has been said otherwise
        faults += scan.faults()
    return AudioFacts(seconds, rate_hz, reader.format, tuple(faults))


def _duration_faults(
    offset: float | None, duration: float | None, seconds: float, ended: float | None
) -> list[tuple[str, str]]:
    """Returns a fault where the measured `seconds` differ from the stated duration."""
    if offset is None:
        if duration is None or abs(duration - seconds) <= TOLERANCE_SECONDS:
            return []
        detail = f"{duration:g} s are stated, but the file has {seconds:g} s"
        return [(problems.DURATION, detail)]
    if ended is None and (duration is None or duration <= seconds + TOLERANCE_SECONDS):
        return []
    end = f"from {offset:g} s" + (f" to {offset + duration:g} s" if duration else "")
    last = offset + seconds if ended is None else ended
    return [(problems.DURATION, f"its span {end} goes beyond the file's end at {last:g} s")]


@dataclass
class _Scan:
    """Statistics over the samples, a second at a time."""

    rate_hz: int
    channels: int
    frames: int = 0
    loudest: float = 0.0  # power of the loudest 20 ms
    power: float = 0.0  # mean over the channels, summed over time
    mixed_power: float = 0.0
    flat: int = 0
    finite: bool = True
    spectrum: np.ndarray = field(default_factory=lambda: np.zeros(_WINDOW // 2 + 1))

    def faults(self) -> list[tuple[str, str]]:
        """What the samples show."""
        found: list[tuple[str, str]] = []
        if self.channels > 1:
            cancel = self.frames and self.mixed_power < 1e-3 * self.power
            how = " that cancel each other" if cancel else ""
            found.append((problems.STEREO, f"it has {self.channels} channels{how}"))
        if not self.finite:
            return [*found, (problems.UNREADABLE, "it holds NaN or infinity")]
        if self.frames == 0:
            return [*found, (problems.SILENT, "it holds no samples")]
        if self.loudest < _SILENT_RMS**2:
            level = 10 * np.log10(self.loudest) if self.loudest > 0 else -np.inf
            return [*found, (problems.SILENT, f"its loudest 20 ms are at {level:.0f} dBFS")]
        share = self.flat / (self.frames * self.channels)
        if share >= _CLIPPED_SHARE:
            detail = f"{100 * share:.2g}% of its samples are flat at full scale"
            found.append((problems.CLIPPED, detail))
        if narrow := self._narrow_band():
            found.append((problems.SAMPLE_RATE, narrow))
        return found

    def add(self, samples: np.ndarray) -> None:
        """Takes in a block (n, channels)."""
        self.frames += len(samples)
        if not np.isfinite(samples).all():
            self.finite = False
            return
        mixed = samples.mean(axis=1)
        self.power += float(np.square(samples, dtype=np.float64).mean(axis=1).sum())
        self.mixed_power += float(np.square(mixed, dtype=np.float64).sum())
        step = min(len(mixed), max(1, self.rate_hz // 50))
        if step:
            pieces = mixed[: len(mixed) // step * step].reshape(-1, step)
            self.loudest = max(self.loudest, float(np.square(pieces).mean(axis=1).max()))
        self.flat += _flat_at_full_scale(samples)
        windows = mixed[: len(mixed) // _WINDOW * _WINDOW].reshape(-1, _WINDOW)
        transformed = np.fft.rfft(windows * np.hanning(_WINDOW), axis=1)
        self.spectrum += np.square(np.abs(transformed)).sum(axis=0)

    def _narrow_band(self) -> str | None:
        if self.rate_hz < 2 * _WIDE_HZ[1]:
            return None
        hz = np.fft.rfftfreq(_WINDOW, 1 / self.rate_hz)
        telephone, wide = (
            self.spectrum[(hz >= low) & (hz <= high)].mean()
            for low, high in (_TELEPHONE_HZ, _WIDE_HZ)
        )
        if wide >= _NOTHING * telephone:
            return None
        return (
            f"it is sampled at {self.rate_hz} Hz, but holds nothing above {_WIDE_HZ[0]} Hz, as if "
            "recorded at a lower rate"
        )


def _flat_at_full_scale(samples: np.ndarray) -> int:
    """Samples in runs of three or more equal ones at full scale, in any channel."""
    high = np.abs(samples) >= _FULL_SCALE
    if not high.any():
        return 0
    same = (np.abs(np.diff(samples, axis=0)) < _FLAT) & high[1:] & high[:-1]
    pairs = same[1:] & same[:-1]  # the middle of a run of three
    member = np.zeros_like(high)
    member[1:-1] |= pairs
    member[:-2] |= pairs
    member[2:] |= pairs
    return int(member.sum())
