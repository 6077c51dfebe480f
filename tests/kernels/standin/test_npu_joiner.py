"""joiner_rnnt_loss on NPU tensors, over the stand-in, beside the same on the CPU."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from asr_ascend.losses.joiner import rows
from tests.support.joiner_batch import (
    CHUNK_BY_CHUNK,
    EACH_WAY,
    INPUTS,
    Batch,
    fused,
    make_batch,
    relative_errors,
)
from tests.support.standin_runtime import Runtime

WINDOWS = torch.tensor([[0, 3], [1, 5], [2, 6], [0, 8], [4, 8]]).repeat(4, 1, 1)
OPTIONS: dict[str, dict[str, Any]] = {
    "mean": {},
    "sum": {"reduction": "sum"},
    "none": {"reduction": "none"},
    "relu": {"activation": "relu"},
    "clamp": {"clamp": 0.1},
    "fastemit": {"fastemit_lambda": 0.3},
    "windows": {"emission_windows": WINDOWS},
    "weights": {"weights": torch.tensor([1.0, 0.0, 2.0, 0.5])},
    "dropped": {"max_dropped_mass": 0.05},
    "dropped and clamped": {"max_dropped_mass": 0.05, "clamp": 0.1},
    "half logits": {"logits_dtype": torch.float16},
}

each_way = pytest.mark.parametrize("way", EACH_WAY, ids=("sample", "chunk"))


def on_npu(batch: Batch) -> Batch:
    """Its tensors on the NPU but for the lengths, which the loop over samples needs here."""
    moved = {name: getattr(batch, name) for name in (*INPUTS, "targets")}
    return batch._replace(**{name: t.npu() for name, t in moved.items() if t is not None})


def run(batch: Batch, dtype: torch.dtype, **options: Any) -> tuple[Tensor, list[Tensor]]:
    """The loss and all gradients, on the CPU."""
    leaves = batch.as_leaves(dtype)
    value = fused(leaves, **options)
    value.backward(leaves.upstream(value.cpu()).to(value))
    return value.detach().cpu(), [leaf.grad.cpu() for leaf in leaves.inputs()]


def assert_as_on_the_cpu(
    batch: Batch, dtype: torch.dtype, tolerance: float, **options: Any
) -> None:
    expected_value, expected = run(batch, dtype, **options)
    value, gradients = run(on_npu(batch), dtype, **options)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, expected_value, rtol=1e-6, atol=0)
    assert [g.dtype for g in gradients] == [dtype] * len(expected)
    assert max(relative_errors(gradients, expected)) < tolerance


@each_way
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_value_and_gradients(options: dict[str, Any], way: dict[str, Any]) -> None:
    assert_as_on_the_cpu(make_batch(), torch.float32, 2e-6, **{**options, **way})


@each_way
@pytest.mark.parametrize(
    ("dtype", "step"), [(torch.float16, 2.0**-10), (torch.bfloat16, 2.0**-7)], ids=str
)
def test_half_precision(dtype: torch.dtype, step: float, way: dict[str, Any]) -> None:
    """To a step of the type: products round where the device's own do."""
    assert_as_on_the_cpu(make_batch(), dtype, step, **way)


@each_way
def test_without_bias(way: dict[str, Any]) -> None:
    assert_as_on_the_cpu(make_batch(bias=False), torch.float32, 2e-6, **way)


@each_way
def test_frozen_parts(way: dict[str, Any]) -> None:
    batch = make_batch()
    leaves = on_npu(batch).as_leaves(torch.float32, ("weight",))
    fused(leaves, **way).backward()
    on_cpu = batch.as_leaves(torch.float32, ("weight",))
    fused(on_cpu, **way).backward()
    assert relative_errors([leaves.weight.grad.cpu()], [on_cpu.weight.grad])[0] < 2e-6
    assert all(t.grad is None for t in leaves.inputs() if t is not leaves.weight)


@each_way
def test_forward_only(way: dict[str, Any]) -> None:
    batch = make_batch()
    with torch.no_grad():
        value = fused(on_npu(batch), reduction="none", **way)
    assert not value.requires_grad
    torch.testing.assert_close(value.cpu(), fused(batch, reduction="none"), rtol=1e-6, atol=0)


@pytest.mark.parametrize("targets_on", ["cpu", "npu"])
@pytest.mark.parametrize("lengths_on", ["cpu", "npu"])
def test_what_comes_to_the_host(runtime: Runtime, lengths_on: str, targets_on: str) -> None:
    """Lengths that are on the device; nothing of the labels; nothing in backward."""
    leaves = on_npu(make_batch()).as_leaves(torch.float32)
    leaves = leaves._replace(
        targets=leaves.targets.to(targets_on),
        logit_lengths=leaves.logit_lengths.to(lengths_on),
        target_lengths=leaves.target_lengths.to(lengths_on),
    )
    runtime.reset()
    loss = fused(leaves)
    in_forward = runtime.counters()
    loss.backward()
    runtime.synchronize()
    assert in_forward.device_to_host_copies == (0 if lengths_on == "cpu" else 2)
    if lengths_on == "cpu":
        assert in_forward.stream_synchronisations == in_forward.device_synchronisations == 0
    assert runtime.counters().device_to_host_copies == in_forward.device_to_host_copies


def test_chunks_ask_for_the_upstream_gradient(runtime: Runtime) -> None:
    leaves = on_npu(make_batch()).as_leaves(torch.float32)
    runtime.reset()
    loss = fused(leaves, **CHUNK_BY_CHUNK)
    in_forward = runtime.counters().device_to_host_copies
    loss.backward()
    runtime.synchronize()
    assert (in_forward, runtime.counters().device_to_host_copies) == (0, 1)


@each_way
@pytest.mark.parametrize("label", [11, -1, 0], ids=["above", "below", "blank"])
def test_a_label_out_of_place_costs_its_own_sample_alone(label: int, way: dict[str, Any]) -> None:
    batch = make_batch()
    targets = batch.targets.clone()
    targets[2, 0] = label
    wrong = batch._replace(targets=targets)
    with torch.no_grad():
        costs = fused(on_npu(wrong), reduction="none", **way).cpu()
        expected = fused(on_npu(batch), reduction="none", **way).cpu()
    assert costs[2].isnan()
    assert torch.equal(costs[[0, 1, 3]], expected[[0, 1, 3]])
    message = (
        f"`targets` must not contain `blank`, but is {label} at position 0 of sample 2."
        if label == 0
        else f"`targets` must be in [0, 10], but is {label} at position 0 of sample 2."
    )
    for given in (on_npu(wrong)._replace(targets=targets), on_npu(wrong)):
        options = {} if given.targets.device.type == "cpu" else {"validate": True}
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            fused(given, **options, **way)


def test_the_lattice_of_chunks_is_float32() -> None:
    """An NPU's vector unit has no float64."""
    batch = make_batch()
    for given, dtype in ((batch, torch.float64), (on_npu(batch), torch.float32)):
        made = rows.JoinerTensors.of(
            *given[:4], activation="tanh", product_dtype=torch.float32, logits_dtype=None
        )
        assert made.lattice_dtype() == dtype


def test_messages_name_the_sample() -> None:
    batch = on_npu(make_batch())
    batch.targets[2, 1] = 11
    with pytest.raises(ValueError) as raised:
        fused(batch, validate=True)
    assert str(raised.value) == (
        "`targets` must be in [0, 10], but is 11 at position 1 of sample 2."
    )
