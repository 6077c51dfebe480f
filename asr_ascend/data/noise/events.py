"""Sounds of switching: single events of some tens of milliseconds in silence."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from asr_ascend.data.noise.levels import level_dba
from asr_ascend.data.noise.mains import Mains
from asr_ascend.data.seeding import integer, uniform

_FLOOR_NEPERS = 3.45  # 30 dB: how far a strike has rung down where an event ends


def scattered(
    mains: Mains,
    generator: torch.Generator,
    make: Callable[[int, torch.Generator], Tensor],
    per_seconds: float,
) -> Tensor:
    """Places events at random in a clip (num_samples,) float32.

    A clip has at least one event, and up to one for each `per_seconds` seconds.
    """
    wave = torch.zeros(mains.num_samples)
    seconds = mains.num_samples / mains.sample_rate_hz
    for _ in range(integer(1, max(1, int(seconds / per_seconds)), generator)):
        event = make(mains.sample_rate_hz, generator)
        start = integer(0, max(0, mains.num_samples - len(event)), generator)
        kept = min(len(event), mains.num_samples - start)
        wave[start : start + kept] += event[:kept]
    return wave


def tap_change(sample_rate_hz: int, generator: torch.Generator) -> Tensor:
    """Simulates a tap changer's diverter switch, as (samples,) float32.

    It knocks on the tank three to five times within 40 to 70 ms.
    """
    length = round(uniform(0.040, 0.070, generator) * sample_rate_hz)
    modes_hz = [uniform(250.0, 900.0, generator), uniform(900.0, 3000.0, generator)]
    return _strikes(length, integer(3, 5, generator), 0.75, modes_hz, sample_rate_hz, generator)


def breaker_operation(sample_rate_hz: int, generator: torch.Generator) -> Tensor:
    """Simulates a circuit breaker, as (samples,) float32.

    It strikes two or three times within 60 to 150 ms, hard, low and broad.
    """
    length = round(uniform(0.060, 0.150, generator) * sample_rate_hz)
    modes_hz = [uniform(80.0, 300.0, generator), uniform(300.0, 1500.0, generator)]
    return _strikes(length, integer(2, 3, generator), 0.5, modes_hz, sample_rate_hz, generator)


def at_event_level(wave: Tensor, dba: float, sample_rate_hz: int) -> Tensor:
    """Scales `wave` (samples,) to pascals with the level `dba` over its samples that are not 0.

    A silent wave is returned as it is.
    """
    sounding = wave != 0
    now = level_dba(wave, sample_rate_hz)
    if now == -math.inf:
        return wave
    over_events = now - 10 * math.log10(float(sounding.sum()) / wave.numel())
    return wave * 10 ** ((dba - over_events) / 20)


def _strikes(
    length: int,
    count: int,
    last_start: float,
    modes_hz: list[float],
    rate_hz: int,
    generator: torch.Generator,
) -> Tensor:
    """Strikes that ring down until the event's end: a click of noise and two resonances each."""
    wave = torch.zeros(length)
    starts = [0.0, *(uniform(0.1, last_start, generator) for _ in range(count - 1))]
    for part in starts:
        start = int(part * length)
        time = torch.arange(length - start) / (length - start)
        strike = torch.randn(len(time), generator=generator) * torch.exp(-3 * _FLOOR_NEPERS * time)
        for mode_hz in modes_hz:
            cycles = mode_hz * len(time) / rate_hz
            shift = uniform(0.0, 2 * math.pi, generator)
            ring = torch.sin(2 * math.pi * cycles * time + shift)
            strike += uniform(0.5, 1.5, generator) * ring * torch.exp(-1.5 * _FLOOR_NEPERS * time)
        # From silence to silence without a step.
        ramp = min(16, len(time))
        strike[-ramp:] *= torch.linspace(1, 0, ramp)
        wave[start:] += uniform(0.4, 1.0, generator) * strike
    return wave
