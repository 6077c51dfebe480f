"""The stand-in itself: what tests around the loss rely on, and what it must not let pass."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.support.standin_runtime import Runtime

ROOT = Path(__file__).resolve().parents[3]
X = torch.arange(12.0).reshape(3, 4)
Y = torch.tensor([[2.0], [-1.0], [0.5]])

OPERATIONS = {
    "add": lambda x, y: x + y,
    "add a number": lambda x, y: x + 1.5,
    "add scaled, in place": lambda x, y: x.clone().add_(y, alpha=-2.0),
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "mul by a number": lambda x, y: x * 3,
    "mul in place": lambda x, y: x.clone().mul_(y),
    "div": lambda x, y: x / y,
    "div by a number": lambda x, y: x / 3,
    "neg": lambda x, y: -x,
    "tanh": lambda x, y: y.tanh(),
    "sum": lambda x, y: x.sum(),
    "sum of a dimension": lambda x, y: x.sum(1),
    "sum kept": lambda x, y: x.sum(0, keepdim=True),
    "mean": lambda x, y: x.mean(),
    "zeros": lambda x, y: torch.zeros_like(x),
    "ones": lambda x, y: torch.ones_like(x),
    "fill": lambda x, y: x.new_full((2, 2), 2.5),
    "transposed copy": lambda x, y: x.t().contiguous(),
    "strided copy": lambda x, y: x[:, 1::2].contiguous(),
    "float16": lambda x, y: y.half(),
    "bfloat16": lambda x, y: (x / 7).bfloat16(),
    "int64": lambda x, y: x.long(),
    "matmul": lambda x, y: x.t() @ y,
    "linear": lambda x, y: torch.nn.functional.linear(x, x, y[:, 0]),
    "floor division": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "remainder": lambda x, y: x % y,
    "comparison": lambda x, y: (x < y) | (x >= 3),
    "where": lambda x, y: torch.where(x > y, x, 0.0),
    "clamp": lambda x, y: x.clamp(2, 7) + x.clamp(min=5) + x.clamp(max=3),
    "cat": lambda x, y: torch.cat([x, y], 1),
    "cumsum": lambda x, y: x.long().cumsum(1),
    "pad": lambda x, y: torch.nn.functional.pad(x.long(), (1, 2)),
    "arange": lambda x, y: torch.arange(2, 7, 2, device=x.device),
    "searchsorted": lambda x, y: torch.searchsorted(x[0].contiguous(), x[1] / 2, right=True),
    "gather": lambda x, y: x.gather(1, (y > 0).long()),
    "scatter": lambda x, y: x.scatter(1, (y > 0).long(), y),
    "indexed": lambda x, y: x[(y[:, 0] > 0).long(), (y[:, 0] < 1).long()],
    "index_select": lambda x, y: x.index_select(1, torch.tensor([3, 0, 3]).to(x.device)),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_around_the_loss(name: str) -> None:
    operation = OPERATIONS[name]
    actual, expected = operation(X.npu(), Y.npu()), operation(X, Y)
    assert actual.device.type == "npu" and actual.dtype == expected.dtype
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-6, atol=0)


def test_copies_are_counted_by_direction(runtime: Runtime) -> None:
    on_device = X.npu()
    on_device.cpu()
    counters = runtime.counters()
    assert (counters.host_to_device_copies, counters.host_to_device_bytes) == (1, 48)
    assert (counters.device_to_host_copies, counters.device_to_host_bytes) == (1, 48)
    assert counters.stream_synchronisations >= 1
    runtime.reset()
    assert runtime.counters().device_to_host_copies == 0


def test_new_device_memory_is_nan() -> None:
    """What no kernel has written can't pass for a result."""
    torch.npu.empty_cache()
    assert torch.empty(5000, device="npu").cpu().isnan().all()


def test_an_operator_that_it_lacks_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import torch; torch.ones(2).npu().isfinite().cpu()"],
        env={**os.environ, "TASK_QUEUE_ENABLE": "0"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert "stand-in: operator IsFinite is not there." in done.stderr


def test_nothing_that_a_user_builds_or_imports_knows_it() -> None:
    sources = [
        *ROOT.glob("asr_ascend/losses/*.py"),
        *ROOT.glob("kernels/torch_binding/*.cpp"),
        ROOT / "kernels" / "torch_binding" / "setup.py",
        ROOT / "kernels" / "CMakeLists.txt",
    ]
    assert len(sources) > 12
    for path in sources:
        text = path.read_text(encoding="utf-8").lower()
        assert "standin" not in text and "emulator" not in text, path
