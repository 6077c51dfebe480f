"""Speed and memory of the RNN-T loss beside other implementations and the machine's memory.

Each implementation's value and gradient are compared with float64 before it is timed; where they
are wrong, no time is printed and the exit status is 1. What does not fit, or would take too long,
is left out with the reason.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from asr_ascend.system.atomic import write_json
from asr_ascend.system.command import run_command
from benchmarks import implementations, machine, measuring, specification, tables
from benchmarks.cases import CASES

SCHEMA_VERSION = 1


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=tables.LEGEND + "\n\nSee also: python -m benchmarks.cost_curve --help",
    )
    cores = os.cpu_count() or 1
    made.add_argument("--list", action="store_true", help="cases and implementations, then stop")
    made.add_argument(
        "--cases", type=names_of(CASES, "case"), metavar="NAMES", default=list(CASES),
        help="comma-separated (default: all)",
    )  # fmt: skip
    made.add_argument(
        "--implementations", metavar="NAMES", default=None,
        type=names_of(implementations.IMPLEMENTATIONS, "implementation"),
        help="comma-separated (default: all that are installed)",
    )  # fmt: skip
    made.add_argument(
        "--threads", type=counts, metavar="NUMBERS", default=sorted({1, cores}),
        help=f"comma-separated numbers of threads (default: 1,{cores}); ratios are at the largest",
    )  # fmt: skip
    made.add_argument(
        "--repetitions", type=positive, default=15, metavar="N",
        help="at most so many of each (default: %(default)s)",
    )  # fmt: skip
    made.add_argument(
        "--seconds", type=float, default=3.0, metavar="S",
        help="that the repetitions of one may take; a first call that takes longer is the only one "
        "(default: %(default)s)",
    )  # fmt: skip
    made.add_argument("--slow", action="store_true", help="also what takes over 45 s a call")
    made.add_argument("--json", type=Path, metavar="FILE", help="write everything measured there")
    return made


def names_of(known: dict, kind: str):
    """A parser of comma-separated names."""

    def parse(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"`{name}` is no {kind}; there are {', '.join(known)}."
                )
        return list(dict.fromkeys(names))

    return parse


def positive(text: str) -> int:
    if not text.strip().isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, but is {text!r}.")
    return int(text)


def counts(text: str) -> list[int]:
    return sorted({positive(part) for part in text.split(",")})


def chosen(arguments: argparse.Namespace, absent: dict[str, str]) -> list[str]:
    """Names of the implementations to measure; those asked for must be there."""
    if arguments.implementations is None:
        return [name for name in implementations.IMPLEMENTATIONS if name not in absent]
    for name in arguments.implementations:
        if name in absent:
            raise SystemExit(f"{name} is {absent[name]}.")
    return arguments.implementations


def show_list(absent: dict[str, str]) -> None:
    rows = [[name, str(case), f"{case.rows:,}"] for name, case in CASES.items()]
    print(tables.aligned(["case", "B x T x U x V", "rows"], rows), end="\n\n")
    rows = [
        [name, one.title, one.layout, absent.get(name, "yes")]
        for name, one in implementations.IMPLEMENTATIONS.items()
    ]
    print(tables.aligned(["implementation", "", "layout", "here"], rows))


def measure(arguments: argparse.Namespace, names: list[str], absent: dict[str, str]) -> dict:
    """All results; prints each case's table when it is done."""
    settings = measuring.Settings(
        tuple(arguments.threads),
        arguments.repetitions,
        arguments.seconds,
        float("inf") if arguments.slow else measuring.Settings.slowest,
    )
    results = {
        "schema_version": SCHEMA_VERSION,
        **machine.describe(),
        "settings": {
            "threads": arguments.threads,
            "repetitions": arguments.repetitions,
            "seconds": arguments.seconds,
            "slow": arguments.slow,
        },
        "absent": absent,
        "cases": [],
    }
    print(tables.machine_line(results), end="\n\n")
    for name in arguments.cases:
        print(f"{name} ...", file=sys.stderr)
        ones = [implementations.IMPLEMENTATIONS[one] for one in names]
        case = measuring.measure_case(CASES[name], ones, settings)
        results["cases"].append(case)
        print(tables.case_title(case), end="\n\n")
        print(tables.case_table(case, arguments.threads), end="\n\n", flush=True)
        if case["no_floor"]:
            print(f"No memory floor: {case['no_floor']}", end="\n\n")
    return results


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    absent = implementations.absent()
    if arguments.list:
        show_list(absent)
        return 0
    results = measure(arguments, chosen(arguments, absent), absent)
    print(tables.LEGEND, end="\n\n")
    print("The specification's shapes; benchmarks/README.md explains its figures:", end="\n\n")
    print(specification.table(results), end="\n\n")
    for name, reason in absent.items():
        print(f"{name}: {reason}.")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        write_json(arguments.json, results)
    entries = [entry for case in results["cases"] for entry in case["results"]]
    return int(any("refused" in entry or "failed" in entry for entry in entries))


if __name__ == "__main__":
    sys.exit(run_command(main))
