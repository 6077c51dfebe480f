"""Runs the tests of numbers and of learning with narrower instruction sets than this machine's.

    python -m tests.support.instruction_sets [pytest's options]

Each run restricts the CPU kernel by `ASR_ASCEND_ISA` and torch by `ATEN_CPU_CAPABILITY`. Tests that
depend on the last bits of one machine fail in one of them.
"""

from __future__ import annotations

import os
import subprocess
import sys

import torch

from asr_ascend.losses.backends import cpu_library

# From the C++ of the kernel outwards: what computes with floats, or learns with them.
FOLDERS = (
    *("tests/losses", "tests/models", "tests/decoding", "tests/training", "tests/checkpoints"),
    *("tests/evaluation", "tests/commands", "tests/benchmarks", "tests/kernels/kit"),
    *("tests/data", "tests/plugins", "tests/doctor"),
)
NARROWER = (("avx2", "avx2"), ("plain", "default"))
NOTHING_COLLECTED = 5


def variants() -> list[tuple[str, str]]:
    """(the kernel's set, torch's set), without what this machine lacks or already uses."""
    has = cpu_library.library().asr_ascend_isas().decode().split(",")
    own = has[0], torch.backends.cpu.get_cpu_capability().lower()
    return [variant for variant in NARROWER if variant[0] in has and variant != own]


def main(options: list[str]) -> int:
    """Exit status: 0 where every run passed."""
    failed = []
    for kernel, torch_set in variants():
        names = {"ASR_ASCEND_ISA": kernel, "ATEN_CPU_CAPABILITY": torch_set}
        title = " ".join(f"{name}={value}" for name, value in names.items())
        print(f"Tests of numbers and of learning with {title}:", flush=True)
        command = [sys.executable, "-m", "pytest", "-n", "auto", "-m", "not bench", *options]
        status = subprocess.run(
            [*command, *FOLDERS], env={**os.environ, **names}, check=False
        ).returncode
        if status not in (0, NOTHING_COLLECTED):
            failed.append(title)
    for title in failed:
        print(f"Failed with {title}.", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
