"""Peak memory of a call, measured by the kernel in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

needs_linux = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the peak is reset through Linux' /proc"
)

_MEASURE = """
import json, sys
from pathlib import Path
import torch

def kilobytes(name):
    status = Path("/proc/self/status").read_text()
    return int(status.split(name + ":")[1].split()[0])

shape, options = json.loads(sys.argv[1])
torch.set_num_threads(2)
{functions}
# Every library of products sets up its own memory once; not what is measured here.
run(*problem(2, 40, 20, *shape[3:]), options)
inputs = problem(*shape)
# The gradients that the caller gets are no memory of the loss.
for leaf in leaves(*inputs):
    leaf.grad = torch.zeros_like(leaf)
Path("/proc/self/clear_refs").write_text("5")
before = kilobytes("VmRSS")
run(*inputs, options)
print(1024 * (kilobytes("VmHWM") - before))
"""


def peak_bytes(functions: str, shape: tuple[int, ...], options: dict[str, Any]) -> int:
    """The most that was resident while `run` ran, above what was there before.

    functions: source of `problem(B, T, U, V, H)`, which makes the arguments of `run(...,
    options)`, and of `leaves(...)`, those of them that get gradients.
    """
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            _MEASURE.replace("{functions}", functions),
            json.dumps([shape, options]),
        ],
        check=True,
        capture_output=True,
        text=True,
        # Freed memory goes back at once, so that only what is alive counts.
        env={**os.environ, "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_MMAP_THRESHOLD_": "65536"},
    )
    return int(done.stdout)
