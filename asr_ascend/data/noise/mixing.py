"""Active speech, and mixing noise into it at a signal-to-noise ratio."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_FRAME_MS = 20
_ACTIVE_RANGE_DB = 40.0


def active_speech_power(speech: Tensor, sample_rate_hz: int = 16000) -> float:
    """Computes the mean square of `speech` (samples,) over its active frames.

    A frame of 20 ms is active if its power is within 40 dB of the loudest frame's. Samples after
    the last whole frame count as a frame.
    """
    if speech.numel() == 0:
        return 0.0
    length = sample_rate_hz * _FRAME_MS // 1000
    square = speech.to(torch.float64).square()
    whole = square.numel() // length * length
    powers = square[:whole].view(-1, length).mean(1)
    counts = torch.full_like(powers, length)
    if whole < square.numel():
        powers = torch.cat([powers, square[whole:].mean().view(1)])
        counts = torch.cat([counts, counts.new_tensor([square.numel() - whole])])
    active = is_active(powers)
    return float((powers * counts)[active].sum() / counts[active].sum())


def mix_at_snr(speech: Tensor, noise: Tensor, snr_db: float, sample_rate_hz: int = 16000) -> Tensor:
    """Adds noise to speech, scaled so that active speech is `snr_db` above the noise.

    Args:
        speech: (samples,) float.
        noise: (samples,) float, not silent.
        snr_db: ratio in dB of `active_speech_power` to the noise's mean square, broadband.
        sample_rate_hz: rate of both.

    Returns:
        (samples,) like `speech`, not clipped; silent speech comes back unchanged.

    Raises:
        ValueError: lengths differ, `snr_db` is not finite or the noise is silent.
    """
    if speech.shape != noise.shape or speech.dim() != 1:
        raise ValueError(
            "`speech` and `noise` must be 1-D and of one length, but have shapes "
            f"{tuple(speech.shape)} and {tuple(noise.shape)}."
        )
    if not math.isfinite(snr_db):
        raise ValueError(f"`snr_db` must be finite, but is {snr_db}.")
    if speech.numel() == 0:
        return speech.clone()
    noise_power = float(noise.to(torch.float64).square().mean())
    if noise_power == 0:
        raise ValueError("`noise` must not be silent, but its power is 0.")
    wanted = active_speech_power(speech, sample_rate_hz) / 10 ** (snr_db / 10)
    return speech + noise.to(speech) * math.sqrt(wanted / noise_power)


def is_active(powers: Tensor) -> Tensor:
    """Returns which frames are active speech, (frames,) bool: within 40 dB of the loudest.

    `powers` is (frames,), the mean square of each.
    """
    return powers >= powers.max() * 10 ** (-_ACTIVE_RANGE_DB / 10)
