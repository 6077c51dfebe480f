"""The mains as a clock that drifts: every hum and every corona of a site keeps its time."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from asr_ascend.data.seeding import uniform

MAX_DEVIATION_HZ = 0.2
_STEP_SECONDS = 0.1
_RELAXATION_SECONDS = 60.0


class Mains:
    """Phase of the mains over a clip.

    The frequency relaxes towards its nominal value while random imbalances push it away (an
    Ornstein-Uhlenbeck process) and never leaves +-0.2 Hz. Its standard deviation is drawn in
    20-60 mHz, as large and small grids have it.

    Args:
        num_samples: length of the clip.
        sample_rate_hz: of the clip.
        nominal_hz: 50 or 60.
        generator: source of every draw.

    Source:
        Schäfer et al. 2018, "Non-Gaussian power grid frequency fluctuations characterized by
        Lévy-stable laws and superstatistics" (the process, its time scale); GB/T 15945-2008 (the
        bound).
    """

    def __init__(
        self, num_samples: int, sample_rate_hz: int, nominal_hz: float, generator: torch.Generator
    ) -> None:
        self.num_samples = num_samples
        self.sample_rate_hz = sample_rate_hz
        self.nominal_hz = nominal_hz
        self.frequency_hz = nominal_hz + self._deviation(generator)
        #: Cycles since the clip's start, (num_samples,) float64.
        self.cycles = torch.cumsum(self.frequency_hz / sample_rate_hz, 0)

    def tone(self, multiple: float, generator: torch.Generator) -> Tensor:
        """Returns a sine of amplitude 1 at `multiple` of the mains frequency, (num_samples,)
        float32.
        """
        start = uniform(0.0, 1.0, generator)
        # Whole cycles are taken off in float64, so float32 phases stay exact in long clips.
        phase = torch.remainder(self.cycles * multiple + start, 1.0).to(torch.float32)
        return torch.sin(2 * math.pi * phase)

    def _deviation(self, generator: torch.Generator) -> Tensor:
        """Hz away from the nominal frequency, (num_samples,) float64."""
        spread = uniform(0.02, 0.06, generator)
        decay = math.exp(-_STEP_SECONDS / _RELAXATION_SECONDS)
        kick = spread * math.sqrt(1 - decay**2)
        steps = math.ceil(self.num_samples / (self.sample_rate_hz * _STEP_SECONDS)) + 1
        draws = torch.randn(steps, generator=generator, dtype=torch.float64).tolist()
        path = [spread * draws[0]]
        for draw in draws[1:]:
            path.append(path[-1] * decay + kick * draw)
        points = torch.tensor(path, dtype=torch.float64).clamp(-MAX_DEVIATION_HZ, MAX_DEVIATION_HZ)
        place = torch.arange(self.num_samples, dtype=torch.float64)
        place /= self.sample_rate_hz * _STEP_SECONDS
        left = place.long().clamp(max=steps - 2)
        return torch.lerp(points[left], points[left + 1], place - left)
