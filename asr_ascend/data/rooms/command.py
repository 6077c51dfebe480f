"""Responses of rooms for training: ``python -m asr_ascend.data.rooms --out data/rooms``."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from asr_ascend.data.clip_folder import read_index
from asr_ascend.data.rooms.responses import PLACES, RoomResponses, make_rooms, reverberate
from asr_ascend.system.command import CommandParser, run_command
from asr_ascend.system.paths import path_argument

__all__ = ["PLACES", "RoomResponses", "make_rooms", "reverberate"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return run_command(lambda: _make(arguments), (ValueError, RuntimeError))


def _make(arguments: Sequence[str] | None) -> int:
    parser = CommandParser(
        prog="python -m asr_ascend.data.rooms",
        description="Makes responses of rooms and of an open transformer bay, to train with. Needs "
        "pip install 'asr-ascend[rooms]'.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    help_out = "folder of the responses"
    parser.add_argument("--out", type=path_argument, required=True, help=help_out)
    parser.add_argument("--rooms", type=int, default=200, help="how many")
    parser.add_argument(
        "--places", nargs="+", default=list(PLACES), help="kinds of places, in turn"
    )
    parser.add_argument("--seed", type=int, default=0, help="of every draw")
    parser.add_argument("--sample-rate-hz", type=int, default=16000, help="of the responses")
    help_workers = "processes at a time; the responses do not depend on it"
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help=help_workers)
    parser.add_argument("--force", action="store_true", help="make them again")
    options = parser.parse_args(arguments)
    made = make_rooms(
        options.out,
        options.rooms,
        options.places,
        options.seed,
        options.sample_rate_hz,
        options.workers,
        options.force,
    )
    if not made:
        print(f"{options.out} is up to date: nothing to do.")
        return 0
    counts = Counter(room["place"] for room in read_index(Path(options.out))["clips"])
    told = ", ".join(f"{count} {place}" for place, count in sorted(counts.items()))
    print(f"Wrote {options.out}: {told}. Train with data.rooms_dir={options.out}")
    return 0
