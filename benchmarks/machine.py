"""What a measurement was made on: processor, memory, versions, commit."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import platform
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from asr_ascend.losses.backends import cpu_library
from kernels.verify.machine import commit, now, system, uncommitted_files

REPOSITORY = Path(__file__).resolve().parents[1]
Argument = TypeVar("Argument")
Result = TypeVar("Result")
PACKAGES = ("torch", "torchaudio", "optimized_transducer", "warprnnt_pytorch", "fast_rnnt")


def describe() -> dict:
    """All that a reader of the numbers may ask for; nothing that names the host or its folders."""
    return {
        "date": now(),
        "commit": commit(),
        "uncommitted_files": uncommitted_files(),
        "machine": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "memory_bytes": memory_bytes("MemTotal"),
            "load_average": list(os.getloadavg()),
            "system": system(),
            "instruction_set": cpu_library.library().asr_ascend_isa().decode(),
        },
        "versions": {"python": platform.python_version(), **package_versions()},
    }


def package_versions() -> dict[str, str]:
    """Of what is installed; of what was imported from elsewhere, as it says itself."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            if name in sys.modules:
                found[name] = getattr(sys.modules[name], "__version__", "unknown")
    return found


def processor_fields() -> dict[str, str]:
    """What /proc/cpuinfo says of the first processor; empty where there is no such file."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return {}
    return dict(
        (part.strip() for part in line.split(":", 1))
        for line in text.split("\n\n")[0].splitlines()
        if ":" in line
    )


def instruction_sets() -> str:
    """The processor's instruction sets, by the kernel's names; empty where it gives none."""
    fields = processor_fields()
    return fields.get("flags", fields.get("Features", ""))


def processor() -> str:
    """The processor's name with its family and model, since clouds blur the name."""
    fields = processor_fields()
    if not fields:
        return platform.processor() or platform.machine()
    name = fields.get("model name", platform.machine())
    known = [f"{key} {fields[key]}" for key in ("cpu family", "model") if key in fields]
    return f"{name} ({', '.join(known)})" if known else name


def memory_bytes(name: str) -> int | None:
    """A line of /proc/meminfo, such as MemAvailable."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    return next(
        (1024 * int(line.split()[1]) for line in text.splitlines() if line.startswith(name + ":")),
        None,
    )


def available_bytes() -> int:
    """Memory that a process may take now: the machine's, or its control group's if less."""
    limits = [memory_bytes("MemAvailable") or (1 << 62)]
    group = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError):  # no control group, or one without a limit
        fields = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        limits.append(int((group / "memory.max").read_text()) - int(fields.get("anon", 0)))
    return min(limits)


def with_peak_extra_bytes(
    call: Callable[[Argument], Result], argument: Argument
) -> tuple[Result, int | None]:
    """Result of a call, and what it added to the memory of this process at its worst.

    None where there is no Linux to tell.
    """
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        # Memory that was freed and kept would hide what the call takes.
        ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = status_bytes("VmRSS")
    except OSError:
        return call(argument), None
    result = call(argument)
    return result, max(0, status_bytes("VmHWM") - before)


def status_bytes(field: str) -> int:
    """A line of /proc/self/status."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split(field + ":")[1].split()[0])
