"""Substation equipment, one profile each, in pascals at a place where people work.

`EQUIPMENT` maps a name to its profile: its A-weighted level, whether it sounds all the time, and
the function that makes its sound. Each function's docstring gives its source. Within the sources'
bounds, levels, slopes and times are drawn per clip; the draws' ranges are this project's own
choice, as the sources give bounds and examples, not distributions.

Sources in short: "design code": noise design code for converter stations, clauses 4.2.1-4.2.7;
IEC/TS 61973:2012 (HVDC substation audible noise); IEC 60076-10 and IEEE C57.136-2000 (levels of
transformers and reactors); Gordon 1978, "Power transformer noise".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from asr_ascend.data.noise import events
from asr_ascend.data.noise.kinds import check_length, shaped_noise, unit_power
from asr_ascend.data.noise.levels import at_level
from asr_ascend.data.noise.mains import Mains
from asr_ascend.data.seeding import integer, seeded_generator, uniform
from asr_ascend.system.threads import single_thread

_Range = tuple[float, float]
_Maker = Callable[[Mains, torch.Generator], Tensor]


@dataclass(frozen=True)
class Equipment:
    """One profile.

    Args:
        name: of the profile.
        level_dba: lowest and highest A-weighted level; of an event, over the time it sounds.
        steady: sounds all the time; otherwise in single events.
        make: (mains, generator) to a wave of any scale.
    """

    name: str
    level_dba: _Range
    steady: bool
    make: _Maker

    @property
    def about(self) -> str:
        """First line of the maker's docstring, without its verb."""
        first = (self.make.__doc__ or "").split("\n")[0]
        return first.removeprefix("Simulates ")


EQUIPMENT: dict[str, Equipment] = {}


def equipment_noise(
    profiles: Sequence[str],
    num_samples: int,
    sample_rate_hz: int = 16000,
    generator: torch.Generator | int = 0,
    mains_hz: float = 50.0,
) -> Tensor:
    """Simulates the sound pressure of several pieces of equipment on one mains.

    An ambience of 35-45 dB(A) is added.

    Args:
        profiles: names in `EQUIPMENT`, each added at a level drawn from its range.
        num_samples: length, at least 0.
        sample_rate_hz: at least 8000.
        generator: source of every draw, or a seed for one.
        mains_hz: 50 or 60.

    Returns:
        (num_samples,) float32 in pascal; `level_dba` gives its level.

    Raises:
        ValueError: an argument out of range, or an unknown profile.
    """
    check_length(num_samples, sample_rate_hz, mains_hz)
    check_profiles(profiles)
    if isinstance(generator, int):
        generator = seeded_generator("equipment_noise", generator)
    if num_samples == 0:
        return torch.zeros(0)
    with single_thread():
        mains = Mains(num_samples, sample_rate_hz, mains_hz, generator)
        total = _ambience(mains, generator)
        for name in profiles:
            profile = EQUIPMENT[name]
            dba = uniform(*profile.level_dba, generator)
            wave = profile.make(mains, generator)
            scale = at_level if profile.steady else events.at_event_level
            total += scale(wave, dba, sample_rate_hz)
    return total


def check_profiles(profiles: Sequence[str]) -> None:
    """Checks that `profiles` names one or more profiles.

    Raises:
        ValueError: it is empty, a string, or names an unknown profile.
    """
    unknown = isinstance(profiles, str) or [name for name in profiles if name not in EQUIPMENT]
    if unknown or not profiles:
        raise ValueError(
            f"`profiles` must name one or more of {', '.join(EQUIPMENT)}, but is {profiles!r}."
        )


def _profile(level_dba: _Range, steady: bool = True) -> Callable[[_Maker], _Maker]:
    def register(make: _Maker) -> _Maker:
        name = make.__name__
        EQUIPMENT[name] = Equipment(name, level_dba, steady, make)
        return make

    return register


@_profile(level_dba=(60.0, 80.0))
def oil_transformer(mains: Mains, generator: torch.Generator) -> Tensor:
    """Simulates an oil-immersed transformer's core hum: 2f and its harmonics, falling; f is weak.

    Magnetostriction moves the core twice a cycle, not quite sinusoidally. Levels are 60-80 dB(A)
    near the tank.

    Source: Gordon 1978; design code 4.2.1; levels IEC 60076-10 and IEEE C57.136-2000.
    """
    slope_db = uniform(2.0, 4.0, generator)
    levels = {2 * k: (-slope_db * (k - 1) - 6.0, -slope_db * (k - 1)) for k in range(2, 11)}
    return _tones(mains, generator, {1: (-30.0, -20.0), 2: (0.0, 0.0), **levels})


