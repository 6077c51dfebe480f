"""Measures the operator's tables on the emulator and keeps them in tables.json.

    python -m kernels.rnnt_loss_fused.time_model.tables [TABLE ...] [--write]

Bytes, instructions and 256-byte steps are counted by running the kernel on the emulator. Times are
a model: nothing here has run on a 910B. docs/npu_time_model.md holds the same tables, made of
tables.json: with --write both are written anew.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from kernels.rnnt_loss_fused.time_model.model import Work, milliseconds
from kernels.rnnt_loss_fused.time_model.shapes import PRECISION_ROWS, SHAPES, TOO_LARGE, Shape

OPERATOR = Path(__file__).resolve().parents[1]
EMULATOR = OPERATOR.parent / "emulator"
SOURCES = (Path(__file__).with_name("measure.cpp"), OPERATOR / "emulated" / "kernels.cpp")
RESULTS = Path(__file__).with_name("tables.json")
DOCUMENT = OPERATOR.parents[1] / "docs" / "npu_time_model.md"
MEMORY_BYTES = 64e9


@dataclass(frozen=True)
class Column:
    """A column's heading, and how many decimals its numbers have; None for texts and integers."""

    name: str
    decimals: int | None = None


def table(columns: list[Column], rows: list[list], note: str = "") -> dict:
    """A table as tables.json has it: numbers are rounded as they are shown."""
    rounded = [
        [
            cell if column.decimals is None else round(cell, column.decimals)
            for column, cell in zip(columns, row, strict=True)
        ]
        for row in rows
    ]
    return {
        "note": note,
        "columns": [column.name for column in columns],
        "decimals": [column.decimals for column in columns],
        "rows": rounded,
    }


