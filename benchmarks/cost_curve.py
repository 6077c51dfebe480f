"""Time per lattice cell of the loss (forward and backward, in place) by batch size and vocabulary.

N, the number of cells, goes from 1e3 to 1e7, V from 32 to 50,000, as far as the logits stay under
a limit of memory. Beside each time stands the memory floor's in the same seconds.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from asr_ascend.system.atomic import write_json
from asr_ascend.system.command import run_command
from asr_ascend.system.figures import picture
from benchmarks import checks, floor, machine, measuring, tables
from benchmarks.__main__ import positive
from benchmarks.cases import Case
from benchmarks.implementations import IMPLEMENTATIONS, OURS

SCHEMA_VERSION = 1
ROWS = (10**3, 10**4, 10**5, 10**6, 10**7)
VOCABS = (32, 128, 500, 2000, 10000, 50000)
# B, T, U with B * T * (U + 1) = N.
LATTICES = {
    10**3: (1, 50, 19),
    10**4: (1, 200, 49),
    10**5: (4, 250, 99),
    10**6: (40, 250, 99),
    10**7: (400, 250, 99),
}
SECONDS = 0.5  # that the repetitions of one point may take
LEAST, MOST = 3, 30  # repetitions


def points(max_bytes: int) -> list[Case]:
    """Every batch whose logits fit, smallest first."""
    cases = [
        Case.uniform(f"{rows} x {vocab}", *LATTICES[rows], vocab)
        for rows in ROWS
        for vocab in VOCABS
    ]
    return [case for case in cases if case.logits_bytes("packed", torch.float32) <= max_bytes]


def measure(case: Case, arena: measuring.Arena, threads: int) -> dict:
    """Median nanoseconds per cell of the loss and of the floor, numbers checked."""
    ours = IMPLEMENTATIONS[OURS]
    call = ours.prepare(case.indices())
    small = case.smaller()
    checks.forget()
    logits = arena.logits(small, "packed", torch.float32)
    checks.check(ours, small, *ours.prepare(small.indices())(logits), whole=True)
    call(arena.logits(case, "packed", torch.float32))

    calls = {
        "loss": call,
        "floor": floor.run,
        # Where the other threads' start costs more than they do, one thread is the floor.
        "floor of one": functools.partial(floor.run, num_threads=1),
    }
    make = functools.partial(arena.logits, case, "packed", torch.float32)
    times: dict[str, list[float]] = {name: [] for name in calls}
    start = time.perf_counter()
    while len(times["loss"]) < MOST:
        if len(times["loss"]) >= LEAST and time.perf_counter() - start > SECONDS:
            break
        for name, timed_call in calls.items():
            times[name].append(measuring.timed(timed_call, make, threads))
    per_cell = {name: statistics.median(values) / case.rows * 1e6 for name, values in times.items()}
    return {
        "rows": case.rows,
        "vocab": case.vocab,
        "lattice": str(case),
        "repetitions": len(times["loss"]),
        "loss_ns_per_cell": per_cell["loss"],
        "floor_ns_per_cell": min(per_cell["floor"], per_cell["floor of one"]),
    }


def table(results: dict) -> str:
    """Nanoseconds per cell: a row per V, a column per N; in brackets the multiple of the floor."""
    by_place = {(point["rows"], point["vocab"]): point for point in results["points"]}
    header = ["V", *(f"N = {rows:,}" for rows in ROWS)]
    rows = [
        [f"{vocab:,}", *(cell(by_place.get((rows, vocab))) for rows in ROWS)] for vocab in VOCABS
    ]
    return tables.aligned(header, rows)


def cell(point: dict | None) -> str:
    if point is None:
        return "-"
    ratio = point["loss_ns_per_cell"] / point["floor_ns_per_cell"]
    return f"{tables.milliseconds(point['loss_ns_per_cell'])} ({tables.multiple(ratio)})"


def draw(results: dict, path: Path) -> None:
    """Time per cell over V, a line per N, with the floor of the largest N."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with picture(path, (7, 4.5), dpi=120) as figure:
        axes = figure.add_subplot()
        for rows in ROWS:
            line = [point for point in results["points"] if point["rows"] == rows]
            if line:
                vocabs = [point["vocab"] for point in line]
                times = [point["loss_ns_per_cell"] for point in line]
                axes.plot(vocabs, times, marker="o", markersize=4, label=f"N = {rows:,}")
        largest: dict[int, dict] = {point["vocab"]: point for point in results["points"]}
        floors = [(vocab, point["floor_ns_per_cell"]) for vocab, point in sorted(largest.items())]
        axes.plot(
            *zip(*floors, strict=True),
            color="black",
            linestyle="--",
            label="memory floor, largest N",
        )
        axes.set(xscale="log", yscale="log", xlabel="V", ylabel="ns per cell, forward and backward")
        axes.set_title(
            f"rnnt_loss in place, float32, threads: {results['threads']}", fontsize="medium"
        )
        axes.grid(which="major", alpha=0.3)
        axes.legend(fontsize="small")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.cost_curve", description=__doc__)
    parser.add_argument(
        "--threads", type=positive, default=torch.get_num_threads(), metavar="N",
        help="default: %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--max-gb", type=float, default=5.5, metavar="GB",
        help="of logits, at most (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured there")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw the curve there")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(arguments.threads)
    max_bytes = int(arguments.max_gb * 1e9)
    if 1.2 * max_bytes > machine.available_bytes():
        free = machine.available_bytes() / 1e9
        parser.error(f"--max-gb must be well under the {free:.1f} GB that are free.")
    cases = points(max_bytes)
    results = {
        "schema_version": SCHEMA_VERSION,
        **machine.describe(),
        "threads": arguments.threads,
        "max_bytes": max_bytes,
        "points": [],
    }
    arena = measuring.Arena(max(case.logits_bytes("packed", torch.float32) for case in cases))
    for case in cases:
        results["points"].append(measure(case, arena, arguments.threads))
        print(f"{len(results['points'])} of {len(cases)} points", file=sys.stderr)
    print(tables.machine_line(results), end="\n\n")
    print(f"ns per cell, {arguments.threads} threads (of the memory floor)", end="\n\n")
    print(table(results))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        write_json(arguments.json, results)
    if arguments.png:
        draw(results, arguments.png)
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