@_profile(level_dba=(80.0, 90.0))
def converter_transformer(mains: Mains, generator: torch.Generator) -> Tensor:
    """Simulates a converter transformer: 100-500 Hz about equally strong, load harmonics above.

    A twelve-pulse converter draws currents of order 11 and 13. With the fundamental they pull the
    windings at 10f, 12f and 14f. Levels are 80-90 dB(A) near the tank.

    Source: design code 4.2.1 (100-500 Hz, levels); IEC/TS 61973:2012 (load currents).
    """
    strong = {2: (-6.0, 0.0), 4: (-6.0, 0.0), 6: (-4.0, 0.0), 8: (-6.0, -1.0), 10: (-6.0, 0.0)}
    load = {12: (-12.0, -6.0), 14: (-16.0, -8.0), 22: (-26.0, -18.0), 24: (-24.0, -16.0)}
    weak = dict.fromkeys((1, 16, 18, 20, 26), (-30.0, -20.0))
    return _tones(mains, generator, {**strong, **load, **weak})


@_profile(level_dba=(65.0, 85.0))
def filter_reactor(mains: Mains, generator: torch.Generator) -> Tensor:
    """Simulates an air-core reactor of a harmonic filter: (h-1)f, 2f and (h+1)f up to 1300 Hz.

    The force on a winding grows with the current squared. So a filter of order h = 11/13 sounds at
    10f, 12f and 14f, and one of order 23/25 at 22f, 24f and 26f.

    Source: design code 4.2.3 (multiples of 100 Hz, 100-1300 Hz); IEC/TS 61973:2012 (the force).
    """
    low = uniform(-12.0, 0.0, generator)
    first = {10: (low - 5, low), 12: (low - 2, low + 2), 14: (low - 5, low)}
    second = {22: (-12.0, -4.0), 24: (-8.0, 0.0), 26: (-12.0, -4.0)}
    between = dict.fromkeys((4, 6, 8, 16, 18, 20), (-34.0, -22.0))
    return _tones(mains, generator, {2: (-10.0, -2.0), **first, **second, **between})


@_profile(level_dba=(60.0, 80.0))
def capacitor_bank(mains: Mains, generator: torch.Generator) -> Tensor:
    """Simulates filter capacitors: multiples of 2f to 1300 Hz, resonances from 400 to 1200 Hz.

    A case moves with the voltage squared, so harmonics mix to sums and differences. The case's
    resonances decide which of them are loud.

    Source: design code 4.2.5 (100-1300 Hz); IEC/TS 61973:2012; "Vibration characteristics of
    filter capacitors used in HVDC converter stations" (voltage squared).
    """
    resonance = uniform(8.0, 24.0, generator)  # in multiples of f
    width = uniform(3.0, 6.0, generator)
    levels = {}
    for multiple in range(2, 27, 2):
        peak = 18.0 / (1 + ((multiple - resonance) / width) ** 2) - 18.0
        levels[multiple] = (peak - 6.0, peak)
    return _tones(mains, generator, levels)


@_profile(level_dba=(65.0, 85.0))
def cooler_fans(mains: Mains, generator: torch.Generator) -> Tensor:
    """Simulates coolers: broadband flow noise, mid to high, with the tones of a few fans' blades.

    Induction motors turn a little slower than their synchronous speed, each by its own slip. So the
    blade tones of several fans beat.

    Source: design code 4.2.1 and 4.2.7 (broadband, mid to high); levels IEC 60076-10.
    """
    corner_hz = 400.0 * 10 ** uniform(0.0, 0.8, generator)
    slope = uniform(0.5, 1.2, generator)
    flow = unit_power(
        shaped_noise(
            mains.num_samples,
            mains.sample_rate_hz,
            generator,
            lambda f: (f / 80.0).clamp(max=1.0) / (1 + (f / corner_hz) ** 2) ** (slope / 2),
        )
    )
    # Motors of 4 to 8 pole pairs with 5 to 9 blades: one fan size per cooler.
    blades_per_cycle = integer(5, 9, generator) / integer(4, 8, generator)
    tones = torch.zeros(mains.num_samples)
    for _ in range(integer(2, 4, generator)):
        slip = uniform(0.01, 0.05, generator)
        for harmonic in (1, 2, 3):
            gain = 10 ** (uniform(-30.0, -18.0, generator) / 20)
            tones += gain * mains.tone(harmonic * blades_per_cycle * (1 - slip), generator)
    return flow + 2**0.5 * tones


