"""A ragged batch with emission windows."""

from __future__ import annotations

from dataclasses import replace

import torch

from tests.support import oracles

LENGTHS = [(5, 3), (4, 2), (1, 2), (3, 0)]
# Padding columns hold what would close everything if it were read.
WINDOWS = torch.tensor(
    [
        [[0, 2], [1, 3], [3, 4]],
        [[2, 2], [1, 3], [9, -9]],
        [[0, 0], [0, 0], [9, -9]],
        [[9, -9], [9, -9], [9, -9]],
    ]
)


def a_case(dtype: torch.dtype = torch.float32, windows: torch.Tensor = WINDOWS) -> oracles.Case:
    case = oracles.make_case(LENGTHS, 7, blank=3, dtype=dtype, seed=1)
    return replace(case, emission_windows=windows)


def batch_of(case: oracles.Case) -> tuple[torch.Tensor, ...]:
    return case.targets, case.logit_lengths, case.target_lengths
