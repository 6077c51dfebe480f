"""Banks of noise clips, cropped at random in training."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from asr_ascend.data.acoustics.kinds import TRAINING_KINDS, check_noise, substation_noise
from asr_ascend.data.seeding import integer, seeded_generator, uniform
from asr_ascend.data.threads import single_thread

_OCCASIONAL = 0.3  # part of a bank's clips with an impulse, or with corona


class NoiseBank:
    """Clips of `substation_noise`, made once and cropped at random.

    Each clip holds the steady ones of `kinds` (hum, fan) and each of the others with probability
    0.3, or one of `kinds` where that leaves none.

    Args:
        num_clips: clips in the bank.
        clip_seconds: length of each.
        kinds: kinds to draw from.
        seed: of the whole bank.
        sample_rate_hz: rate.
        mains_hz: 50 or 60.
    """

    def __init__(
        self,
        num_clips: int = 160,
        clip_seconds: float = 8.0,
        kinds: Sequence[str] = TRAINING_KINDS,
        seed: int = 0,
        sample_rate_hz: int = 16000,
        mains_hz: float = 50.0,
    ) -> None:
        if num_clips < 1:
            raise ValueError(f"`num_clips` must be at least 1, but is {num_clips}.")
        if clip_seconds < 0.1:
            raise ValueError(f"`clip_seconds` must be at least 0.1, but is {clip_seconds}.")
        length = round(clip_seconds * sample_rate_hz)
        check_noise(length, sample_rate_hz, kinds, mains_hz)
        # float16 halves the bank; its rounding lies 70 dB below the noise.
        self.clips = torch.empty(num_clips, length, dtype=torch.float16)
        with single_thread():
            for number in range(num_clips):
                generator = seeded_generator("noise bank", seed, number)
                clip = substation_noise(
                    length, sample_rate_hz, generator, _clip_kinds(kinds, generator), mains_hz
                )
                self.clips[number] = clip.to(torch.float16)

    def crop(self, num_samples: int, generator: torch.Generator) -> Tensor:
        """(num_samples,) float32 of one clip from a random place on, repeated where too short.

        A crop that happens to be silent (between two impulses) is drawn again.
        """
        for _ in range(100):
            clip = self.clips[integer(0, len(self.clips) - 1, generator)]
            start = integer(0, max(0, len(clip) - num_samples), generator)
            crop = clip[start : start + num_samples].to(torch.float32)
            if num_samples == 0 or bool(crop.any()):
                break
        repeats = -(-num_samples // max(1, len(crop)))
        return crop.repeat(max(1, repeats))[:num_samples]


def _clip_kinds(kinds: Sequence[str], generator: torch.Generator) -> list[str]:
    chosen = [
        kind for kind in kinds if kind in ("hum", "fan") or uniform(0, 1, generator) < _OCCASIONAL
    ]
    return chosen or [kinds[integer(0, len(kinds) - 1, generator)]]
