"""First day on a 910B: are the numbers right, and how fast is it? See kernels/verify_910b.sh.

    python kernels/verify [--quick] [--out FOLDER] [--skip SECTION ...]

Writes verify.json and verify.md and prints the latter. Each section runs in a process of its own,
so that one that crashes or hangs costs no other its results. Exit status: 0 if every number is
right, 1 if one is wrong or could not be measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from kernels.verify import machine, profiling, report  # noqa: E402

ROW_SECTIONS = ("precision", "cases", "options", "behaviour", "emulator")
SECTIONS = (*ROW_SECTIONS, "times")


def say(text: str) -> None:
    print(f"verify: {text}", file=sys.stderr, flush=True)


def entries_of(section: str, device: str, quick: bool) -> Iterator[dict]:
    """What one section measures, in this process."""
    # Only here: they import torch, and with it the device.
    from kernels.verify import rows, times

    target = rows.Target(device, device == "npu" and machine.is_stand_in())
    if section == "times":
        yield from times.times(target, quick)
    else:
        yield from (row.to_json() for row in rows.SECTIONS[section](target, quick))


def not_measured(section: str, reason: str) -> dict:
    if section == "times":
        return {"shape": "what follows", "numbers": f"not measured: {reason}"}
    return {
        **{"section": section, "name": "what follows", "quantity": "", "measured": None},
        **{"expected": None, "tolerance": None, "pass": None, "detail": reason},
    }


def measure_section(section: str, device: str, quick: bool, lines: Path) -> None:
    """Writes entries as they come, so that they outlive a crash."""
    with lines.open("w") as file:
        try:
            for entry in entries_of(section, device, quick):
                file.write(json.dumps(entry, allow_nan=False) + "\n")
                file.flush()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            file.write(json.dumps(not_measured(section, reason)) + "\n")
            raise


def run_section(section: str, arguments: argparse.Namespace, folder: Path) -> list[dict]:
    lines, log = folder / f"{section}.jsonl", folder / f"{section}.log"
    lines.unlink(missing_ok=True)
    command = [sys.executable, str(HERE), "--section", section, "--device", arguments.device]
    command += ["--out", str(folder), *(["--quick"] if arguments.quick else [])]
    start, reason = time.monotonic(), ""
    with log.open("w") as file:
        try:
            status = subprocess.run(
                command, stdout=file, stderr=file, timeout=arguments.timeout
            ).returncode
            if status not in (0, 1):
                reason = f"the process ended with status {status}; see {log.name}"
        except subprocess.TimeoutExpired:
            reason = f"the process did not end within {arguments.timeout} s; see {log.name}"
    entries = (
        [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    )
    if not entries and not reason:
        reason = f"the process could not start; see {log.name}"
    if reason:
        entries.append(not_measured(section, reason))
    right = sum(report.is_right(entry) for entry in entries)
    say(f"{section}: {right} of {len(entries)} right, {time.monotonic() - start:.0f} s")
    return entries


def collect(arguments: argparse.Namespace, folder: Path) -> dict:
    stand_in = arguments.device == "npu" and machine.is_stand_in()
    results: dict = {
        "schema_version": report.SCHEMA_VERSION,
        "verdict": "failed",
        "on_a_chip": arguments.device == "npu" and not stand_in,
        "quick": arguments.quick,
        "skipped_sections": arguments.skip,
        "machine": machine.describe(arguments.device, stand_in),
        "versions": machine.versions(),
        "build": machine.build_record(),
        "rows": [],
        "times": [],
        "profile": {"skipped": "not asked for"},
    }
    for section in SECTIONS:
        if section not in arguments.skip:
            entries = run_section(section, arguments, folder)
            results["times" if section == "times" else "rows"].extend(entries)
            save(results, folder)
    if arguments.device == "npu" and "profile" not in arguments.skip:
        results["profile"] = profiling.profile(folder / "msprof")
    results["verdict"] = report.verdict(results)
    save(results, folder)
    return results


def save(results: dict, folder: Path) -> None:
    (folder / "verify.json").write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="verify", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the small cases alone")
    parser.add_argument("--out", type=Path, default=machine.REPOSITORY / "outputs" / "verify_910b")
    parser.add_argument("--skip", nargs="+", default=[], choices=[*SECTIONS, "profile"])
    parser.add_argument("--device", default="npu", choices=["npu", "cpu"], help="cpu: try the kit")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds for a section")
    parser.add_argument("--section", choices=SECTIONS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder = arguments.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.section:
        lines = folder / f"{arguments.section}.jsonl"
        measure_section(arguments.section, arguments.device, arguments.quick, lines)
        return 0
    results = collect(arguments, folder)
    text = report.markdown(results)
    (folder / "verify.md").write_text(text)
    print(text)
    say(f"{results['verdict']}. To send back: {folder}/verify.json and verify.md.")
    return 0 if results["verdict"] == "passed" else 1


if __name__ == "__main__":
    raise SystemExit(main())