def markdown(kept: dict) -> list[str]:
    """A table of tables.json, as lines of a document."""
    lines = [kept["note"], ""] if kept["note"] else []
    lines += ["| " + " | ".join(kept["columns"]) + " |", "|" + "---|" * len(kept["columns"])]
    for row in kept["rows"]:
        cells = [
            str(cell) if decimals is None else f"{cell:.{decimals}f}"
            for cell, decimals in zip(row, kept["decimals"], strict=True)
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def build(folder: Path) -> Path:
    executable = folder / "measure"
    command = [os.environ.get("CXX", "g++"), "-std=c++17", "-O2", "-ffp-contract=off"]
    command += [f"-I{EMULATOR}", f"-I{OPERATOR}", *map(str, SOURCES), "-o", str(executable)]
    subprocess.run(command, check=True)
    return executable


# (T, U) of each utterance, or (T, U, early, late): the band of emission windows.
Lengths = list[tuple[int, ...]]


class Meter:
    """Runs the kernel on the emulator and keeps what it counted."""

    def __init__(self, executable: Path) -> None:
        self._executable = executable
        self._runs: dict[tuple[str, ...], dict] = {}

    def run(self, dtype: str, cores: int, vocab: int, lengths: Lengths) -> dict:
        command = [str(self._executable), dtype, str(cores), str(vocab)]
        command += [",".join(map(str, length)) for length in lengths]
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
        counters["scalar_vector_waits"],
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


def work_of_a_lattice(meter: Meter, length: tuple[int, ...]) -> tuple[Work, Work]:
    """alpha and beta of one utterance, each on a core of its own; symbols don't matter."""
    run = meter.run("float32", 2, 8, [length])
    first, last = logits_phases(run)
    work = [Work(), Work()]
    for phase in range(first + 1, last):
        for core in range(2):
            work[core] += core_work(run["phases"][phase][core])
    return work[0], work[1]


def time_table(meter: Meter) -> dict:
    columns = [
        *(Column("B x T x U x V"), Column("HBM limit", 3), Column("phases 1 and 3", 3)),
        *(Column("T + U"), Column("phase 2", 3), Column("all", 3), Column("cheapest guess", 3)),
        *(Column("dearest guess", 3), Column("one utterance per core", 2), Column("ratio", 1)),
    ]
    rows = []
    for shape in SHAPES + PRECISION_ROWS:
        row = work_of_a_row(meter, shape)
        lattice_of = {length: work_of_a_lattice(meter, length) for length in set(shape.lengths)}
        least, middle, most = (milliseconds(row, lattice_of, shape, guess) for guess in range(3))
        steps = max(sum(length) for length in shape.lengths)
        rows.append(
            [
                *(str(shape), middle["limit"], middle["rows"], steps, middle["lattice"]),
                *(middle["total"], least["total"], most["total"], middle["alone"]),
                middle["alone"] / middle["total"],
            ]
        )
    return table(columns, rows)


def work_table(meter: Meter) -> dict:
    """What the time is made of."""
    columns = [
        *(Column("of"), Column("vector instructions", 1), Column("steps of 256 bytes", 1)),
        *(Column("scalar accesses", 1), Column("waits of S and V", 2)),
        Column("bytes, as charged", 0),
    ]
    rows = []

    def add(name: str, work: Work) -> None:
        parts = [work.instructions, work.repeats, work.scalars, work.waits, work.bytes]
        rows.append([name, *parts])

    for vocab, dtype in ((50, "float32"), (500, "float32"), (500, "float16"), (5000, "float32")):
        row = work_of_a_row(meter, Shape(((400, 100),), vocab, dtype))
        add(f"a row in phases 1 and 3, V = {vocab}, {dtype}", row)
    for labels in (20, 100, 500):
        frames = 4 * labels
        for name, work in zip(
            ("alpha", "beta"), work_of_a_lattice(meter, (frames, labels)), strict=True
        ):
            add(f"a diagonal of {name}, U = {labels}, T = {frames}", work * (1 / (frames + labels)))
    return table(columns, rows)


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


def traffic_table(meter: Meter) -> dict:
    columns = [
        *(Column("dtype"), Column("B"), Column("N"), Column("V"), Column("logits read / N V", 3)),
        *(Column("gradient written / N V", 3), Column("state, bytes a row", 1)),
        *(Column("other, bytes a row", 1), Column("all / 3 N V", 3)),
    ]
    rows = []
    for dtype, cores, vocab, lengths in TRAFFIC_CASES:
        run = meter.run(dtype, cores, vocab, lengths)
        size = run["rows"] * vocab * (4 if dtype == "float32" else 2)
        logits = tensor_bytes(run, "logits")[0]
        grad = tensor_bytes(run, "grad")[1]
        # Besides the state each core writes 32 bytes there for all cores to read.
        state = sum(tensor_bytes(run, "state")) - 32 * (cores + cores * cores)
        everything = sum(sum(tensor_bytes(run, name)) for name in run["traffic"])
        other = everything - logits - grad - state
        rows.append(
            [
                *(dtype, len(lengths), run["rows"], vocab, logits / size, grad / size),
                *(state / run["rows"], other / run["rows"], everything / (3 * size)),
            ]
        )
    return table(columns, rows)


WINDOWS = (1, 5)  # frames before and after: those of the recipe
BANDED_SHAPES = (
    Shape(((500, 100),) * 8, 500),
    Shape(((500, 100),) * 4, 5000),
    Shape(((1000, 200),) * 16, 5000),
    Shape(((2000, 500),) * 32, 5000),
    Shape(((2000, 500),), 128),
)


def band_table(meter: Meter) -> dict:
    """The band of emission windows and the whole lattice, by the same model."""
    columns = [
        *(Column("B x T x U x V"), Column("cells"), Column("of the lattice's", 3)),
        *(Column("bytes a row next to 3 V", 1), Column("HBM limit", 3)),
        *(Column("phases 0, 1 and 3", 3), Column("phase 2", 3), Column("all", 3)),
        *(Column("cheapest guess", 3), Column("dearest guess", 3), Column("whole lattice", 3)),
    ]
    rows = []
    for shape in BANDED_SHAPES:
        length = (*shape.lengths[0], *WINDOWS)
        run = meter.run(shape.dtype, 4, min(shape.vocab, 500), [length])
        lattice = work_of_a_lattice(meter, length)
        moved = sum(
            read + written for name in run["traffic"] for read, written in run["traffic"][name]
        )
        vocab = min(shape.vocab, 500)
        flags = 32 * (4 + 16)
        beside = (moved - flags) / run["rows"] - 3 * 4 * vocab
        band = replace(shape, band_rows=run["rows"])
        row = work_of_banded_rows(meter, shape, length)
        guesses = [
            milliseconds(row, {shape.lengths[0]: lattice}, band, guess) for guess in range(3)
        ]
        least, middle, most = guesses
        whole = work_of_a_row(meter, shape)
        lattices = {shape.lengths[0]: work_of_a_lattice(meter, shape.lengths[0])}
        full = milliseconds(whole, lattices, shape, 1)
        rows.append(
            [
                *(str(shape), band.rows, band.rows / shape.rows, beside, middle["limit"]),
                *(middle["rows"], middle["lattice"], middle["total"]),
                *(least["total"], most["total"], full["total"]),
            ]
        )
    return table(columns, rows)


def work_of_banded_rows(meter: Meter, shape: Shape, length: tuple[int, ...]) -> Work:
    """As ``work_of_a_row``, with phase 0; the whole utterance, since its rows are few."""
    run = meter.run(shape.dtype, 4, shape.vocab, [length])
    work = Work()
    for phase in {0, *logits_phases(run)}:
        for counters in run["phases"][phase]:
            work += core_work(counters)
    return work * (1 / run["rows"])


def memory_table(meter: Meter) -> dict:
    # The layout is linear in N and B: small runs give it.
    one = meter.run("float32", 1, 8, [(16, 15)])["workspace_bytes"]
    longer = meter.run("float32", 1, 8, [(32, 15)])["workspace_bytes"]
    nine = meter.run("float32", 1, 8, [(16, 15)] * 9)["workspace_bytes"]
    a_row = (longer - one) / 256
    a_sample = (nine - one) / 8 - 256 * a_row
    fixed = one - 256 * a_row - a_sample
    note = (
        f"A row takes {a_row:.0f} bytes of workspace, an utterance {a_sample:.0f}, and {fixed:.0f} "
        "are fixed."
    )
    columns = [
        *(Column("B x T x U x V"), Column("logits and gradient, MB each", 1)),
        *(Column("workspace, MB", 1), Column("workspace / logits", 4), Column("fits 64 GB")),
    ]
    rows = []
    for shape in SHAPES + TOO_LARGE + PRECISION_ROWS:
        workspace = fixed + a_row * shape.rows + a_sample * len(shape.lengths)
        logits = shape.logits_bytes
        fits = "yes" if 2 * logits + workspace < MEMORY_BYTES else "in place"
        if logits + workspace >= MEMORY_BYTES:
            fits = "no"
        rows.append([str(shape), logits / 1e6, workspace / 1e6, workspace / logits, fits])
    return table(columns, rows, note)


TABLES: dict[str, Callable[[Meter], dict]] = {
    "memory": memory_table,
    "traffic": traffic_table,
    "time": time_table,
    "work": work_table,
    "band": band_table,
}


def replaced(document: str, name: str, lines: list[str]) -> str:
    """The document with the text between `<!-- name -->` and `<!-- end -->` exchanged."""
    begin = document.index(f"<!-- {name} -->\n") + len(f"<!-- {name} -->\n")
    end = document.index("<!-- end -->", begin)
    return document[:begin] + "\n".join(lines) + "\n" + document[end:]


def write(kept: dict[str, dict]) -> None:
    """Tables into tables.json, and all of that into the document."""
    everything = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    everything.update(kept)
    RESULTS.write_text(json.dumps(everything, indent=1) + "\n")
    document = DOCUMENT.read_text()
    for name, known in everything.items():
        document = replaced(document, name, markdown(known))
    DOCUMENT.write_text(document)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(TABLES)}; default: all")
    parser.add_argument(
        "--write", action="store_true", help="put them into tables.json and docs/npu_time_model.md"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        meter = Meter(build(Path(folder)))
        for name in arguments.tables or TABLES:
            measured = TABLES[name](meter)
            if arguments.write:
                write({name: measured})
            print("\n".join(markdown(measured)), end="\n\n")


if __name__ == "__main__":
    main()
