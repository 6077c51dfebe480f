"""What crosses between host and device and who waits for whom, as the stand-in runtime counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from asr_ascend.losses import rnnt_loss, rnnt_loss_and_grad
from tests.support import emulated_operator as emulated
from tests.support import oracles
from tests.support.npu_cases import batch_of
from tests.support.standin_runtime import Runtime

assert "TASK_QUEUE_ENABLE" not in os.environ

CASE = oracles.make_case([(7, 3), (4, 2), (12, 5)], 11, blank=3)


def flushed(runtime: Runtime) -> dict[str, int]:
    """Counters when all is done; the wait for that is not counted."""
    runtime.synchronize()
    counters = runtime.counters()
    counted = {name: getattr(counters, name) for name, _ in counters._fields_}
    assert counted["device_synchronisations"] >= 1
    counted["device_synchronisations"] -= 1
    return counted


def assert_nobody_waited(counted: dict[str, int]) -> None:
    assert counted["device_to_host_copies"] == 0
    for kind in ("stream", "event", "device"):
        assert counted[f"{kind}_synchronisations"] == 0, kind


@pytest.mark.parametrize("reuse_logits", [False, True])
@pytest.mark.parametrize("lengths_on", ["cpu", "npu"])
def test_forward_and_backward_bring_nothing_to_the_host(
    lengths_on: str, reuse_logits: bool, runtime: Runtime
) -> None:
    leaf = CASE.logits.npu().requires_grad_()
    arguments = *batch_of(CASE, lengths_on), CASE.blank
    logits = leaf * 1
    runtime.reset()
    rnnt_loss(logits, *arguments, reuse_logits=reuse_logits).backward()
    counted = flushed(runtime)
    assert_nobody_waited(counted)
    # Lengths come over once, as int32, and are kept for backward.
    assert counted["host_to_device_copies"] == (2 if lengths_on == "cpu" else 0)
    assert counted["host_to_device_bytes"] == (2 * 3 * 4 if lengths_on == "cpu" else 0)
    expected = ["aclnnRnntLossForward", "aclnnRnntLossBackward"]
    assert [name for name in runtime.launches() if "Rnnt" in name] == expected


def test_padded_logits_bring_nothing_to_the_host(runtime: Runtime) -> None:
    leaf = CASE.padded_logits().npu().requires_grad_()
    arguments = *batch_of(CASE), CASE.blank
    runtime.reset()
    rnnt_loss(leaf, *arguments).backward()
    counted = flushed(runtime)
    assert_nobody_waited(counted)
    assert counted["host_to_device_bytes"] == 2 * 3 * 4 + CASE.logits.shape[0] * 8


@pytest.mark.parametrize("function", [rnnt_loss, rnnt_loss_and_grad])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_padded_logits_wait_once_for_lengths_on_the_device(
    dtype: torch.dtype, function: Callable[..., Any], runtime: Runtime
) -> None:
    """As WeNet, ESPnet, NeMo, SpeechBrain and FunASR call it: the lengths come to the host."""
    leaf = CASE.padded_logits().npu().requires_grad_()
    targets, *lengths = batch_of(CASE, "npu")
    arguments = targets, *(value.to(dtype) for value in lengths), CASE.blank
    runtime.reset()
    result = function(leaf, *arguments)
    if function is rnnt_loss:
        result.backward()
    counted = flushed(runtime)
    assert counted["device_to_host_copies"] == 1
    assert counted["device_to_host_bytes"] == 2 * 3 * 4
    assert counted["host_to_device_bytes"] == CASE.logits.shape[0] * 8


def test_loss_and_grad_bring_nothing_to_the_host(runtime: Runtime) -> None:
    arguments = CASE.logits.npu(), *batch_of(CASE, "npu"), CASE.blank
    runtime.reset()
    rnnt_loss_and_grad(*arguments)
    counted = flushed(runtime)
    assert_nobody_waited(counted)
    assert counted["host_to_device_copies"] == 0


def test_validate_is_what_brings_values_to_the_host(runtime: Runtime) -> None:
    arguments = CASE.logits.npu(), *batch_of(CASE, "npu"), CASE.blank
    runtime.reset()
    rnnt_loss(*arguments, validate=True)
    # targets, both lengths, and afterwards the kernel's status
    assert runtime.counters().device_to_host_copies == 4


def test_the_gradient_takes_no_memory_where_logits_are_reused(runtime: Runtime) -> None:
    case = oracles.make_case([(100, 40)], 200)
    logits_bytes = case.logits.numel() * 4
    peaks = {}
    for reuse_logits in (False, True):
        logits = case.logits.npu().requires_grad_() * 1
        arguments = *batch_of(case), case.blank
        torch.npu.empty_cache()
        torch.npu.reset_peak_memory_stats()
        before = torch.npu.memory_allocated()
        rnnt_loss(logits, *arguments, reuse_logits=reuse_logits).backward()
        peaks[reuse_logits] = torch.npu.max_memory_allocated() - before
    # `* 1` above passes its gradient through one product of its own.
    workspace = 17 * 2**20
    assert peaks[True] < logits_bytes + workspace
    assert peaks[False] - peaks[True] > 0.9 * logits_bytes


def test_two_streams(runtime: Runtime) -> None:
    """Each stream's work runs only when somebody waits for it, so a missing order would show."""
    streams = [torch.npu.Stream(), torch.npu.Stream()]
    cases = [oracles.make_case([(6 + i, 3), (4, 2)], 9, blank=i, seed=i) for i in range(2)]
    leaves, values = [], []
    arguments = [batch_of(case, "npu") for case in cases]
    logits = [case.logits.npu() for case in cases]
    for case, stream, scores, batch in zip(cases, streams, logits, arguments, strict=True):
        stream.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(stream):
            leaves.append(scores.requires_grad_())
            values.append(rnnt_loss(leaves[-1], *batch, case.blank, reduction="none"))
            values[-1].sum().backward()
    for stream in streams:
        torch.npu.current_stream().wait_stream(stream)
    for case, leaf, value in zip(cases, leaves, values, strict=True):
        costs, gradient = oracles.exact(case)
        emulated.assert_costs(value.detach().cpu(), costs)
        oracles.assert_gradient(leaf.grad.cpu(), gradient, torch.float32)


