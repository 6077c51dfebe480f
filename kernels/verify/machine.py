"""What the results were measured on: chip, drivers, versions, commit."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path

from asr_ascend.doctor.machine import is_stand_in as is_stand_in

REPOSITORY = Path(__file__).resolve().parents[2]
DRIVER = Path("/usr/local/Ascend/driver/version.info")
BUILD_RECORD = REPOSITORY / "build" / "npu" / "environment.txt"
VARIABLES = re.compile(r"ASCEND_|ASR_ASCEND_|TASK_QUEUE_ENABLE$|OMP_NUM_THREADS$|PYTORCH_NPU_")


def device_name(device: str, stand_in: bool) -> str:
    if device != "npu":
        return "a CPU"
    if stand_in:
        return "the stand-in for an NPU"
    import torch

    try:
        return torch.npu.get_device_name()
    except (AttributeError, RuntimeError):
        return "an NPU that torch can't use"


def output_of(*command: str) -> str | None:
    """What a program prints, or None where it is missing or fails."""
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=60, cwd=REPOSITORY
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


def commit() -> str | None:
    """The checkout's commit; None outside of a git checkout."""
    return output_of("git", "rev-parse", "HEAD")


def uncommitted_files() -> int | None:
    """Tracked files that differ from the commit; None outside of a git checkout."""
    changes = output_of("git", "status", "--porcelain", "--untracked-files=no")
    return None if changes is None else len(changes.splitlines())


def system() -> str:
    """Operating system, its release, and the processor's architecture."""
    return f"{platform.system()} {platform.release()} {platform.machine()}"


def now() -> str:
    """The time of a measurement: UTC, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in ("torch", "torch_npu", "numpy", "asr-ascend"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    found["driver"] = DRIVER.read_text().strip() if DRIVER.is_file() else None
    found["commit"] = commit()
    changes = uncommitted_files()
    found["uncommitted_changes"] = None if changes is None else str(changes)
    return found


def build_record() -> dict[str, str]:
    """The environment that kernels/build.sh wrote down, or nothing."""
    if not BUILD_RECORD.is_file():
        return {}
    lines = BUILD_RECORD.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def describe(device: str, stand_in: bool) -> dict:
    """Everything about the machine that a reader of the results may ask for."""
    return {
        "device": device_name(device, stand_in),
        "host": system(),
        "processors": os.cpu_count(),
        "npu_smi": output_of("npu-smi", "info"),
        "date": now(),
        "environment": {
            name: value for name, value in sorted(os.environ.items()) if VARIABLES.match(name)
        },
    }
