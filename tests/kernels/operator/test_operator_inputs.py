"""Wrong input, interleavings, numbers of cores, alignments: no tensor is left, no bit changes."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.support import emulated_operator as emulated
from tests.support import oracles

OK, FRAMES, LABELS = emulated.STATUS_OK, emulated.LOGIT_LENGTH, emulated.TARGET_LENGTH
LABEL, TOTAL = emulated.LABEL, emulated.ROW_TOTAL
BASE = oracles.make_case([(4, 2), (3, 3), (5, 1)], 9, blank=0)


def labels_with(sample: int, place: int, value: int) -> Tensor:
    targets = BASE.targets.clone()
    targets[sample, place] = value
    return targets


HUGE = 2**31 - 1
WRONG = {
    "no_frames": ({"logit_lengths": [4, 0, 5]}, [TOTAL, FRAMES, TOTAL]),
    "negative_frames": ({"logit_lengths": [4, -3, 5]}, [TOTAL, FRAMES, TOTAL]),
    "too_many_rows": ({"logit_lengths": [4, 3, 6]}, [TOTAL] * 3),
    "too_few_rows": ({"logit_lengths": [4, 3, 4]}, [TOTAL] * 3),
    "huge_frames": ({"logit_lengths": [HUGE] * 3}, [TOTAL] * 3),
    "more_labels_than_columns": ({"target_lengths": [2, 4, 1]}, [TOTAL, LABELS, TOTAL]),
    "huge_labels": ({"target_lengths": [2, HUGE, 1]}, [TOTAL, LABELS, TOTAL]),
    "negative_labels": ({"target_lengths": [2, -1, 1]}, [TOTAL, LABELS, TOTAL]),
    "most_negative_labels": ({"target_lengths": [2, -(2**31), 1]}, [TOTAL, LABELS, TOTAL]),
    "too_few_rows_and_a_label": (
        {"logit_lengths": [4, 3, 4], "targets": labels_with(1, 2, 9)},
        [TOTAL, LABEL, TOTAL],
    ),
}
WRONG_LABELS = {"v": (1, 2, 9), "blank": (1, 2, 0), "negative": (0, 1, -1), "huge": (2, 0, HUGE)}


@pytest.mark.parametrize("cores", [1, 4, 40])
@pytest.mark.parametrize("entry", ["fused", "split"])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_reported_and_touches_nothing_else(
    operator: ctypes.CDLL, name: str, entry: str, cores: int
) -> None:
    """The emulator fails on any access outside a tensor; all losses are NaN, gradients zero."""
    fields, expected = WRONG[name]
    case = replace(BASE, **{key: torch.as_tensor(value) for key, value in fields.items()})
    result = emulated.call(operator, case, entry=entry, cores=cores)
    assert result.costs.isnan().all()
    assert (result.gradient == 0).all()
    assert result.status.tolist() == expected


@pytest.mark.parametrize("cores", [1, 4])
@pytest.mark.parametrize("vocab", [9, 600, 20001])
@pytest.mark.parametrize("entry", ["fused", "split", "forward"])
@pytest.mark.parametrize("name", WRONG_LABELS)
def test_a_wrong_label_costs_its_own_sample_alone(
    operator: ctypes.CDLL, name: str, entry: str, vocab: int, cores: int
) -> None:
    """As a NaN among its logits does: rows short, long, and longer than a tile."""
    sample, place, value = WRONG_LABELS[name]
    case = oracles.make_case([(4, 2), (3, 3), (5, 1)], vocab, blank=0)
    targets = case.targets.clone()
    targets[sample, place] = vocab if name == "v" else value
    for nan_rule in (emulated.DROP_NAN, emulated.SECOND_OPERAND, emulated.PROPAGATE_NAN):
        options = {"entry": entry, "cores": cores, "nan_rule": nan_rule}
        clean = emulated.call(operator, case, **options)
        result = emulated.call(operator, replace(case, targets=targets), **options)
        expected = clean.costs.index_fill(0, torch.tensor([sample]), float("nan"))
        torch.testing.assert_close(result.costs, expected, rtol=0, atol=0, equal_nan=True)
        assert result.status.tolist() == [LABEL if b == sample else OK for b in range(3)]
        if entry == "forward":
            continue
        sizes = (case.logit_lengths * (case.target_lengths + 1)).tolist()
        gradients = zip(result.gradient.split(sizes), clean.gradient.split(sizes), strict=True)
        for b, (gradient, untouched) in enumerate(gradients):
            if b == sample:
                assert gradient.isnan().all()
            else:
                oracles.assert_same_bits(gradient, untouched)


def test_the_same_without_a_status_output(operator: ctypes.CDLL) -> None:
    case = replace(BASE, logit_lengths=torch.tensor([4, 0, 5]))
    result = emulated.call(operator, case, with_status=False)
    assert result.costs.isnan().all() and (result.gradient == 0).all()
    right = emulated.call(operator, BASE, with_status=False)
    oracles.assert_same_bits(right.costs, emulated.call(operator, BASE).costs)


def test_what_lies_beyond_a_target_is_never_looked_at(operator: ctypes.CDLL) -> None:
    targets = BASE.targets.clone()
    targets[0, 2], targets[2, 1], targets[2, 2] = 99, -5, 0
    result = emulated.call(operator, replace(BASE, targets=targets))
    clean = emulated.call(operator, BASE)
    oracles.assert_same_bits(result.costs, clean.costs)
    oracles.assert_same_bits(result.gradient, clean.gradient)
    assert result.status.tolist() == [OK] * 3


def test_negative_blank_counts_from_the_end(operator: ctypes.CDLL) -> None:
    case = oracles.make_case([(4, 2), (3, 3)], 9, blank=7)
    negative = emulated.call(operator, replace(case, blank=-2))
    oracles.assert_same_bits(negative.gradient, emulated.call(operator, case).gradient)


@pytest.mark.parametrize("rows", [0, 7])
def test_an_empty_batch(operator: ctypes.CDLL, rows: int) -> None:
    empty = torch.empty(0, dtype=torch.int64)
    case = oracles.Case(torch.ones(rows, 5), empty.reshape(0, 2), empty, empty, 0)
    for entry in ("fused", "split"):
        result = emulated.call(operator, case, entry=entry)
        assert result.costs.shape == (0,)
        assert result.gradient.shape == (rows, 5) and (result.gradient == 0).all()


@pytest.mark.parametrize("dtype", emulated.DTYPES, ids=["float32", "float16", "bf16"])
@pytest.mark.parametrize("vocab", [7, 70, 600])
def test_same_bits_for_any_interleaving_and_number_of_cores(
    operator: ctypes.CDLL, vocab: int, dtype: torch.dtype
) -> None:
    lengths = [(9, 3), (20, 7), (1, 0), (5, 30), (30, 5)]
    case = oracles.make_case(lengths, vocab, blank=5, dtype=dtype)
    first = emulated.call(operator, case, cores=1)
    upstream = torch.ones(len(lengths))
    for seed, cores in enumerate([1, 2, 3, 7, 8, 40, 48, 40, 40, 40]):
        result = emulated.call(operator, case, cores=cores, seed=seed)
        oracles.assert_same_bits(result.costs, first.costs)
        oracles.assert_same_bits(result.gradient, first.gradient)
    split = emulated.call(
        operator, case, entry="split", upstream=upstream, cores=5, backward_cores=11
    )
    oracles.assert_same_bits(split.costs, first.costs)
    oracles.assert_same_bits(split.gradient, first.gradient)


@pytest.mark.parametrize("dtype", emulated.DTYPES, ids=["float32", "float16", "bf16"])
def test_tensors_may_start_anywhere(operator: ctypes.CDLL, dtype: torch.dtype) -> None:
    case = oracles.make_case([(4, 2), (6, 3)], 13, blank=12, dtype=dtype)
    aligned = emulated.call(operator, case)
    for offset in (4, 12, 36):
        for entry in ("fused", "split"):
            result = emulated.call(operator, case, offset=offset, entry=entry)
            oracles.assert_same_bits(result.gradient, aligned.gradient)
            oracles.assert_same_bits(result.costs, aligned.costs)


def test_in_place_gradient_has_the_same_bits(operator: ctypes.CDLL) -> None:
    for vocab in (9, 600, 20001):
        case = oracles.make_case([(6, 4), (3, 1)], vocab, blank=3)
        apart = emulated.call(operator, case, entry="split", cores=7)
        in_place = emulated.call(operator, case, entry="split", cores=7, in_place=True)
        oracles.assert_same_bits(in_place.gradient, apart.gradient)
