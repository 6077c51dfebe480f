"""Banks of noise clips, in memory or on disk, cropped at random in training."""

from __future__ import annotations

import bisect
import itertools
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import soundfile
import torch
from torch import Tensor

from asr_ascend.data.clip_folder import NoiseError, Record, make_folder, read_index, write_clip
from asr_ascend.data.noise.equipment import TRAINING_EQUIPMENT, check_profiles, equipment_noise
from asr_ascend.data.noise.kinds import TRAINING_KINDS, check_length
from asr_ascend.data.noise.levels import level_db, level_dba
from asr_ascend.data.noise.simulate import check_names, clip_kinds, simulated_noise
from asr_ascend.data.seeding import integer, seeded_generator, stable_seed, uniform
from asr_ascend.system.threads import single_thread


class NoiseSource(Protocol):
    """What training takes noise from."""

    def crop(self, num_samples: int, generator: torch.Generator) -> Tensor:
        """Draws noise (num_samples,) float32, which depends only on the generator's state."""


class NoiseBank:
    """Clips of `simulated_noise` in memory, made at once and cropped at random.

    `clip_kinds` says what a clip holds: the steady ones of generic `kinds` (hum, fan) and each of
    the others with probability 0.3; of equipment, one steady piece and others.

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
        length = _check_size(num_clips, clip_seconds, sample_rate_hz, mains_hz)
        check_names(kinds)
        # float16 halves the bank; its rounding lies 70 dB below the noise.
        self.clips = torch.empty(num_clips, length, dtype=torch.float16)
        with single_thread():
            for number in range(num_clips):
                generator = seeded_generator("noise bank", seed, number)
                clip = simulated_noise(
                    clip_kinds(kinds, generator), length, sample_rate_hz, generator, mains_hz
                )
                self.clips[number] = clip.to(torch.float16)

    def crop(self, num_samples: int, generator: torch.Generator) -> Tensor:
        """Draws (num_samples,) float32 of one clip from a random place on; a short clip is
        repeated.

        A silent crop (between two impulses) is drawn again.
        """
        for _ in range(100):
            clip = self.clips[integer(0, len(self.clips) - 1, generator)]
            start = integer(0, max(0, len(clip) - num_samples), generator)
            crop = clip[start : start + num_samples].to(torch.float32)
            if num_samples == 0 or bool(crop.any()):
                break
        return _repeated(crop, num_samples)


class StoredBank:
    """Clips of a folder that `python -m asr_ascend.data.noise bank|recordings` made.

    Crops are read from the files, so a bank may be larger than memory.

    Args:
        folder: holds the clips and their index.
        sample_rate_hz: that the clips must have.

    Raises:
        NoiseError: the folder is no complete bank, or of another rate.
    """

    def __init__(self, folder: str | Path, sample_rate_hz: int = 16000) -> None:
        self.folder = Path(folder).expanduser()
        if not self.folder.is_dir():
            raise NoiseError([f"The noise bank {self.folder} is not a folder."])
        index = read_index(self.folder)
        rate_hz = index["settings"].get("sample_rate_hz")
        if rate_hz != sample_rate_hz:
            wanted = f"must be at {sample_rate_hz} Hz, but is at {rate_hz}."
            raise NoiseError([f"The noise bank {self.folder} {wanted}"])
        if not index["clips"]:
            raise NoiseError([f"The noise bank {self.folder} must have a clip, but is empty."])
        self.clips: list[Record] = index["clips"]

    def crop(self, num_samples: int, generator: torch.Generator) -> Tensor:
        """Draws (num_samples,) float32 of one clip, as `NoiseBank.crop` does.

        Raises:
            NoiseError: a clip is missing or can't be read.
        """
        for _ in range(100):
            clip = self.clips[integer(0, len(self.clips) - 1, generator)]
            start = integer(0, max(0, clip["samples"] - num_samples), generator)
            path = self.folder / clip["file"]
            try:
                # As int16, and scaled here: twice as fast as libsndfile's own float32.
                # The name need not be UTF-8.
                samples, _rate = soundfile.read(
                    os.fsencode(path), min(num_samples, clip["samples"]), start, dtype="int16"
                )
            except (soundfile.SoundFileError, RuntimeError) as error:
                reason = getattr(error, "error_string", None) or error
                raise NoiseError([f"{path} cannot be read: {reason}"]) from error
            crop = torch.from_numpy(samples).to(torch.float32) / 32768
            if num_samples == 0 or bool(crop.any()):
                break
        return _repeated(crop, num_samples)


class WeightedBanks:
    """Several banks, one drawn for each crop.

    Args:
        banks: one or more.
        weights: how often each is drawn, relative to their sum; None: equally often.

    Raises:
        ValueError: a weight is negative or not finite, all are 0, or their number is another.
    """

    def __init__(
        self, banks: Sequence[NoiseSource], weights: Sequence[float] | None = None
    ) -> None:
        weights = [1.0] * len(banks) if weights is None else list(weights)
        if len(weights) != len(banks):
            raise ValueError(
                f"`noise_weights` must hold one weight per bank ({len(banks)}), but holds "
                f"{len(weights)}."
            )
        if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or not sum(weights):
            raise ValueError(
                f"`noise_weights` must not be negative and not all be 0, but is {weights}."
            )
        # A bank that is never drawn must not be drawn by rounding either.
        kept = [(bank, weight) for bank, weight in zip(banks, weights, strict=True) if weight > 0]
        self.banks = [bank for bank, _ in kept]
        self._bounds = list(itertools.accumulate(weight for _, weight in kept))

    def crop(self, num_samples: int, generator: torch.Generator) -> Tensor:
        """Draws a bank, then (num_samples,) float32 of it, as `NoiseBank.crop` does.

        A single bank is not drawn, so the crop gets the generator as it is.
        """
        if len(self.banks) == 1:
            return self.banks[0].crop(num_samples, generator)
        place = uniform(0.0, self._bounds[-1], generator)
        number = min(bisect.bisect_right(self._bounds, place), len(self.banks) - 1)
        return self.banks[number].crop(num_samples, generator)


def make_noise_bank(
    folder: str | Path,
    num_clips: int = 400,
    clip_seconds: float = 20.0,
    profiles: Sequence[str] = TRAINING_EQUIPMENT,
    seed: int = 0,
    sample_rate_hz: int = 16000,
    mains_hz: float = 50.0,
    workers: int = 1,
    force: bool = False,
) -> bool:
    """Makes a `StoredBank` of simulated equipment; does nothing if the same is already there.

    Args:
        folder: of the bank.
        num_clips: clips in the bank; clip 5 is the same whatever their number.
        clip_seconds: length of each, at least 0.1.
        profiles: equipment to draw from (see `clip_kinds`).
        seed: of the whole bank.
        sample_rate_hz: at least 8000.
        mains_hz: 50 or 60.
        workers: processes at a time; the samples do not depend on it.
        force: makes it again even if another bank is there.

    Returns:
        Whether anything had to be made.

    Raises:
        ValueError: an argument out of range, or the folder holds something else (NoiseError).
    """
    _check_size(num_clips, clip_seconds, sample_rate_hz, mains_hz)
    check_profiles(profiles)
    settings = {
        "made_by": "simulator 1",
        "num_clips": num_clips,
        "clip_seconds": clip_seconds,
        "profiles": list(profiles),
        "seed": seed,
        "sample_rate_hz": sample_rate_hz,
        "mains_hz": mains_hz,
    }
    jobs = [{**settings, "number": number} for number in range(num_clips)]
    return make_folder(Path(folder), settings, jobs, make_clip, workers, force, "Making noise")


def make_clip(folder: Path, job: dict[str, Any]) -> list[Record]:
    """Writes one simulated clip of a bank and returns its record."""
    seed = stable_seed("stored noise", job["seed"], job["number"])
    generator = torch.Generator().manual_seed(seed)
    profiles = clip_kinds(job["profiles"], generator)
    rate_hz = job["sample_rate_hz"]
    length = round(job["clip_seconds"] * rate_hz)
    pressure = equipment_noise(profiles, length, rate_hz, generator, job["mains_hz"])
    name = f"clip-{job['number']:05d}.wav"
    gain_db = write_clip(folder / name, pressure, rate_hz)
    record = {
        "file": name,
        "samples": length,
        "seed": seed,
        "profiles": profiles,
        "mains_hz": job["mains_hz"],
        "level_dba": round(level_dba(pressure, rate_hz), 2),
        "level_db": round(level_db(pressure), 2),
        "gain_db": round(gain_db, 2),
    }
    return [record]


def _repeated(crop: Tensor, num_samples: int) -> Tensor:
    repeats = -(-num_samples // max(1, len(crop)))
    return crop.repeat(max(1, repeats))[:num_samples]


def _check_size(num_clips: int, clip_seconds: float, sample_rate_hz: int, mains_hz: float) -> int:
    if num_clips < 1:
        raise ValueError(f"`num_clips` must be at least 1, but is {num_clips}.")
    if clip_seconds < 0.1:
        raise ValueError(f"`clip_seconds` must be at least 0.1, but is {clip_seconds}.")
    length = round(clip_seconds * sample_rate_hz)
    check_length(length, sample_rate_hz, mains_hz)
    return length