def test_the_stand_in_shows_a_missing_order(runtime: Runtime) -> None:
    """The same without wait_stream: the other stream has not run, so its result is not there."""
    stream = torch.npu.Stream()
    arguments = CASE.logits.npu(), *batch_of(CASE, "npu"), CASE.blank
    host = torch.zeros(3).pin_memory()
    runtime.reset()
    with torch.npu.stream(stream):
        value = rnnt_loss(*arguments, reduction="none")
        host.copy_(value, non_blocking=True)
    torch.npu.current_stream().synchronize()
    assert host.tolist() == [0.0] * 3
    stream.synchronize()
    emulated.assert_costs(host, oracles.exact(CASE)[0])


TASK_QUEUE_PROGRAM = """
import json, sys
import torch
from tests.support.npu_cases import run
from tests.support import oracles
case = oracles.make_case([(7, 3), (4, 2), (12, 5)], 11, blank=3)
costs, gradient = run(case, lengths_on=sys.argv[1], reuse_logits=sys.argv[2] == "True")
print(json.dumps([costs.tolist(), gradient.tolist()]))
"""


@pytest.mark.parametrize("mode", ["0", "2"])
def test_task_queue(mode: str) -> None:
    """0: the calling thread runs aclnn; 2: another runs both phases.

    1, where another runs the second phase, is what every other test here has.
    """
    done = subprocess.run(
        [sys.executable, "-c", TASK_QUEUE_PROGRAM, "cpu", "True"],
        env={
            **os.environ,
            "TASK_QUEUE_ENABLE": mode,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    costs, gradient = map(torch.tensor, json.loads(done.stdout.splitlines()[-1]))
    expected_costs, expected = oracles.exact(CASE)
    emulated.assert_costs(costs, expected_costs)
    oracles.assert_gradient(gradient, expected, torch.float32)
