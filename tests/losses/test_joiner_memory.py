"""Peak memory of joiner_rnnt_loss, measured by the kernel in a process of its own."""

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
from asr_ascend.losses import joiner_rnnt_loss

def kilobytes(name):
    status = Path("/proc/self/status").read_text()
    return int(status.split(name + ":")[1].split()[0])

def problem(B, T, U, V, H):
    inputs = [torch.randn(B, T, H), torch.randn(B, U + 1, H), torch.randn(V, H), torch.randn(V)]
    lengths = torch.full((B,), T), torch.full((B,), U)
    return [x.requires_grad_() for x in inputs], (torch.randint(1, V, (B, U)), *lengths, 0)

def run(inputs, rest, options):
    loss = joiner_rnnt_loss(*inputs, *rest, **options)
    if loss.requires_grad:
        loss.sum().backward()

shape, options, grad = json.loads(sys.argv[1])
torch.set_num_threads(2)
torch.set_grad_enabled(grad)
# Every library of products sets up its own memory once; not what is measured here.
warm = problem(2, 40, 20, *shape[3:])
run(*warm, options)
del warm
inputs, rest = problem(*shape)
# The gradients that the caller gets are no memory of the loss.
for leaf in inputs:
    leaf.grad = torch.zeros_like(leaf)
Path("/proc/self/clear_refs").write_text("5")
before = kilobytes("VmRSS")
run(inputs, rest, options)
print(1024 * (kilobytes("VmHWM") - before))
"""


def peak_bytes(shape, grad=True, **options) -> int:
    """Above what was there before: largest over the forward and the backward pass."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, json.dumps([shape, options, grad])],
        check=True,
        capture_output=True,
        text=True,
        # Freed memory goes back at once, so that only what is alive counts.
        env={
            **os.environ,
            "MALLOC_TRIM_THRESHOLD_": "0",
            "MALLOC_MMAP_THRESHOLD_": "65536",
        },
    )
    return int(done.stdout)


V, H = 5000, 32


@pytest.mark.parametrize("grad", [True, False], ids=("training", "evaluation"))
def test_sample_by_sample_takes_one_sample(grad):
    B, T, U = 6, 120, 24
    one_sample = T * (U + 1) * V * 4  # 60 MB
    peak = peak_bytes((B, T, U, V, H), grad, reduction="mean")
    assert 0.95 * one_sample < peak < 1.25 * one_sample


def test_chunk_by_chunk_takes_a_fiftieth():
    B, T, U = 2, 250, 50
    logits = B * T * (U + 1) * V * 4  # 510 MB
    peak = peak_bytes((B, T, U, V, H), reduction="none", max_bytes=2**22)
    assert peak < 0.02 * logits