@_profile(level_dba=(55.0, 75.0))
def line_corona(mains: Mains, generator: torch.Generator) -> Tensor:
    """Simulates corona on conductors: crackling above 1 kHz gated by the mains, tones at 2f.

    Discharges burn near the peaks of the voltage, more strongly in its positive half. Ion clouds
    that move with the field add a tone at 2f.

    Source: "Noise indicators for corona acoustic signal from power lines", Archives of Acoustics
    34(1), 2009 (noise above 1 kHz, tones); Straumann and Semmler 2004 (the tone at 2f).
    """
    low_hz = uniform(1000.0, 2000.0, generator)
    hiss = shaped_noise(
        mains.num_samples, mains.sample_rate_hz, generator, lambda f: (f > low_hz).to(f.dtype)
    )
    hiss = unit_power(hiss)
    phase = torch.remainder(mains.cycles + uniform(0.0, 1.0, generator), 1.0)
    sharp = uniform(30.0, 80.0, generator)
    negative = 10 ** (uniform(-14.0, -4.0, generator) / 20)
    # Each peak of the voltage crackles with a strength of its own.
    cycle = mains.cycles.long()
    strengths = torch.exp(0.35 * torch.randn(2, int(cycle[-1]) + 2, generator=generator))
    gate = strengths[0][cycle] * _burst(phase, 0.25, sharp)
    gate += negative * strengths[1][cycle] * _burst(phase, 0.75, sharp)
    hum = {2: (-20.0, -10.0), 4: (-34.0, -24.0)}
    return unit_power(hiss * gate.to(torch.float32)) + _tones(mains, generator, hum)


@_profile(level_dba=(70.0, 90.0), steady=False)
def tap_changer(mains: Mains, generator: torch.Generator) -> Tensor:
    """Simulates an on-load tap changer: its diverter switch knocks within 40 to 70 ms.

    Source: Vilaithong, Tenbohlen and Stirl, "Acoustic signature analysis" of on-load tap changers
    (the transfer takes about 40-70 ms, by mechanism).
    """
    return events.scattered(mains, generator, events.tap_change, per_seconds=4.0)


@_profile(level_dba=(85.0, 100.0), steady=False)
def circuit_breaker(mains: Mains, generator: torch.Generator) -> Tensor:
    """Simulates a circuit breaker: latch, contacts and damper strike within 60 to 150 ms.

    Source: IEC/IEEE 62271-37-082:2012 (how such impulses are measured); levels to 100 dB near
    breakers: IEEE C57.136-2000, IEC 60076-10. Times and spectra are this project's own choice.
    """
    return events.scattered(mains, generator, events.breaker_operation, per_seconds=8.0)


#: All but corona, which is left as the kind of noise that training does not hear.
TRAINING_EQUIPMENT = tuple(name for name in EQUIPMENT if name != "line_corona")


def _ambience(mains: Mains, generator: torch.Generator) -> Tensor:
    """What is left of a site when all its equipment is silent: soft noise, falling from 200 Hz."""
    noise = shaped_noise(
        mains.num_samples,
        mains.sample_rate_hz,
        generator,
        lambda f: (f / 50.0).clamp(max=1.0) / (1 + f / 200.0),
    )
    return at_level(noise, uniform(35.0, 45.0, generator), mains.sample_rate_hz)


def _tones(mains: Mains, generator: torch.Generator, levels_db: Mapping[int, _Range]) -> Tensor:
    """Tones at multiples of f, each at a level drawn from its range, that breathe a little."""
    time = torch.arange(mains.num_samples) / mains.sample_rate_hz
    total = torch.zeros(mains.num_samples)
    for multiple, (low, high) in levels_db.items():
        gain = 10 ** (uniform(low, high, generator) / 20)
        depth, beat_hz = uniform(0.0, 0.15, generator), uniform(0.1, 1.0, generator)
        start = uniform(0.0, 6.3, generator)
        breath = 1 + depth * torch.sin(6.2832 * beat_hz * time + start)
        total += gain * mains.tone(multiple, generator) * breath
    return total


def _burst(phase: Tensor, centre: float, sharp: float) -> Tensor:
    """Bell around `centre` of each cycle, 1 at its top."""
    return torch.exp(sharp * (torch.cos(6.283185307179586 * (phase - centre)) - 1) / 4)
