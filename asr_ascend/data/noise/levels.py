"""Sound pressure levels, A-weighted as sound level meters give them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

REFERENCE_PASCAL = 20e-6


def a_weighting_db(frequency_hz: Tensor) -> Tensor:
    """Returns the gain of the A-weighting in dB, float64 in the shape of `frequency_hz`.

    It is 0 at 1 kHz, -19.1 at 100 Hz and minus infinity at 0.

    Source: IEC 61672-1:2013, annex E, equation E.6.
    """
    square = frequency_hz.to(torch.float64).square()
    response = (
        (12194.217**2 * square.square())
        / ((square + 20.598997**2) * (square + 12194.217**2))
        / torch.sqrt((square + 107.65265**2) * (square + 737.86223**2))
    )
    return 20 * torch.log10(response) + 2.0


def level_db(pressure: Tensor) -> float:
    """Returns the unweighted sound pressure level in dB above 20 micropascal.

    `pressure` is (samples,) in pascal.
    """
    power = float(pressure.to(torch.float64).square().mean()) if pressure.numel() else 0.0
    return _to_db(power)


def level_dba(pressure: Tensor, sample_rate_hz: int) -> float:
    """Returns the A-weighted sound pressure level in dB(A), minus infinity if silent.

    `pressure` is (samples,) in pascal.
    """
    if pressure.numel() == 0:
        return -math.inf
    power = torch.fft.rfft(pressure.to(torch.float64)).abs().square()
    # All bins but the first and, for even lengths, the last stand for two.
    power[1 : (pressure.numel() + 1) // 2] *= 2
    frequencies = torch.fft.rfftfreq(pressure.numel(), 1 / sample_rate_hz, dtype=torch.float64)
    weighted = power * 10 ** (a_weighting_db(frequencies) / 10)
    return _to_db(float(weighted.sum()) / pressure.numel() ** 2)


def at_level(wave: Tensor, dba: float, sample_rate_hz: int) -> Tensor:
    """Scales `wave` (samples,) to pascals with an A-weighted level of `dba`; silence stays."""
    now = level_dba(wave, sample_rate_hz)
    return wave if now == -math.inf else wave * 10 ** ((dba - now) / 20)


def _to_db(power: float) -> float:
    return 10 * math.log10(power / REFERENCE_PASCAL**2) if power > 0 else -math.inf
