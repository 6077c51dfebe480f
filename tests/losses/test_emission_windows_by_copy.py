"""Emission windows for operators that know none: the copy that closes them gives the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from asr_ascend.losses import rnnt_loss_and_grad
from tests.support import oracles
from tests.support.closed_windows import close_windows_by_copy
from tests.support.windowed_batch import WINDOWS, a_case, batch_of


@pytest.fixture(autouse=True)
def cpu_knows_no_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    close_windows_by_copy(monkeypatch)


@oracles.each_dtype
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("reuse_logits", [True, False])
@pytest.mark.parametrize(
    "options",
    [{}, {"fused_log_softmax": False}, {"clamp": 0.1, "fastemit_lambda": 0.3}],
)
def test_loss(
    options: dict[str, Any], reuse_logits: bool, padded: bool, dtype: torch.dtype
) -> None:
    case = a_case(dtype)
    case = case.with_logits(case.logits.double().log_softmax(-1).to(dtype))
    rows = case.padded_logits(float("nan"), 1, 1) if padded else None
    costs, gradient = oracles.run(case, "cpu", padded=rows, reuse_logits=reuse_logits, **options)
    if padded:
        assert (case.outside_lattice(gradient) == 0).all()
        gradient = case.take_packed(gradient)
    expected_costs, expected = oracles.exact(case, **options)
    oracles.assert_costs(costs, expected_costs, dtype)
    oracles.assert_gradient(gradient, expected, dtype)


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("reuse_logits", [True, False])
def test_loss_and_grad(reuse_logits: bool, padded: bool) -> None:
    case = a_case()
    logits = case.padded_logits(float("nan"), 1) if padded else case.logits.clone()
    costs, gradient = rnnt_loss_and_grad(
        logits, *batch_of(case), 3, emission_windows=WINDOWS, reuse_logits=reuse_logits
    )
    assert (gradient.data_ptr() == logits.data_ptr()) == reuse_logits
    if padded:
        assert (case.outside_lattice(gradient) == 0).all()
        gradient = case.take_packed(gradient)
    expected_costs, expected = oracles.exact(case)
    oracles.assert_costs(costs, expected_costs, torch.float32)
    oracles.assert_gradient(gradient, expected, torch.float32)


def test_no_labels_at_all() -> None:
    case = oracles.make_case([(3, 0), (1, 0)], 5)
    expected = oracles.run(case, "cpu")
    case = replace(case, emission_windows=torch.zeros(2, 0, 2, dtype=torch.int64))
    costs, gradient = oracles.run(case, "cpu")
    oracles.assert_costs(costs, expected[0].double(), torch.float32)
    oracles.assert_gradient(gradient, expected[1].double(), torch.float32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logit_lengths": torch.tensor([5, 4, -1, 3])}, "`logit_lengths` must be at least 1"),
        ({"target_lengths": torch.tensor([3, 2, 9, 0])}, "`target_lengths` must be in [0, 3]"),
        ({"target_lengths": torch.tensor([3, 2, -1, 0])}, "`target_lengths` must be in [0, 3]"),
        ({"target_lengths": torch.tensor([3, 2, 3, 0])}, "packed `logits` must have"),
        ({"targets": torch.full((4, 3), 7)}, "`targets` must be in [0, "),
        ({"targets": torch.full((4, 3), -1)}, "`targets` must be in [0, "),
        ({"targets": torch.full((4, 3), 3)}, "`targets` must not contain `blank`"),
    ],
)
def test_wrong_values_are_still_refused(changes: dict[str, torch.Tensor], message: str) -> None:
    case = replace(a_case(), **changes)
    with pytest.raises(ValueError) as raised:
        oracles.run(case, "cpu")
    assert str(raised.value).startswith(message)
