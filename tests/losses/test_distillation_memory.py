"""Peak memory of the distillation: one tensor of logits, and blocks of rows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the peak is reset through Linux' /proc"
)

MEASURE = """
import json, sys
from pathlib import Path
import torch
from asr_ascend.losses.distillation import collapse_blocks, distilled_rnnt_loss

def kilobytes(name):
    status = Path("/proc/self/status").read_text()
    return int(status.split(name + ":")[1].split()[0])

def problem(B, T, U, V, H):
    lengths = torch.full((B,), T), torch.full((B,), U)
    sizes = torch.randint(1, V, (B, U)), *lengths
    return torch.randn(B * T * (U + 1), H), torch.randn(V, H, requires_grad=True), sizes

def run(hidden, weight, sizes, options):
    blocks = (part @ weight.detach().T for part in hidden.split(200))
    teacher = collapse_blocks(blocks, *sizes, 0)
    rnnt, distance = distilled_rnnt_loss(
        hidden @ weight.T, teacher, *sizes, 0, block_bytes=2**22, **options
    )
    (rnnt + 0.1 * distance).backward()

shape, options = json.loads(sys.argv[1])
torch.set_num_threads(2)
# Every library of products sets up its own memory once; not what is measured here.
run(*problem(2, 40, 20, *shape[3:]), options)
inputs = problem(*shape)
inputs[1].grad = torch.zeros_like(inputs[1])
Path("/proc/self/clear_refs").write_text("5")
before = kilobytes("VmRSS")
run(*inputs, options)
print(1024 * (kilobytes("VmHWM") - before))
"""
B, T, U, V, H = 3, 120, 24, 5000, 32
LOGITS = B * T * (U + 1) * V * 4  # 180 MB


def peak_bytes(**options) -> int:
    """Above what was there before: largest over teacher, forward and backward pass."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, json.dumps([(B, T, U, V, H), options])],
        check=True,
        capture_output=True,
        text=True,
        # Freed memory goes back at once, so that only what is alive counts.
        env={**os.environ, "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_MMAP_THRESHOLD_": "65536"},
    )
    return int(done.stdout)


def test_teacher_student_and_gradient_take_one_tensor_of_logits():
    assert 0.95 * LOGITS < peak_bytes(reuse_logits=True) < 1.15 * LOGITS


def test_without_reuse_the_gradient_is_the_second():
    assert 1.95 * LOGITS < peak_bytes(reuse_logits=False) < 2.15 * LOGITS
