"""What bands save: windows with and without their band, and pruning beside fast_rnnt's.

    python -m benchmarks.joiner bands --shape 8 500 100 500

Ways with the same numbers take turns; numbers are compared before anything is printed.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time

import torch

from asr_ascend.losses import lattice_band
from benchmarks.joiner import Problem, largest_difference, peak


def measure(arguments: argparse.Namespace) -> dict[str, object]:
    """Seconds and peak bytes of each way, printed as a table."""
    problem = Problem(arguments.shape, arguments.hidden)
    pairs = [("windows_band", "windows_every_cell")]
    if importlib.util.find_spec("fast_rnnt") is None:
        print("fast_rnnt is not installed: pruning is compared with nothing")
        pairs.append(("pruned", "pruned"))
    else:
        pairs.append(("pruned", "fast_rnnt"))
    _, T, U, _ = arguments.shape
    cells = lattice_band(problem.windows, *problem.indices[1:])
    rows = int((cells[..., 1] - cells[..., 0] + 1).sum())
    every_row = len(cells) * T * (U + 1)
    print(f"B, T, U, V = {arguments.shape}, H = {arguments.hidden}, {arguments.threads} threads")
    print(f"The windows leave {rows:,} of {every_row:,} cells.")
    seconds: dict[str, list[float]] = {"products": []}
    for pair in pairs:
        (value, gradients), (other, expected) = (problem.step(name) for name in pair)
        error = largest_difference(gradients, expected)
        if abs(value - other) > 1e-5 * abs(other) or error > 1e-3:
            raise SystemExit(f"{pair}: {value} for {other}, gradients differ by {error}")
        for turn in range(arguments.repeats):
            # The faster one first and last: one call of it alone says little.
            for name in (pair[0], pair[1], pair[0]) if turn == 0 else pair:
                start = time.perf_counter()
                problem.step(name)
                seconds.setdefault(name, []).append(time.perf_counter() - start)
    for _ in range(max(3, arguments.repeats)):
        seconds["products"].append(products(rows, problem))
    results = {}
    for name, taken in seconds.items():
        high = None
        if name != "products":
            high = peak(name, arguments.shape, arguments.hidden, True, arguments.threads)
        results[name] = {"seconds": taken, "peak_bytes": high}
        peak_mb = "" if high is None else f"{high / 1e6:10.0f} MB at the peak"
        print(f"{name:18} {statistics.median(taken):8.3f} s {peak_mb}")
    return {
        "shape": arguments.shape,
        "hidden": arguments.hidden,
        "rows": rows,
        "every_row": every_row,
        "results": results,
    }


def products(rows: int, problem: Problem) -> float:
    """Seconds of the three matrix products of so many rows, which no way can do without."""
    hidden = torch.ones(rows, problem.weight.shape[1])
    logits = torch.ones(rows, problem.weight.shape[0])
    with torch.no_grad():
        start = time.perf_counter()
        torch.mm(hidden, problem.weight.T)
        torch.mm(logits.T, hidden)
        torch.mm(logits, problem.weight)
        return time.perf_counter() - start
