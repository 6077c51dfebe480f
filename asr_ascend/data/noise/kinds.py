"""Four generic kinds of substation noise, mixed by relative level.

Components (mains frequency f: 50 or 60 Hz):

- hum: magnetostriction of transformer cores: 2f and its harmonics to 1.3 kHz with a weak tone at f
  (converter-station noise design code 4.2.1, 4.2.3, 4.2.5; Gordon 1978; IEC/TS 61973).
- fan: broadband noise of coolers and fans, mid to high (same code 4.2.1, 4.2.7).
- impulse: tap changers, bursts of 40-70 ms (Vilaithong and Tenbohlen).
- corona: noise above 1 kHz gated twice per mains cycle, and a tone at 2f
  (Archives of Acoustics 34(1), 2009; Straumann 2004).

Relative levels, drifts and spectral slopes within these sources' bounds are drawn per clip; the
draws' ranges are this project's own choice. Levels in place are 60-90 dB(A) (IEC 60076-10,
IEEE C57.136), speech at close talk 75-85 dB: an SNR of -5 to 20 dB.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from asr_ascend.data.seeding import integer, seeded_generator, uniform

KINDS = ("hum", "fan", "impulse", "corona")
TRAINING_KINDS = ("hum", "fan", "impulse")
_HUM_HARMONICS = 13  # of 2f: 100 to 1300 Hz


def substation_noise(
    num_samples: int,
    sample_rate_hz: int = 16000,
    generator: torch.Generator | int = 0,
    kinds: Sequence[str] = TRAINING_KINDS,
    mains_hz: float = 50.0,
) -> Tensor:
    """Simulates a substation's noise as the sum of its `kinds`, scaled to a power of 1.

    Args:
        num_samples: length, at least 0.
        sample_rate_hz: at least 8000.
        generator: source of every draw, or a seed for one.
        kinds: any of "hum", "fan", "impulse", "corona", each present in the result.
        mains_hz: 50 or 60.

    Returns:
        (num_samples,) float32 with mean square 1.

    Raises:
        ValueError: an argument out of range, or an unknown kind.
    """
    check_noise(num_samples, sample_rate_hz, kinds, mains_hz)
    if isinstance(generator, int):
        generator = seeded_generator("substation_noise", generator)
    if num_samples == 0:
        return torch.zeros(0)
    # The grid's frequency wanders by some tenths of a hertz at most.
    mains_hz = mains_hz * (1 + uniform(-0.004, 0.004, generator))
    total = torch.zeros(num_samples)
    for kind in KINDS:
        if kind in kinds:
            level_db, component = _COMPONENTS[kind]
            gain = 10 ** (uniform(*level_db, generator) / 20)
            wave = component(num_samples, sample_rate_hz, mains_hz, generator)
            # Impulses are rare: their level is set against their peaks, not their mean power.
            total += gain * (wave if kind == "impulse" else unit_power(wave))
    return unit_power(total)


def _hum(num_samples: int, rate_hz: int, mains_hz: float, generator: torch.Generator) -> Tensor:
    time = torch.arange(num_samples, dtype=torch.float64) / rate_hz
    # Whole cycles are taken off in float64, so float32 phases stay exact in long clips.
    phase = 2 * math.pi * torch.remainder(mains_hz * time, 1.0).to(torch.float32)
    wave = torch.zeros(num_samples)

    def add_tone(sine: Tensor, cosine: Tensor, level_db: float) -> None:
        shift = uniform(0, 2 * math.pi, generator)
        gain = 10 ** (level_db / 20)
        wave.add_(sine, alpha=gain * math.cos(shift)).add_(cosine, alpha=gain * math.sin(shift))

    add_tone(torch.sin(phase), torch.cos(phase), uniform(-30.0, -20.0, generator))
    slope_db = uniform(1.0, 3.0, generator)
    # sin((k+1)x) = 2 cos(x) sin(kx) - sin((k-1)x), likewise cos: far cheaper than more sines.
    sine, cosine = torch.sin(2 * phase), torch.cos(2 * phase)
    twice_cosine = 2 * cosine
    before = torch.zeros(num_samples), torch.ones(num_samples)
    for number in range(_HUM_HARMONICS):
        add_tone(sine, cosine, -number * slope_db - uniform(0, 6, generator))
        now = sine, cosine
        sine = twice_cosine * sine - before[0]
        cosine = twice_cosine * cosine - before[1]
        before = now
    beat_hz, depth = uniform(0.2, 2.0, generator), uniform(0.0, 0.2, generator)
    return wave * (1 + depth * torch.sin(2 * math.pi * beat_hz * time.to(torch.float32)))


def _fan(num_samples: int, rate_hz: int, mains_hz: float, generator: torch.Generator) -> Tensor:
    # A large fan's blades rumble, a pump or a near cooler hisses.
    corner_hz = 300.0 * 10 ** uniform(0.0, 1.0, generator)
    return shaped_noise(
        num_samples,
        rate_hz,
        generator,
        lambda f: (f / 100.0).clamp(max=1.0) / torch.sqrt(1 + (f / corner_hz) ** 2),
    )


def _impulse(num_samples: int, rate_hz: int, mains_hz: float, generator: torch.Generator) -> Tensor:
    wave = torch.zeros(num_samples)
    for _ in range(integer(1, max(1, num_samples // (2 * rate_hz)), generator)):
        duration_ms = uniform(40.0, 70.0, generator)
        length = round(duration_ms * rate_hz / 1000)
        start = integer(0, max(0, num_samples - length), generator)
        time = torch.arange(length) / length
        # 30 dB down at the burst's end, where the sources stop counting.
        burst = torch.randn(length, generator=generator) * torch.exp(-3.45 * time)
        ring_hz = uniform(300.0, 2000.0, generator)
        ring = torch.sin(2 * math.pi * ring_hz * duration_ms / 1000 * time) * torch.exp(-5 * time)
        kept = min(length, num_samples - start)
        wave[start : start + kept] += (burst + 2 * ring)[:kept]
    return wave


def _corona(num_samples: int, rate_hz: int, mains_hz: float, generator: torch.Generator) -> Tensor:
    low_hz = uniform(1000.0, 2500.0, generator)
    hiss = unit_power(
        shaped_noise(num_samples, rate_hz, generator, lambda f: (f > low_hz).to(f.dtype))
    )
    phase = uniform(0, 2 * math.pi, generator)
    cycles = torch.arange(num_samples, dtype=torch.float64) * (2 * mains_hz / rate_hz)
    tone = torch.sin(2 * math.pi * torch.remainder(cycles, 1.0).to(torch.float32) + phase)
    # The discharge burns near both peaks of the voltage: a gate open 2f times a second.
    gate = torch.sigmoid(12 * (tone - uniform(0.3, 0.8, generator)))
    return hiss * gate + uniform(0.05, 0.2, generator) * tone


def shaped_noise(
    num_samples: int,
    rate_hz: int,
    generator: torch.Generator,
    magnitude: Callable[[Tensor], Tensor],
) -> Tensor:
    """Returns white noise times `magnitude` of the frequency in Hz, (num_samples,) float32."""
    spectrum = torch.fft.rfft(torch.randn(num_samples, generator=generator))
    frequencies = torch.fft.rfftfreq(num_samples, 1 / rate_hz)
    return torch.fft.irfft(spectrum * magnitude(frequencies), n=num_samples)


def unit_power(wave: Tensor) -> Tensor:
    """Scales `wave` to a mean square of 1; silence stays."""
    power = float(wave.to(torch.float64).square().mean())
    return wave / math.sqrt(power) if power > 0 else wave


# Level in dB relative to the hum, and the maker of each kind.
_Component = Callable[[int, int, float, torch.Generator], Tensor]
_COMPONENTS: dict[str, tuple[tuple[float, float], _Component]] = {
    "hum": ((0.0, 0.0), _hum),
    "fan": ((-12.0, 0.0), _fan),
    "impulse": ((6.0, 14.0), _impulse),
    "corona": ((-12.0, -3.0), _corona),
}


def check_noise(num_samples: int, rate_hz: int, kinds: Sequence[str], mains_hz: float) -> None:
    """Checks the arguments of `substation_noise`.

    Raises:
        ValueError: one of them is out of range.
    """
    check_length(num_samples, rate_hz, mains_hz)
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds or isinstance(kinds, str):
        raise ValueError(f"`kinds` must name one or more of {', '.join(KINDS)}, but is {kinds!r}.")


def check_length(num_samples: int, rate_hz: int, mains_hz: float) -> None:
    """Checks a length in samples, a rate and a mains frequency in Hz.

    Raises:
        ValueError: one of them is out of range.
    """
    if num_samples < 0:
        raise ValueError(f"`num_samples` must not be negative, but is {num_samples}.")
    if rate_hz < 8000:
        raise ValueError(f"`sample_rate_hz` must be at least 8000, but is {rate_hz}.")
    if mains_hz not in (50, 60):
        raise ValueError(f"`mains_hz` must be 50 or 60, but is {mains_hz}.")
