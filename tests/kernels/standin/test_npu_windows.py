"""Emission windows on NPU tensors, over the stand-in: an input of the operator."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from asr_ascend.losses import rnnt_loss, rnnt_loss_and_grad
from tests.support import emulated_operator as emulated
from tests.support import oracles
from tests.support.npu_cases import batch_of, check
from tests.support.standin_runtime import Runtime

WINDOWS = torch.tensor(
    [[[0, 2], [1, 4], [3, 6]], [[0, 1], [2, 3], [0, 0]], [[1, 9], [2, 3], [3, 5]]]
)
CASE = replace(
    oracles.make_case([(7, 3), (4, 2), (6, 3)], 11, blank=3, seed=1), emission_windows=WINDOWS
)


OPTIONS = [{}, {"clamp": 0.1, "fastemit_lambda": 0.3}]


@pytest.mark.parametrize("lengths_on", ["cpu", "npu"])
@pytest.mark.parametrize("reuse_logits", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_loss(options: dict[str, float], reuse_logits: bool, lengths_on: str) -> None:
    """Value, and gradient through autograd."""
    check(
        CASE,
        upstream=torch.tensor([1.0, -2.0, 0.5]),
        emission_windows=WINDOWS.to(lengths_on),
        lengths_on=lengths_on,
        reuse_logits=reuse_logits,
        **options,
    )


def test_loss_of_padded_logits() -> None:
    leaf = CASE.padded_logits().npu().requires_grad_()
    costs = rnnt_loss(leaf, *batch_of(CASE), CASE.blank, reduction="none", emission_windows=WINDOWS)
    costs.sum().backward()
    expected_costs, expected = oracles.exact(CASE)
    emulated.assert_costs(costs.detach().cpu(), expected_costs)
    oracles.assert_gradient(case_rows(leaf.grad.cpu()), expected, torch.float32)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("reuse_logits", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_loss_and_grad(options: dict[str, float], reuse_logits: bool, padded: bool) -> None:
    logits = (CASE.padded_logits() if padded else CASE.logits).npu()
    costs, gradient = rnnt_loss_and_grad(
        logits,
        *batch_of(CASE),
        CASE.blank,
        emission_windows=WINDOWS,
        reuse_logits=reuse_logits,
        **options,
    )
    assert (gradient.data_ptr() == logits.data_ptr()) == reuse_logits
    expected_costs, expected = oracles.exact(CASE, **options)
    emulated.assert_costs(costs.cpu(), expected_costs)
    gradient = case_rows(gradient.cpu()) if padded else gradient.cpu()
    oracles.assert_gradient(gradient, expected, torch.float32)


def case_rows(padded: torch.Tensor) -> torch.Tensor:
    assert (CASE.outside_lattice(padded) == 0).all()
    return CASE.take_packed(padded)


def test_no_value_comes_to_the_host(runtime: Runtime) -> None:
    logits, arguments, windows = CASE.logits.npu(), batch_of(CASE, "npu"), WINDOWS.npu()
    runtime.reset()
    rnnt_loss_and_grad(logits, *arguments, CASE.blank, emission_windows=windows)
    leaf = logits.detach().requires_grad_()
    rnnt_loss(leaf, *arguments, CASE.blank, emission_windows=windows).backward()
    runtime.synchronize()
    assert runtime.counters().device_to_host_copies == 0
