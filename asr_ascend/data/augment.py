"""SpecAugment: bands of frequency and spans of time hidden from the model."""

from __future__ import annotations

import torch
from torch import Tensor

from asr_ascend.data.seeding import integer


class SpecAugment:
    """Log-mel features with random bands and spans set to the mean.

    Source: Park et al. 2019, "SpecAugment", section 2, without time warping; a span covers at most
    `max_time_fraction` of an utterance, as in Park et al. 2020 (adaptive masking).

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
        """Copy of `features` (frames, bins) with masks drawn from `generator`."""
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
