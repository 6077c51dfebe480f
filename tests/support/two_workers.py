"""How pytest-xdist's workers share the tests: file by file, those that take long first."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# Each takes up to 2 GB of memory.
MOST_WORKERS = 2
# Where one costly thing serves all tests: the process over the stand-in for CANN.
TOGETHER = ("tests/kernels/standin",)
LONG_FIRST = (
    "tests/kernels/standin",
    "tests/kernels/cpu/",
    "tests/training/",
    "tests/kernels/",
)


def number_of_workers(config: pytest.Config) -> int:
    """None for chosen files: a second start of torch takes longer than most of them."""
    if all(Path(argument.partition("::")[0]).is_file() for argument in config.args):
        return 0
    return min(MOST_WORKERS, len(os.sched_getaffinity(0)))


def unit(nodeid: str) -> str:
    """What one worker runs in one go: the test's file, or a folder of TOGETHER."""
    folder = next((folder for folder in TOGETHER if nodeid.startswith(f"{folder}/")), None)
    return folder or nodeid.partition("::")[0]


def place(unit: str) -> int:
    """Lower starts earlier, so that no worker is left with something long at the end."""
    places = [place for place, start in enumerate(LONG_FIRST) if unit.startswith(start)]
    return min(places, default=len(LONG_FIRST))


class FileByFile(LoadScopeScheduling):
    """Hands out units in the order in which the workers collected them."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)
