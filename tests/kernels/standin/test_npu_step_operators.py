"""Every operator of a training step has a kernel in the real torch_npu.

Where it has none, torch_npu copies the tensors to the CPU and back (`asr_ascend.train` makes that
an error). A process of the other Python trains a tiny model on its CPU and prints the operators;
torch's table of kernels says what torch_npu would do with each. This shows that a kernel is there,
not that it is right.
"""

from __future__ import annotations

import json
import os
import subprocess

import pytest
import torch

FALLBACK = "[backend fallback]"
# Of a CPU alone: what stands for it on an NPU.
ON_THE_CPU = {
    "aten::mkldnn_rnn_layer": "aten::lstm.input",
    "aten::mkldnn_rnn_layer_backward": "aten::lstm.input",
    # Under a mode of Python torch takes this overload; without one that of lengths as numbers.
    "aten::_ctc_loss.Tensor": "aten::_ctc_loss",
    "aten::_ctc_loss_backward.Tensor": "aten::_ctc_loss_backward",
    # Of the attention that torch takes under a mode.
    "aten::_safe_softmax": "aten::scaled_dot_product_attention",
}
HALF = {"float16", "bfloat16"}


def kernel_on_npu(name: str) -> str | None:
    """Torch's line about an operator on an NPU; None: an operator that this torch doesn't know."""
    try:
        table = torch._C._dispatch_dump_table(name)
    except RuntimeError:
        return None
    lines = [line for line in table.splitlines() if line.startswith("PrivateUse1:")]
    return lines[0] if lines else None


@pytest.fixture(scope="module")
def operators() -> dict[str, list[str]]:
    environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    done = subprocess.run(
        [os.environ["ASR_ASCEND_PYTHON"], "-m", "tests.support.training_operators"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def test_every_operator_has_a_kernel(operators: dict[str, list[str]]) -> None:
    assert len(operators) > 80
    given = {ON_THE_CPU.get(name, name) for name in operators}
    lines = {name: kernel_on_npu(name) for name in given}
    assert sum(line is None for line in lines.values()) < len(lines) / 10, lines
    assert [name for name, line in lines.items() if line and FALLBACK in line] == []


def test_the_table_knows_what_has_none() -> None:
    assert FALLBACK in str(kernel_on_npu("aten::lgamma.out"))
    assert FALLBACK in str(kernel_on_npu("aten::_ctc_loss.Tensor"))


def test_operators_known_to_be_weak_are_not_used(operators: dict[str, list[str]]) -> None:
    """bfloat16 logsumexp (verl #198), stft (vllm-omni #7520), fused AdamW (torchtune #2646).

    Features are computed on the CPU, by the process that reads audio.
    """
    assert not [name for name in operators if "stft" in name or "fft" in name]
    assert not [name for name in operators if "_fused_adam" in name]
    for name, dtypes in operators.items():
        if "logsumexp" in name or "log_softmax" in name:
            assert not HALF & set(dtypes), name
