"""Prints the operator's tables of docs/npu_time_model.md, or rewrites them there.

Bytes, instructions and 256-byte steps are counted by running the kernel on the emulator. Times are
a model: nothing here has run on a 910B.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

OPERATOR = Path(__file__).resolve().parents[1]
EMULATOR = OPERATOR.parent / "emulator"
SOURCES = (Path(__file__).with_name("measure.cpp"), OPERATOR / "emulated" / "kernels.cpp")

# What the chip is taken to be. docs/npu_time_model.md says where that is from.
CORES = 40  # vector_core_cnt; some models have 48
CLOCK_HZ = 1.8e9  # cube_freq
VECTOR_BYTES_PER_CYCLE = 256  # vec_calc_size: 128 float16
CORE_BYTES_PER_CYCLE = 32  # ddr_rate: between one core and HBM
HBM_BYTES_PER_SECOND = 1.6e12
REPEAT_BYTES = 256  # of the emulator's unit of vector work
# Guesses: no public figure. The table gives the model for the lowest and the highest too.
INSTRUCTION_CYCLES = (8, 16, 32)  # start of a vector instruction whose result the next one needs
SCALAR_CYCLES = (4, 8, 16)  # a scalar read or write of UB


MEMORY_BYTES = 64e9


@dataclass(frozen=True)
class Shape:
    """A batch of utterances of (T, U) over V symbols."""

    lengths: tuple[tuple[int, int], ...]
    vocab: int
    dtype: str = "float32"

    def __str__(self) -> str:
        longest = max(self.lengths)
        ragged = "" if len(set(self.lengths)) == 1 else " ragged"
        text = f"{len(self.lengths)} x {longest[0]} x {longest[1]} x {self.vocab}"
        return text + ragged + ("" if self.dtype == "float32" else f", {self.dtype}")

    @property
    def rows(self) -> int:
        return sum(frames * (labels + 1) for frames, labels in self.lengths)

    @property
    def logits_bytes(self) -> int:
        return self.rows * self.vocab * (4 if self.dtype == "float32" else 2)


# The specification's shapes that fit the chip's memory, and more of the bench.
SHAPES = (
    Shape(((200, 50),) * 4, 50),
    Shape(((500, 100),) * 8, 500),
    Shape(((500, 100),) * 8, 500, "float16"),
    Shape(((1000, 200),) * 16, 500),
    Shape(((1000, 200),) * 16, 5000, "float16"),
    Shape(((500, 100),) * 2, 5000),
    Shape(((500, 100),), 50000),
)
# Those of them that do not fit, whatever is done.
TOO_LARGE = (Shape(((1000, 200),) * 16, 5000), Shape(((2000, 500),) * 32, 50000))
# Its precision rows, with lengths over the ranges that it gives.
PRECISION_ROWS = (
    Shape(((100, 100), (1000, 300)), 50),
    Shape(((200, 50), (800, 200), (1400, 350), (2000, 500)), 128),
    Shape(((100, 50), (500, 200)), 64, "float16"),
    Shape(((100, 50), (400, 150), (700, 200), (1000, 300)), 128, "float16"),
)


@dataclass
class Work:
    """What one core does in one phase."""

    bytes: float = 0.0
    instructions: float = 0.0
    repeats: float = 0.0
    scalars: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.bytes + other.bytes,
            self.instructions + other.instructions,
            self.repeats + other.repeats,
            self.scalars + other.scalars,
        )

    def __mul__(self, factor: float) -> Work:
        return Work(
            self.bytes * factor,
            self.instructions * factor,
            self.repeats * factor,
            self.scalars * factor,
        )

    def seconds(self, guess: int) -> float:
        """Copies run beside vector and scalar instructions, which wait for each other."""
        computing = (
            self.repeats * REPEAT_BYTES / VECTOR_BYTES_PER_CYCLE
            + self.instructions * INSTRUCTION_CYCLES[guess]
            + self.scalars * SCALAR_CYCLES[guess]
        )
        return max(computing, self.bytes / CORE_BYTES_PER_CYCLE) / CLOCK_HZ


def build(folder: Path) -> Path:
    executable = folder / "measure"
    command = [os.environ.get("CXX", "g++"), "-std=c++17", "-O2", "-ffp-contract=off"]
    command += [f"-I{EMULATOR}", f"-I{OPERATOR}", *map(str, SOURCES), "-o", str(executable)]
    subprocess.run(command, check=True)
    return executable


class Meter:
    """Runs the kernel on the emulator and keeps what it counted."""

    def __init__(self, executable: Path) -> None:
        self._executable = executable
        self._runs: dict[tuple[str, ...], dict] = {}

    def run(self, dtype: str, cores: int, vocab: int, lengths: list[tuple[int, int]]) -> dict:
        command = [str(self._executable), dtype, str(cores), str(vocab)]
        command += [f"{frames},{labels}" for frames, labels in lengths]
        key = tuple(command)
        if key not in self._runs:
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            self._runs[key] = json.loads(output)
        return self._runs[key]


def core_work(counters: dict) -> Work:
    return Work(
        counters["read_bytes"] + counters["written_bytes"],
        counters["instructions"],
        counters["repeats"],
        counters["scalar_accesses"],
    )


def logits_phases(run: dict) -> tuple[int, int]:
    """The phase that reads the logits for statistics, and the one that writes the gradient."""
    reads = [phase for phase, (read, _) in enumerate(run["traffic"]["logits"]) if read > 0]
    writes = [phase for phase, (_, written) in enumerate(run["traffic"]["grad"]) if written > 0]
    assert len(reads) == 2 and reads[1:] == writes, (reads, writes)
    return reads[0], writes[0]


def work_of_a_row(meter: Meter, shape: Shape) -> Work:
    """The two phases over the logits, for one row: measured on fewer frames, linear in rows."""
    frames, labels = max(shape.lengths)
    frames = max(2, min(frames, 4_000_000 // (shape.vocab * (labels + 1))))
    run = meter.run(shape.dtype, 4, shape.vocab, [(frames, labels)])
    work = Work()
    for phase in logits_phases(run):
        for counters in run["phases"][phase]:
            work += core_work(counters)
    return work * (1 / run["rows"])


def work_of_a_lattice(meter: Meter, length: tuple[int, int]) -> tuple[Work, Work]:
    """alpha and beta of one utterance, each on a core of its own; symbols don't matter."""
    run = meter.run("float32", 2, 8, [length])
    first, last = logits_phases(run)
    work = [Work(), Work()]
    for phase in range(first + 1, last):
        for core in range(2):
            work[core] += core_work(run["phases"][phase][core])
    return work[0], work[1]


