"""Labels equal to blank, where they are allowed: the emulated operator against the reference."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import pytest
import torch

from asr_ascend.losses import rnnt_loss
from tests.support import emulated_operator as emulated
from tests.support import oracles

BLANK = 3


def a_case(vocab: int, dtype: torch.dtype) -> oracles.Case:
    """Blank first, last, twice in a row, and nowhere."""
    case = oracles.make_case([(5, 3), (3, 3), (6, 1), (4, 2)], vocab, blank=BLANK, dtype=dtype)
    targets = case.targets.clone()
    targets[0, 0] = targets[0, 2] = BLANK
    targets[1, 1] = targets[1, 2] = BLANK
    targets[2, 0] = BLANK
    return replace(case, targets=targets)


@pytest.mark.parametrize("dtype", emulated.DTYPES, ids=["float32", "float16", "bf16"])
@pytest.mark.parametrize("vocab", [9, 70, 600, 20001])
@pytest.mark.parametrize(
    "options",
    [{}, {"clamp": 0.2}, {"fused_log_softmax": False}, {"fastemit_lambda": 0.5, "clamp": 0.4}],
    ids=lambda options: "-".join(options) or "plain",
)
def test_value_and_gradient(
    operator: ctypes.CDLL, options: dict[str, float], vocab: int, dtype: torch.dtype
) -> None:
    case = a_case(vocab, dtype)
    if not options.get("fused_log_softmax", True):
        case = case.with_logits(case.logits.double().log_softmax(-1).to(dtype))
    upstream = torch.tensor([1.0, -0.5, 2.0, 0.0])
    result = emulated.call(
        operator, case, entry="split", upstream=upstream, blank_in_targets=True, **options
    )
    leaf = case.logits.double().requires_grad_()
    costs = rnnt_loss(
        leaf,
        case.targets,
        case.logit_lengths,
        case.target_lengths,
        BLANK,
        reduction="none",
        blank_in_targets="allow",
        backend="reference",
        **options,
    )
    costs.backward(upstream.double())
    emulated.assert_costs(result.costs, costs.detach())
    oracles.assert_gradient(result.gradient, leaf.grad, dtype, 2.0)
    assert result.status.tolist() == [emulated.STATUS_OK] * 4


@pytest.mark.parametrize("vocab", [9, 600])
def test_without_such_a_label_no_bit_changes(operator: ctypes.CDLL, vocab: int) -> None:
    case = oracles.make_case([(5, 3), (3, 2)], vocab, blank=BLANK)
    plain = emulated.call(operator, case)
    allowed = emulated.call(operator, case, blank_in_targets=True)
    oracles.assert_same_bits(allowed.costs, plain.costs)
    oracles.assert_same_bits(allowed.gradient, plain.gradient)
