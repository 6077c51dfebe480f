"""Writes the tables of the READMEs from measured results, between their markers."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from asr_ascend.system.atomic import write_text
from asr_ascend.system.command import run_command
from benchmarks import cost_curve, machine, specification, tables
from benchmarks.implementations import IMPLEMENTATIONS, OURS

FOLDER = Path(__file__).parent
# The rows of the project's README, next to the memory floor.
TELLING = (OURS, "optimized_transducer", "torchaudio")
LOSS, CURVE = FOLDER / "results" / "loss.json", FOLDER / "results" / "cost_curve.json"


def replaced(document: str, name: str, text: str) -> str:
    """The document with ``text`` between <!-- name --> and <!-- end -->.

    Raises:
        ValueError: no such markers.
    """
    begin, end = f"<!-- {name} -->\n", "<!-- end -->"
    before, found, rest = document.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the document must have {begin.strip()} and then {end}, but has not.")
    return f"{before}{begin}{text.strip()}\n{end}{after}"


def cases_text(results: dict) -> str:
    """Every case with its table."""
    threads = results["settings"]["threads"]
    parts = [f"Measured {tables.machine_line(results)}"]
    for case in results["cases"]:
        parts += [tables.case_title(case), tables.case_table(case, threads)]
    if results["absent"]:
        names = ", ".join(results["absent"])
        parts.append(f"Not measured, since not installed there: {names}.")
    return "\n\n".join(parts)


def summary_text(results: dict, names: Sequence[str]) -> str:
    """One dated table of all cases; `names` are its rows."""
    threads = results["settings"]["threads"][-1]
    lead = (
        f"Milliseconds of forward and backward to the gradient by the logits on {threads} "
        f"thread{'s' * (threads > 1)}, median (as a multiple of ours, in place). "
        f"{tables.machine_line(results)}"
    )
    return f"{lead}\n\n{tables.summary_table(results, names)}"


def curve_text(results: dict) -> str:
    lead = (
        f"Nanoseconds per cell, {results['threads']} threads; in brackets as a multiple of the "
        f"memory floor at the same N and V. {tables.machine_line(results)}"
    )
    return f"{lead}\n\n{cost_curve.table(results)}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.readme", description=__doc__)
    parser.add_argument("--loss", type=Path, default=LOSS, help="from python -m benchmarks --json")
    parser.add_argument("--curve", type=Path, default=CURVE, help="from benchmarks.cost_curve")
    parser.add_argument("--root", type=Path, default=machine.REPOSITORY, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    loss, curve = (json.loads(path.read_text()) for path in (arguments.loss, arguments.curve))
    for path, parts in {
        Path("README.md"): {"benchmarks": summary_text(loss, TELLING)},
        Path("README.zh-CN.md"): {"benchmarks": summary_text(loss, TELLING)},
        Path("benchmarks/README.md"): {
            "summary": summary_text(loss, tuple(IMPLEMENTATIONS)),
            "cases": cases_text(loss),
            "specification": specification.table(loss),
            "cost curve": curve_text(curve),
        },
    }.items():
        document = (arguments.root / path).read_text()
        for name, text in parts.items():
            document = replaced(document, name, text)
        write_text(arguments.root / path, document)
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main, (ValueError,)))