def makespan(seconds: list[float]) -> float:
    """Tasks go to the cores longest first, each to the least loaded."""
    loads = [0.0] * CORES
    for task in sorted(seconds, reverse=True):
        loads[loads.index(min(loads))] += task
    return max(loads)


Lattices = dict[tuple[int, int], tuple[Work, Work]]


def milliseconds(row: Work, lattice_of: Lattices, shape: Shape, guess: int) -> dict:
    """The model: this plan, its parts, and one utterance on one core throughout."""
    hbm = row.bytes * shape.rows / HBM_BYTES_PER_SECOND
    rows = max(hbm, (row * (shape.rows / CORES)).seconds(guess))
    tasks = [work for length in shape.lengths for work in lattice_of[length]]
    lattices = makespan([work.seconds(guess) for work in tasks])
    utterances = []
    for length in shape.lengths:
        alpha, beta = lattice_of[length]
        utterances.append(row * (length[0] * (length[1] + 1)) + alpha + beta)
    alone = max(hbm, makespan([work.seconds(guess) for work in utterances]))
    return {
        "rows": rows * 1e3,
        "lattice": lattices * 1e3,
        "total": (rows + lattices) * 1e3,
        "alone": alone * 1e3,
        "limit": 3 * shape.logits_bytes / HBM_BYTES_PER_SECOND * 1e3,
    }


