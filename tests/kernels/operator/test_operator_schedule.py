"""The device's schedule of lattice tasks, and its walk over rows, on plain arrays."""

from __future__ import annotations

import ctypes
import itertools
import random
from collections.abc import Sequence

import pytest

Lengths = Sequence[tuple[int, int]]


def int_array(values: Sequence[int], kind: type = ctypes.c_int32) -> ctypes.Array:
    return (kind * len(values))(*values)


def tasks_of(
    library: ctypes.CDLL, lengths: Lengths, cores: int, window: int = 128, beta_alone: bool = False
) -> list[tuple[int, int, int, int]]:
    """(sample, is beta, core, first slot) in the order in which tasks are given out."""
    out = (ctypes.c_int64 * (8 * len(lengths)))()
    library.LatticeTasks.restype = ctypes.c_int64
    count = library.LatticeTasks(
        int_array([frames for frames, _ in lengths]),
        int_array([labels for _, labels in lengths]),
        *map(ctypes.c_int64, (len(lengths), cores, window, int(beta_alone))),
        out,
    )
    assert count == (1 if beta_alone else 2) * len(lengths)
    return [tuple(out[4 * i : 4 * i + 4]) for i in range(count)]


def costs_of(library: ctypes.CDLL, lengths: Lengths) -> list[int]:
    library.LatticeTaskCost.restype = ctypes.c_int64
    return [library.LatticeTaskCost(*map(ctypes.c_int64, pair)) for pair in lengths]


def makespan(library: ctypes.CDLL, lengths: Lengths, cores: int) -> int:
    costs, loads = costs_of(library, lengths), [0] * cores
    for sample, _, core, _ in tasks_of(library, lengths, cores):
        loads[core] += costs[sample]
    return max(loads)


def best_makespan(costs: list[int], cores: int) -> int:
    """By trying all assignments, equal cores being interchangeable."""
    best = sum(costs)

    def place(index: int, loads: list[int]) -> None:
        nonlocal best
        if max(loads) >= best:
            return
        if index == len(costs):
            best = max(loads)
            return
        for core in range(cores):
            if loads[core] in loads[:core]:
                continue
            loads[core] += costs[index]
            place(index + 1, loads)
            loads[core] -= costs[index]

    place(0, [0] * cores)
    return best


def test_within_the_bound_of_the_best_schedule(operator: ctypes.CDLL) -> None:
    draw = random.Random(1)
    for _ in range(60):
        cores = draw.randint(1, 4)
        lengths = [(draw.randint(1, 60), draw.randint(0, 30)) for _ in range(draw.randint(1, 5))]
        costs = [cost for cost in costs_of(operator, lengths) for _ in range(2)]
        best = best_makespan(sorted(costs, reverse=True), cores)
        assert makespan(operator, lengths, cores) <= (4 / 3 - 1 / (3 * cores)) * best


def test_within_the_bound_of_the_mean_for_large_batches(operator: ctypes.CDLL) -> None:
    draw = random.Random(2)
    for _ in range(10):
        lengths = [(draw.randint(1, 2000), draw.randint(0, 500)) for _ in range(100)]
        costs = costs_of(operator, lengths)
        mean = 2 * sum(costs) / 40
        assert makespan(operator, lengths, 40) <= mean + (1 - 1 / 40) * max(costs)


@pytest.mark.parametrize("beta_alone", [False, True])
@pytest.mark.parametrize("window", [1, 4, 128])
def test_every_task_once_in_order_of_cost_to_the_least_loaded_core(
    operator: ctypes.CDLL, window: int, beta_alone: bool
) -> None:
    draw = random.Random(3)
    lengths = [(draw.choice([5, 9, 30]), draw.choice([0, 3, 7])) for _ in range(23)]
    costs = costs_of(operator, lengths)
    tasks = tasks_of(operator, lengths, 6, window, beta_alone)
    expected, loads = [], [0] * 6
    for begin in range(0, len(lengths), window):
        samples = range(begin, min(begin + window, len(lengths)))
        for sample in sorted(samples, key=lambda b: -costs[b]):  # stable: of equals the first
            first_slot = sum(frames * (labels + 1) for frames, labels in lengths[:sample])
            for is_beta in (1,) if beta_alone else (0, 1):
                core = loads.index(min(loads))
                loads[core] += costs[sample]
                expected.append((sample, is_beta, core, first_slot))
    assert tasks == expected


def test_alpha_and_beta_of_few_samples_have_a_core_each(operator: ctypes.CDLL) -> None:
    tasks = tasks_of(operator, [(200, 50), (180, 60), (10, 2)], 40)
    assert sorted(core for _, _, core, _ in tasks) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("frames", "labels"), [(1, 0), (1, 5), (6, 0), (2, 1), (5, 1), (4, 9), (9, 4), (7, 6), (6, 5)]
)
@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_rows_are_walked_diagonal_by_diagonal(
    operator: ctypes.CDLL, frames: int, labels: int, limit: int
) -> None:
    columns = labels + 1
    cells = sorted(
        ((t + u, t, u) for t in range(frames) for u in range(columns)),
    )
    expected = [t * columns + u for _, t, u in cells]
    for start in range(len(expected)):
        rows = (ctypes.c_int64 * len(expected))()
        operator.WalkRows(*map(ctypes.c_int64, (frames, labels, start, limit)), rows)
        assert list(rows)[start:] == expected[start:]


def test_rows_are_shared_evenly(operator: ctypes.CDLL) -> None:
    operator.ShareBegin.restype = ctypes.c_int64
    for total in (0, 1, 39, 40, 41, 1000, 2**40 + 17):
        for cores in (1, 7, 40, 48):
            begins = [
                operator.ShareBegin(*map(ctypes.c_int64, (total, core, cores)))
                for core in range(cores + 1)
            ]
            shares = [after - before for before, after in itertools.pairwise(begins)]
            assert begins[0] == 0 and begins[-1] == total
            assert max(shares) - min(shares) <= 1
