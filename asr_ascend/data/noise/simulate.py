"""One way to ask for simulated noise, whether by generic kind or by equipment."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from asr_ascend.data.noise.equipment import EQUIPMENT, equipment_noise
from asr_ascend.data.noise.kinds import KINDS, substation_noise, unit_power
from asr_ascend.data.seeding import integer, uniform

_OCCASIONAL = 0.3  # part of a bank's clips with what isn't there all the time


def simulated_noise(
    kinds: Sequence[str],
    num_samples: int,
    sample_rate_hz: int,
    generator: torch.Generator | int,
    mains_hz: float = 50.0,
) -> Tensor:
    """Simulates noise with a mean square of 1, of generic kinds or of equipment.

    Args:
        kinds: names in `KINDS`, or names in `EQUIPMENT`.
        num_samples: length, at least 0.
        sample_rate_hz: at least 8000.
        generator: source of every draw, or a seed for one.
        mains_hz: 50 or 60.

    Returns:
        (num_samples,) float32.

    Raises:
        ValueError: an argument out of range, an unknown name, or names of both sorts.
    """
    check_names(kinds)
    if kinds[0] in KINDS:
        return substation_noise(num_samples, sample_rate_hz, generator, kinds, mains_hz)
    pressure = equipment_noise(kinds, num_samples, sample_rate_hz, generator, mains_hz)
    return unit_power(pressure) if num_samples else pressure


def check_names(kinds: Sequence[str]) -> None:
    """Checks that `kinds` names one or more generic kinds, or one or more pieces of equipment.

    Raises:
        ValueError: it is empty, a string, names both sorts, or holds an unknown name.
    """
    of_one_sort = [not set(kinds) - set(names) for names in (KINDS, EQUIPMENT)]
    if isinstance(kinds, str) or not kinds or not any(of_one_sort):
        given = kinds if isinstance(kinds, str) else list(kinds)
        raise ValueError(
            f"Kinds of noise must be one or more of {', '.join(KINDS)}, or of the equipment "
            f"{', '.join(EQUIPMENT)}, but are {given!r}."
        )


def clip_kinds(kinds: Sequence[str], generator: torch.Generator) -> list[str]:
    """Draws the kinds of noise that one clip of a bank holds.

    Of generic kinds: hum and fan where `kinds` has them, and each other kind in 0.3 of the clips.
    Of equipment: one piece that sounds all the time, and each other piece in 0.3 of the clips.
    """
    steady = {"hum", "fan"} & set(kinds)
    if kinds[0] not in KINDS:
        of_equipment = [name for name in kinds if EQUIPMENT[name].steady]
        if of_equipment:
            steady = {of_equipment[integer(0, len(of_equipment) - 1, generator)]}
    chosen = [kind for kind in kinds if kind in steady or uniform(0, 1, generator) < _OCCASIONAL]
    return chosen or [kinds[integer(0, len(kinds) - 1, generator)]]
