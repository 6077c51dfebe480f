"""Resampling between any two rates, of a whole waveform or of one that arrives in pieces."""

from __future__ import annotations

import math

import torch
import torchaudio.functional
from torch import Tensor

# The filter: a sinc of this many zero crossings to either side under a Hann window, cut off a
# little below the lower Nyquist rate. torchaudio's defaults.
_ZERO_CROSSINGS = 6
_ROLLOFF = 0.99
# torchaudio makes a filter for each phase, as long as a period: 160 by 475 numbers from 44,100 Hz
# to 16,000 Hz, but 16,000 by 44,135 from 44,101 Hz. Beyond this many, taps are made as needed.
_MAX_TABLE = 2**21
_OUTPUTS_AT_A_TIME = 2**14


def resample(waveform: Tensor, from_hz: int, to_hz: int) -> Tensor:
    """Resamples a waveform (samples,) to `to_hz`: ceil(samples * to_hz / from_hz) samples.

    All rates use the same filter. The memory that it takes doesn't depend on the rates.
    """
    if from_hz == to_hz or waveform.numel() == 0:
        return waveform
    if not _table_is_small(from_hz, to_hz):
        return _resample_directly(
            waveform, from_hz, to_hz, 0, _length(len(waveform), from_hz, to_hz)
        )
    return torchaudio.functional.resample(waveform, from_hz, to_hz)


class StreamResampler:
    """Resamples a waveform that arrives in pieces; equals resampling the whole.

    Args:
        from_hz: rate of the pieces.
        to_hz: rate wanted.
    """

    def __init__(self, from_hz: int, to_hz: int) -> None:
        divisor = math.gcd(from_hz, to_hz)
        self.from_hz, self.to_hz = from_hz, to_hz
        self.by_table = _table_is_small(from_hz, to_hz)
        # `period` samples in are `step` samples out, so cuts at whole periods keep the phase.
        self.period, self.step = from_hz // divisor, to_hz // divisor
        # The filter reaches 6 zero crossings of the lower rate to either side.
        self.context = math.ceil(8 * from_hz / min(from_hz, to_hz) / self.period) * self.period
        self.pending = torch.zeros(0)
        self.history = 0
        self.consumed = 0  # samples in before `pending`
        self.given = 0  # samples out

    def push(self, samples: Tensor, final: bool = False) -> Tensor:
        """Returns the samples (m,) that `samples` (n,) settle; with `final`, all that remain."""
        if self.from_hz == self.to_hz:
            return samples
        self.pending = torch.cat([self.pending, samples])
        return self._by_table(final) if self.by_table else self._directly(final)

    def _by_table(self, final: bool) -> Tensor:
        ready = self.pending.numel() - self.history - (0 if final else self.context)
        if not final:
            ready = ready // self.period * self.period
        if ready <= 0:
            return self.pending.new_zeros(0)
        out = resample(self.pending, self.from_hz, self.to_hz)
        start = self.history // self.period * self.step
        stop = out.numel() if final else start + ready // self.period * self.step
        keep = min(self.history + ready, self.context)
        self.pending = self.pending[self.history + ready - keep :]
        self.history = keep
        return out[start:stop]

    def _directly(self, final: bool) -> Tensor:
        seen = self.consumed + self.pending.numel()
        reach = _reach(self.from_hz, self.to_hz)
        stop = _length(seen if final else max(0, seen - reach), self.from_hz, self.to_hz)
        if stop <= self.given:
            return self.pending.new_zeros(0)
        rates = self.from_hz, self.to_hz
        out = _resample_directly(self.pending, *rates, self.given, stop, self.consumed)
        self.given = stop
        # The next sample's filter starts `reach` samples before its place.
        unused = max(0, stop * self.from_hz // self.to_hz - reach - self.consumed)
        self.pending = self.pending[unused:].clone()
        self.consumed += unused
        return out


def _length(samples: int, from_hz: int, to_hz: int) -> int:
    return -(-samples * to_hz // from_hz)


def _cutoff(from_hz: int, to_hz: int) -> float:
    """Twice the filter's edge, as a part of the rate of the samples."""
    return _ROLLOFF * min(from_hz, to_hz) / from_hz


def _reach(from_hz: int, to_hz: int) -> int:
    """Samples that the filter needs to either side of a place between two."""
    return math.ceil(_ZERO_CROSSINGS / _cutoff(from_hz, to_hz)) + 1


def _table_is_small(from_hz: int, to_hz: int) -> bool:
    divisor = math.gcd(from_hz, to_hz)
    period, step = from_hz // divisor, to_hz // divisor
    return step * (period + 2 * _reach(from_hz, to_hz)) <= _MAX_TABLE


def _resample_directly(
    waveform: Tensor, from_hz: int, to_hz: int, start: int, stop: int, consumed: int = 0
) -> Tensor:
    """Samples [start, stop) at `to_hz`; `waveform` begins `consumed` samples into the input.

    Source: Smith, "Digital Audio Resampling", with the window of `torchaudio.functional.resample`.
    """
    reach, cutoff = _reach(from_hz, to_hz), _cutoff(from_hz, to_hz)
    padded = torch.nn.functional.pad(waveform, (reach, reach))
    windows = padded.unfold(0, 2 * reach, 1)
    tap = torch.arange(2 * reach, dtype=torch.float64) - (reach - 1)
    pieces = []
    at_a_time = max(1, _OUTPUTS_AT_A_TIME * 16 // reach)
    for first in range(start, stop, at_a_time):
        # Whole numbers, so that an hour into a stream the place is as exact as at its start.
        place = torch.arange(first, min(stop, first + at_a_time)) * from_hz
        whole, fraction = place // to_hz, (place % to_hz).double() / to_hz
        time = (tap - fraction[:, None]) * cutoff
        window = torch.cos(
            time.clamp(-_ZERO_CROSSINGS, _ZERO_CROSSINGS) * math.pi / _ZERO_CROSSINGS / 2
        )
        taps = (torch.sinc(time) * window.square() * cutoff).to(waveform.dtype)
        pieces.append((windows[whole - consumed + 1] * taps).sum(1))
    return torch.cat(pieces) if pieces else waveform.new_zeros(0)
