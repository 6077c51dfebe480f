"""From the settings of a config to noise, rooms and speeds."""

from __future__ import annotations

from collections.abc import Sequence

from asr_ascend.data.augment import RoomMix, SpeedPerturbation
from asr_ascend.data.noise import NoiseBank, NoiseSource, StoredBank, WeightedBanks
from asr_ascend.data.rooms.responses import RoomResponses


def noise_source(
    banks: Sequence[str] | None,
    weights: Sequence[float] | None,
    sample_rate_hz: int,
    simulated: tuple[int, float, Sequence[str], int, float],
) -> NoiseSource:
    """Where noise comes from: banks on disk, or a simulated one in memory.

    Args:
        banks: folders of `StoredBank`s; None: a `NoiseBank` in memory.
        weights: how often each of `banks` is drawn; None: equally often.
        sample_rate_hz: rate.
        simulated: number of clips, seconds of each, kinds, seed and mains_hz of that in memory.

    Raises:
        ValueError: a folder that is no bank, weights that don't fit, an argument out of range.
    """
    if banks:
        return WeightedBanks([StoredBank(folder, sample_rate_hz) for folder in banks], weights)
    clips, seconds, kinds, seed, mains_hz = simulated
    return NoiseBank(clips, seconds, kinds, seed, sample_rate_hz, mains_hz)


def room_mix(folder: str | None, probability: float, sample_rate_hz: int) -> RoomMix | None:
    """Rooms of a folder, or None where there is none or nothing is to be heard in them."""
    if folder is None or probability == 0:
        return None
    return RoomMix(RoomResponses(folder, sample_rate_hz), probability)


def speed_perturbation(factors: Sequence[float], sample_rate_hz: int) -> SpeedPerturbation | None:
    """Speeds to draw from, or None where all are 1."""
    perturbation = SpeedPerturbation(factors, sample_rate_hz)
    return None if set(perturbation.factors) == {1.0} else perturbation


def check_augmentation(
    noise_probability: float,
    snr_db: Sequence[float],
    noise_banks: Sequence[str] | None,
    noise_weights: Sequence[float] | None,
    room_probability: float,
) -> None:
    """Raises ValueError for a setting out of range."""
    shares = {"noise_probability": noise_probability, "room_probability": room_probability}
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise ValueError(f"`{name}` must be in [0, 1], but is {share}.")
    if len(snr_db) != 2 or not snr_db[0] <= snr_db[1]:
        raise ValueError(f"`snr_db` must be a lowest and a highest SNR, but is {list(snr_db)}.")
    if noise_weights is not None and not noise_banks:
        raise ValueError("`noise_weights` must be null without `noise_banks`, but is given.")
