"""The figures that the operator's specification gives for its NPU, beside what is measured here.

Source: the table of performance in rnnt-loss-ascend/README.md of hicann/elec-ops-inspection. It
names no unit. benchmarks/README.md says what its figures can mean.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from benchmarks import tables
from benchmarks.implementations import OURS


class Row(NamedTuple):
    """B, T, U, V; torchaudio 2.8 on a CPU, the NPU operator, their ratio: as printed there."""

    shape: tuple[int, int, int, int]
    torchaudio: float
    npu: float
    ratio: float


ROWS = (
    Row((4, 200, 50, 50), 12.74, 0.28, 46.02),
    Row((8, 500, 100, 500), 13.44, 0.28, 48.02),
    Row((16, 1000, 200, 5000), 92.27, 0.48, 200.56),
    Row((32, 2000, 500, 50000), 35993.41, 8.22, 4389.44),
)
HBM_BYTES_PER_SECOND = 1.6e12  # Atlas A2; source in docs/npu_time_model.md


def logits_bytes(shape: tuple[int, int, int, int]) -> int:
    """Float32."""
    B, T, U, V = shape
    return 4 * math.prod((B, T, U + 1, V))


def gigabytes(size: int) -> str:
    return f"{size / 1e9:,.0f} GB" if size >= 1e11 else f"{size / 1e9:.3g} GB"


def table(results: dict) -> str:
    """A row per shape: what is printed there, and what this machine took where it fits."""
    threads = results["settings"]["threads"][-1]
    rows = []
    for row in ROWS:
        shape = " x ".join(map(str, row.shape))
        size = logits_bytes(row.shape)
        rows.append(
            [
                shape,
                gigabytes(size),
                f"{row.torchaudio:g}",
                f"{row.npu:g}",
                measured(results, shape, "torchaudio", threads),
                measured(results, shape, OURS, threads),
                tables.milliseconds(3e3 * size / HBM_BYTES_PER_SECOND) + " ms",
            ]
        )
    header = [
        "B x T x U x V",
        "logits",
        "torchaudio, as printed",
        "NPU, as printed",
        "torchaudio, here",
        "ours in place, here",
        "3 passes over HBM",
    ]
    return tables.aligned(header, rows)


def measured(results: dict, shape: str, name: str, threads: int) -> str:
    for case in results["cases"]:
        if case["shape"] == shape:
            for entry in case["results"]:
                if entry["implementation"] == name and entry.get("threads") == threads:
                    return f"{tables.milliseconds(entry['milliseconds']['median'])} ms"
            return "not measured"
    return "does not fit" if logits_bytes(shape_of(shape)) > memory(results) else "not measured"


def shape_of(text: str) -> tuple[int, int, int, int]:
    B, T, U, V = map(int, text.split(" x "))
    return B, T, U, V


def memory(results: dict) -> int:
    return results["machine"]["memory_bytes"]
