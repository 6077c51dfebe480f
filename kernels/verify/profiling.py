"""Runs the loss under msprof, where that is, and takes the operators' lines from its summary."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from pathlib import Path

LOOP = Path(__file__).with_name("profiled_loop.py")
OPERATOR = "RnntLoss"


def profile(folder: Path) -> dict:
    """What msprof says of each RnntLoss launch: {"operators": [...]} or {"skipped": reason}."""
    msprof = shutil.which("msprof")
    if msprof is None:
        return {"skipped": "msprof is not in PATH"}
    folder.mkdir(parents=True, exist_ok=True)
    command = [msprof, f"--output={folder}", sys.executable, str(LOOP)]
    result = subprocess.run(command, capture_output=True, text=True)
    (folder / "msprof.log").write_text(result.stdout + result.stderr)
    if result.returncode != 0:
        return {"failed": f"msprof ended with status {result.returncode}: see {folder}/msprof.log"}
    summaries = sorted(folder.rglob("op_summary*.csv"))
    if not summaries:
        return {"failed": f"msprof left no op_summary*.csv in {folder}"}
    launches = [launch for path in summaries for launch in operators(path)]
    if not launches:
        return {"failed": f"no operator of {summaries[-1]} is named {OPERATOR}"}
    return {"summary": str(summaries[-1]), "operators": launches}


def operators(path: Path) -> list[dict[str, str]]:
    """The summary's lines about RnntLoss operators, with every column that msprof gives."""
    with path.open(newline="") as file:
        return [
            line
            for line in csv.DictReader(file)
            if any(OPERATOR in (line.get(key) or "") for key in ("Op Name", "OP Type", "Op Type"))
        ]
