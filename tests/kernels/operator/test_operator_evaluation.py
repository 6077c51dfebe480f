"""The forward entry without a gradient: the same costs, half the lattice work."""

from __future__ import annotations

import ctypes
import math

import pytest
import torch

from tests.support import emulated_operator as emulated
from tests.support import oracles

LENGTHS = [(9, 3), (20, 7), (1, 0), (5, 30), (30, 5), (70, 40)]


@pytest.mark.parametrize("dtype", emulated.DTYPES, ids=["float32", "float16", "bf16"])
@pytest.mark.parametrize("fused", [True, False], ids=["logits", "log_probs"])
def test_costs_have_the_same_bits(operator: ctypes.CDLL, fused: bool, dtype: torch.dtype) -> None:
    case = oracles.make_case(LENGTHS, 17, blank=5, dtype=dtype)
    if not fused:
        case = case.with_logits(case.logits.double().log_softmax(-1).to(dtype))
    both = emulated.call(operator, case, fused_log_softmax=fused)
    for seed, cores in enumerate([1, 3, 6, 40]):
        alone = emulated.call(
            operator, case, entry="forward", cores=cores, seed=seed, fused_log_softmax=fused
        )
        oracles.assert_same_bits(alone.costs, both.costs)
        assert alone.status.tolist() == [emulated.STATUS_OK] * len(LENGTHS)
        assert alone.gradient.isnan().all()  # untouched


def test_special_costs(operator: ctypes.CDLL) -> None:
    case = oracles.make_case([(4, 2), (3, 3), (5, 1)], 6, blank=0)
    logits = case.logits.clone()
    logits[12:24].reshape(3, 4, -1)[2, 3, 0] = -math.inf
    logits[30, 2] = math.nan
    result = emulated.call(operator, case.with_logits(logits), entry="forward")
    assert result.costs[1] == math.inf and result.costs[2].isnan()
    assert result.status.tolist() == [emulated.STATUS_OK] * 3


def test_wrong_labels_are_reported(operator: ctypes.CDLL) -> None:
    case = oracles.make_case([(4, 2), (3, 3)], 6, blank=0)
    case.targets[1, 0] = 0
    result = emulated.call(operator, case, entry="forward")
    assert result.costs.isnan().tolist() == [False, True]
    assert result.status.tolist() == [emulated.STATUS_OK, emulated.LABEL]


def test_one_read_of_the_logits_and_half_the_lattice(operator: ctypes.CDLL) -> None:
    case = oracles.make_case([(200, 50)], 500)
    rows = case.logits.shape[0]
    both = emulated.call(operator, case, cores=4).traffic
    alone = emulated.call(operator, case, entry="forward", cores=4).traffic
    assert alone.logits_read == case.logits.numel() * 4
    assert alone.grad_written == 0
    # 14 bytes a row written by the first phase and read by the second; losses and flags.
    assert 28 * rows <= alone.state_bytes <= 28 * rows + 2000
    assert alone.vector_instructions[1] < 0.52 * both.vector_instructions[1]
