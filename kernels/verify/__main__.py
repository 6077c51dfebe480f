"""First day on a 910B: are the numbers right, and how fast is it? See kernels/verify_910b.sh.

    python kernels/verify [--quick] [--out FOLDER] [--skip SECTION ...]

Writes verify.json and verify.md and prints the latter. Exit status: 0 if every number is right,
1 if one is wrong or could not be measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import machine
import profiling
import report
from rows import SECTIONS, Row, Target
from times import times


def say(text: str) -> None:
    print(f"verify: {text}", file=sys.stderr, flush=True)


def checked_rows(target: Target, quick: bool, skip: list[str]) -> list[Row]:
    """Rows of all sections; a section that breaks is a row that could not be measured."""
    rows: list[Row] = []
    for section, check in SECTIONS.items():
        if section in skip:
            continue
        start = time.monotonic()
        found: list[Row] = []
        try:
            found.extend(check(target, quick))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            found.append(Row(section, "section", "", None, None, None, None, reason))
        right = sum(row.passed is True for row in found)
        say(f"{section}: {right} of {len(found)} right, {time.monotonic() - start:.1f} s")
        rows.extend(found)
    return rows


def collect(target: Target, quick: bool, skip: list[str], folder: Path) -> dict:
    results = {
        "schema_version": report.SCHEMA_VERSION,
        "on_a_chip": target.device == "npu" and not target.stand_in,
        "quick": quick,
        "skipped_sections": skip,
        "machine": machine.describe(target.device, target.stand_in),
        "versions": machine.versions(),
        "build": machine.build_record(),
        "rows": [row.to_json() for row in checked_rows(target, quick, skip)],
        "times": [] if "times" in skip else times(target, quick),
        "profile": {"skipped": "not asked for"},
    }
    if target.device == "npu" and "profile" not in skip:
        results["profile"] = profiling.profile(folder / "msprof")
    results["verdict"] = report.verdict(results)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="verify", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the small cases alone")
    parser.add_argument("--out", type=Path, default=machine.REPOSITORY / "outputs" / "verify_910b")
    parser.add_argument("--skip", nargs="+", default=[], choices=[*SECTIONS, "times", "profile"])
    parser.add_argument("--device", default="npu", choices=["npu", "cpu"], help="cpu: try the kit")
    arguments = parser.parse_args()
    target = Target(arguments.device, arguments.device == "npu" and machine.is_stand_in())
    if target.device == "npu":
        import torch

        if not (hasattr(torch, "npu") and torch.npu.is_available()):
            say(
                "there is no NPU that torch can use: kernels/build.sh --check says what is missing."
            )
            return 1
    folder = arguments.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    results = collect(target, arguments.quick, arguments.skip, folder)
    (folder / "verify.json").write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")
    text = report.markdown(results)
    (folder / "verify.md").write_text(text)
    print(text)
    say(f"{results['verdict']}. To send back: {folder}/verify.json and verify.md.")
    return 0 if results["verdict"] == "passed" else 1


if __name__ == "__main__":
    raise SystemExit(main())
