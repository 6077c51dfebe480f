"""Prints the memory and traffic tables and the time model of docs/model.md, or rewrites them there.

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

OPERATOR = Path(__file__).resolve().parents[2]
EMULATOR = OPERATOR.parent / "emulator"

# What the chip is taken to be, and where it is said. See docs/model.md.
CORES = 40  # vector_core_cnt; some models have 48
CLOCK_HZ = 1.8e9  # cube_freq
VECTOR_BYTES_PER_CYCLE = 256  # vec_calc_size: 128 float16
CORE_BYTES_PER_CYCLE = 32  # ddr_rate: between one core and HBM
HBM_BYTES_PER_SECOND = 1.6e12
REPEAT_BYTES = 256  # of the emulator's unit of vector work
# Guesses: no public figure. The table gives the model for the lowest and the highest too.
INSTRUCTION_CYCLES = (8, 16, 32)  # start of a vector instruction whose result the next one needs
SCALAR_CYCLES = (4, 8, 16)  # a scalar read or write of UB


@dataclass(frozen=True)
class Shape:
    """Utterances of equal length: B of T frames and U labels over V symbols."""

    name: str
    batch: int
    frames: int
    labels: int
    vocab: int
    dtype: str = "float32"

    def __str__(self) -> str:
        return f"{self.name}: {self.batch} x {self.frames} x {self.labels} x {self.vocab}"

    @property
    def rows(self) -> int:
        return self.batch * self.frames * (self.labels + 1)

    @property
    def logits_bytes(self) -> int:
        return self.rows * self.vocab * (4 if self.dtype == "float32" else 2)


SHAPES = (
    Shape("S1", 4, 200, 50, 50),
    Shape("S2", 8, 500, 100, 500),
    Shape("S3", 16, 1000, 200, 500),
    Shape("S4", 2, 500, 100, 5000),
    Shape("S2 float16", 8, 500, 100, 500, "float16"),
    Shape("largest precision row", 4, 2000, 500, 128),
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
    kernels = OPERATOR / "tests" / "emulator" / "emulated_kernels.cpp"
    sources = [str(Path(__file__).with_name("measure.cpp")), str(kernels)]
    command = [os.environ.get("CXX", "g++"), "-std=c++17", "-O2", "-ffp-contract=off"]
    command += [f"-I{EMULATOR}", f"-I{OPERATOR}", *sources, "-o", str(executable)]
    subprocess.run(command, check=True)
    return executable


class Meter:
    """Runs the kernel on the emulator and keeps what it counted."""

    def __init__(self, executable: Path) -> None:
        self._executable = executable

    def run(self, dtype: str, cores: int, vocab: int, lengths: list[tuple[int, int]]) -> dict:
        command = [str(self._executable), dtype, str(cores), str(vocab)]
        command += [f"{frames},{labels}" for frames, labels in lengths]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return json.loads(output)


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
    frames = max(2, min(shape.frames, 4_000_000 // (shape.vocab * (shape.labels + 1))))
    run = meter.run(shape.dtype, 4, shape.vocab, [(frames, shape.labels)])
    work = Work()
    for phase in logits_phases(run):
        for counters in run["phases"][phase]:
            work += core_work(counters)
    return work * (1 / run["rows"])


def work_of_a_lattice(meter: Meter, shape: Shape) -> tuple[Work, Work]:
    """alpha and beta of one utterance, each on a core of its own; the vocabulary doesn't matter."""
    run = meter.run(shape.dtype, 2, 8, [(shape.frames, shape.labels)])
    first, last = logits_phases(run)
    work = [Work(), Work()]
    for phase in range(first + 1, last):
        for core in range(2):
            work[core] += core_work(run["phases"][phase][core])
    return work[0], work[1]


def milliseconds(row: Work, lattice: tuple[Work, Work], shape: Shape, guess: int) -> dict:
    """The model: this plan, its three parts, and one utterance on one core throughout."""
    hbm = row.bytes * shape.rows / HBM_BYTES_PER_SECOND
    rows = max(hbm, (row * (shape.rows / CORES)).seconds(guess))
    tasks_of_a_core = -(-2 * shape.batch // CORES)
    lattices = max(work.seconds(guess) for work in lattice) * tasks_of_a_core
    samples_of_a_core = -(-shape.batch // CORES)
    one_sample = row * (shape.rows / shape.batch) + lattice[0] + lattice[1]
    alone = max(hbm, one_sample.seconds(guess) * samples_of_a_core)
    return {
        "rows": rows * 1e3,
        "lattice": lattices * 1e3,
        "total": (rows + lattices) * 1e3,
        "alone": alone * 1e3,
        "limit": 3 * shape.logits_bytes / HBM_BYTES_PER_SECOND * 1e3,
    }


def time_table(meter: Meter) -> list[str]:
    lines = [
        "| B x T x U x V | HBM limit | phases 1 and 3 | phase 2 | all | cheapest to dearest guess "
        "| one utterance per core | ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for shape in SHAPES:
        row = work_of_a_row(meter, shape)
        lattice = work_of_a_lattice(meter, shape)
        times = [milliseconds(row, lattice, shape, guess) for guess in range(3)]
        middle = times[1]
        lines.append(
            f"| {shape} | {middle['limit']:.3f} | {middle['rows']:.3f} | "
            f"{middle['lattice']:.3f} | {middle['total']:.3f} | "
            f"{times[0]['total']:.3f} to {times[2]['total']:.3f} | {middle['alone']:.2f} | "
            f"{middle['alone'] / middle['total']:.1f} |"
        )
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
        state = sum(tensor_bytes(run, "state"))
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
        "| B x T x U x V | logits, MB | gradient, MB | workspace, MB | workspace / logits |",
        "|---|---|---|---|---|",
    ]
    for shape in SHAPES:
        workspace = fixed + a_row * shape.rows + a_sample * shape.batch
        logits = shape.logits_bytes
        lines.append(
            f"| {shape} | {logits / 1e6:.1f} | {logits / 1e6:.1f} | {workspace / 1e6:.1f} | "
            f"{workspace / logits:.4f} |"
        )
    return lines


TABLES = {"memory": memory_table, "traffic": traffic_table, "time": time_table}


def replaced(document: str, name: str, lines: list[str]) -> str:
    """The document with the text between `<!-- name -->` and `<!-- end -->` exchanged."""
    begin = document.index(f"<!-- {name} -->\n") + len(f"<!-- {name} -->\n")
    end = document.index("<!-- end -->", begin)
    return document[:begin] + "\n".join(lines) + "\n" + document[end:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(TABLES)}; default: all")
    parser.add_argument("--write", action="store_true", help="put them into docs/model.md")
    arguments = parser.parse_args()
    path = OPERATOR / "docs" / "model.md"
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