def time_table(meter: Meter) -> list[str]:
    lines = [
        "| B x T x U x V | HBM limit | phases 1 and 3 | T + U | phase 2 | all "
        "| cheapest to dearest guess | one utterance per core | ratio |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for shape in SHAPES + PRECISION_ROWS:
        row = work_of_a_row(meter, shape)
        lattice_of = {length: work_of_a_lattice(meter, length) for length in set(shape.lengths)}
        times = [milliseconds(row, lattice_of, shape, guess) for guess in range(3)]
        middle = times[1]
        lines.append(
            f"| {shape} | {middle['limit']:.3f} | {middle['rows']:.3f} | "
            f"{max(sum(length) for length in shape.lengths)} | "
            f"{middle['lattice']:.3f} | {middle['total']:.3f} | "
            f"{times[0]['total']:.3f} to {times[2]['total']:.3f} | {middle['alone']:.2f} | "
            f"{middle['alone'] / middle['total']:.1f} |"
        )
    return lines


def work_table(meter: Meter) -> list[str]:
    """What the time is made of."""
    lines = [
        "| of | vector instructions | steps of 256 bytes | scalar accesses | bytes, as charged |",
        "|---|---|---|---|---|",
    ]

    def add(name: str, work: Work) -> None:
        lines.append(
            f"| {name} | {work.instructions:.1f} | {work.repeats:.1f} | {work.scalars:.1f} | "
            f"{work.bytes:.0f} |"
        )

    for vocab, dtype in ((50, "float32"), (500, "float32"), (500, "float16"), (5000, "float32")):
        row = work_of_a_row(meter, Shape(((400, 100),), vocab, dtype))
        add(f"a row in phases 1 and 3, V = {vocab}, {dtype}", row)
    for labels in (20, 100, 500):
        frames = 4 * labels
        for name, work in zip(
            ("alpha", "beta"), work_of_a_lattice(meter, (frames, labels)), strict=True
        ):
            add(f"a diagonal of {name}, U = {labels}, T = {frames}", work * (1 / (frames + labels)))
    return lines


TRAFFIC_CASES = (
    ("float32", 40, 500, [(200, 100)]),
    ("float32", 40, 500, [(50, 25)] * 16),
    ("float32", 40, 500, [(10 + b % 30, 5 + b % 17) for b in range(64)]),
    ("float32", 40, 5000, [(60, 40)]),
    ("float32", 40, 60000, [(16, 12)]),
    ("float16", 40, 500, [(200, 100)]),
    ("float16", 40, 512, [(200, 100)]),
    ("float32", 40, 50, [(200, 100)] * 2),
    ("float32", 40, 7, [(200, 100)] * 2),
)


def tensor_bytes(run: dict, name: str) -> tuple[int, int]:
    phases = run["traffic"].get(name, [])
    return sum(read for read, _ in phases), sum(written for _, written in phases)


def traffic_table(meter: Meter) -> list[str]:
    lines = [
        "| dtype | B | N | V | logits read / N V | gradient written / N V | state, bytes a row "
        "| other, bytes a row | all / 3 N V |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for dtype, cores, vocab, lengths in TRAFFIC_CASES:
        run = meter.run(dtype, cores, vocab, lengths)
        size = run["rows"] * vocab * (4 if dtype == "float32" else 2)
        logits = tensor_bytes(run, "logits")[0]
        grad = tensor_bytes(run, "grad")[1]
        # Besides the state each core writes 32 bytes there for all cores to read.
        state = sum(tensor_bytes(run, "state")) - 32 * (cores + cores * cores)
        everything = sum(sum(tensor_bytes(run, name)) for name in run["traffic"])
        other = everything - logits - grad - state
        lines.append(
            f"| {dtype} | {len(lengths)} | {run['rows']} | {vocab} | {logits / size:.3f} | "
            f"{grad / size:.3f} | {state / run['rows']:.1f} | {other / run['rows']:.1f} | "
            f"{everything / (3 * size):.3f} |"
        )
    return lines


def memory_table(meter: Meter) -> list[str]:
    # The layout is linear in N and B: small runs give it.
    one = meter.run("float32", 1, 8, [(16, 15)])["workspace_bytes"]
    longer = meter.run("float32", 1, 8, [(32, 15)])["workspace_bytes"]
    nine = meter.run("float32", 1, 8, [(16, 15)] * 9)["workspace_bytes"]
    a_row = (longer - one) / 256
    a_sample = (nine - one) / 8 - 256 * a_row
    fixed = one - 256 * a_row - a_sample
    lines = [
        f"A row takes {a_row:.0f} bytes of workspace, an utterance {a_sample:.0f}, and {fixed:.0f} "
        "are fixed.",
        "",
        "| B x T x U x V | logits and gradient, MB each | workspace, MB | workspace / logits "
        "| fits 64 GB |",
        "|---|---|---|---|---|",
    ]
    for shape in SHAPES + TOO_LARGE + PRECISION_ROWS:
        workspace = fixed + a_row * shape.rows + a_sample * len(shape.lengths)
        logits = shape.logits_bytes
        needed = 2 * logits + workspace
        fits = "yes" if needed < MEMORY_BYTES else "in place"
        if logits + workspace >= MEMORY_BYTES:
            fits = "no"
        lines.append(
            f"| {shape} | {logits / 1e6:.1f} | {workspace / 1e6:.1f} | "
            f"{workspace / logits:.4f} | {fits} |"
        )
    return lines


TABLES = {
    "memory": memory_table,
    "traffic": traffic_table,
    "time": time_table,
    "work": work_table,
}


def replaced(document: str, name: str, lines: list[str]) -> str:
    """The document with the text between `<!-- name -->` and `<!-- end -->` exchanged."""
    begin = document.index(f"<!-- {name} -->\n") + len(f"<!-- {name} -->\n")
    end = document.index("<!-- end -->", begin)
    return document[:begin] + "\n".join(lines) + "\n" + document[end:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(TABLES)}; default: all")
    parser.add_argument("--write", action="store_true", help="put them into docs/npu_time_model.md")
    arguments = parser.parse_args()
    path = OPERATOR.parents[1] / "docs" / "npu_time_model.md"
    with tempfile.TemporaryDirectory() as folder:
        meter = Meter(build(Path(folder)))
        for name in arguments.tables or TABLES:
            lines = TABLES[name](meter)
            if arguments.write:
                path.write_text(replaced(path.read_text(), name, lines))
            else:
                print("\n".join(lines), end="\n\n")


if __name__ == "__main__":
    main()
