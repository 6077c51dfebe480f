"""SpecAugment and speed perturbation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torchaudio.transforms
from torch import Tensor

from asr_ascend.data.seeding import integer


class SpecAugment:
    """Log-mel features with random bands and spans set to the mean.

    Source: Park et al. 2019, "SpecAugment", section 2, without time warping; a span covers at most
    `max_time_fraction` of an utterance, as in Park et al. 2020 (adaptive masking). torchaudio's
    transform of this name draws from torch's global generator, so a batch would depend on what
    was drawn before it.

    Args:
        num_freq_masks: bands per utterance.
        max_freq_bins: widest band.
        num_time_masks: spans per utterance.
        max_time_frames: longest span, in frames of 10 ms.
        max_time_fraction: longest span as a part of the utterance.
        fill: value of hidden cells, a number or one per bin; the training mean becomes 0 after
            normalisation.
    """

    def __init__(
        self,
        num_freq_masks: int = 2,
        max_freq_bins: int = 15,
        num_time_masks: int = 2,
        max_time_frames: int = 20,
        max_time_fraction: float = 0.125,
        fill: float | Tensor = 0.0,
    ) -> None:
        counts = {
            "num_freq_masks": num_freq_masks,
            "max_freq_bins": max_freq_bins,
            "num_time_masks": num_time_masks,
            "max_time_frames": max_time_frames,
        }
        for name, value in counts.items():
            if value < 0:
                raise ValueError(f"`{name}` must not be negative, but is {value}.")
        if not 0 <= max_time_fraction <= 1:
            raise ValueError(f"`max_time_fraction` must be in [0, 1], but is {max_time_fraction}.")
        self.num_freq_masks = num_freq_masks
        self.max_freq_bins = max_freq_bins
        self.num_time_masks = num_time_masks
        self.max_time_frames = max_time_frames
        self.max_time_fraction = max_time_fraction
        self.fill = torch.as_tensor(fill, dtype=torch.float32)

    def __call__(self, features: Tensor, generator: torch.Generator) -> Tensor:
        """Returns a copy of `features` (frames, bins) with masks drawn from `generator`."""
        frames, bins = features.shape
        hidden = torch.zeros(frames, bins, dtype=torch.bool)
        for _ in range(self.num_freq_masks):
            width = integer(0, min(self.max_freq_bins, bins), generator)
            start = integer(0, bins - width, generator)
            hidden[:, start : start + width] = True
        longest = min(self.max_time_frames, int(frames * self.max_time_fraction))
        for _ in range(self.num_time_masks):
            length = integer(0, longest, generator)
            start = integer(0, frames - length, generator)
            hidden[start : start + length] = True
        return torch.where(hidden, self.fill.to(features), features)


class SpeedPerturbation:
    """Speech played faster or slower, pitch and all, by resampling.

    Source: Ko et al. 2015, "Audio augmentation for speech recognition".

    Args:
        factors: speeds to draw from; above 1 is faster and shorter. Each once per 1/len(factors).
        sample_rate_hz: of the speech.

    Raises:
        ValueError: no factor, or one outside [0.5, 2].
    """

    def __init__(
        self, factors: Sequence[float] = (0.9, 1.0, 1.1), sample_rate_hz: int = 16000
    ) -> None:
        if not factors or not all(0.5 <= factor <= 2 for factor in factors):
            raise ValueError(
                f"`speed_factors` must be one or more numbers in [0.5, 2], but is {list(factors)}."
            )
        self.factors = tuple(float(factor) for factor in factors)
        # Each holds the filter of its ratio of rates, which takes longer to make than to use.
        self._at = {
            factor: torchaudio.transforms.Speed(sample_rate_hz, factor) for factor in self.factors
        }

    def __call__(self, waveform: Tensor, factor: float) -> Tensor:
        """Returns `waveform` (samples,) at speed `factor`, one of `factors`.

        The result has about samples / factor samples.
        """
        if factor == 1.0 or waveform.numel() == 0:
            return waveform
        faster: Tensor = self._at[factor](waveform)[0]
        return faster


def speed_perturbation(factors: Sequence[float], sample_rate_hz: int) -> SpeedPerturbation | None:
    """Returns the speeds to draw from as a `SpeedPerturbation`, or None where all are 1.

    Raises:
        ValueError: `factors` is empty, or holds one outside [0.5, 2].
    """
    perturbation = SpeedPerturbation(factors, sample_rate_hz)
    return None if set(perturbation.factors) == {1.0} else perturbation
