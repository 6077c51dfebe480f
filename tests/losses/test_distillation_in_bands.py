"""Distillation in a band: the losses of the full lattice's rows that lie in it."""

import pytest
import torch

from asr_ascend.losses import rnnt_loss
from asr_ascend.losses.distillation import (
    collapse_blocks,
    collapsed_log_probs,
    distillation_loss,
    distilled_rnnt_loss,
    row_labels,
)
from asr_ascend.losses.layout import packed_cells, row_offsets
from tests.losses.test_distillation import BLANK, SIZES, V, divergence, make_logits

BAND = torch.tensor(
    [[[0, 1], [0, 2], [2, 3], [3, 3]], [[0, 0], [0, 1], [1, 1], [9, -9]], [[0, 0]] * 4]
)
IN_BAND = torch.tensor([0, 1, 4, 5, 6, 10, 11, 15, 16, 18, 19, 21, 22, 23])
ROWS_OF_SAMPLES = (8, 4, 2)


def test_its_rows_are_those_of_the_full_lattice():
    cells = torch.stack(packed_cells(24, *SIZES[1:], "cpu"), 1)
    banded = torch.stack(packed_cells(len(IN_BAND), *SIZES[1:], "cpu", BAND), 1)
    assert torch.equal(banded, cells[IN_BAND])


def test_collapsed_rows_and_labels():
    logits = make_logits()
    full = collapsed_log_probs(logits, *SIZES, BLANK)
    banded = collapsed_log_probs(logits[IN_BAND], *SIZES, BLANK, band=BAND)
    assert torch.equal(banded, full[IN_BAND])
    assert torch.equal(row_labels(14, *SIZES, BAND), row_labels(24, *SIZES)[IN_BAND])
    blocks = logits[IN_BAND].split(3)
    assert torch.equal(collapse_blocks(blocks, *SIZES, BLANK, BAND), banded)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_the_divergence_is_summed_over_the_band(reduction):
    student, teacher = (
        collapsed_log_probs(make_logits(seed)[IN_BAND], *SIZES, BLANK, band=BAND) for seed in (0, 1)
    )
    loss = distillation_loss(student, teacher, *SIZES[1:], reduction, band=BAND)
    parts = zip(student.split(ROWS_OF_SAMPLES), teacher.split(ROWS_OF_SAMPLES), strict=True)
    want = torch.stack([divergence(s, t) for s, t in parts])
    want = want if reduction == "none" else getattr(want, reduction)()
    torch.testing.assert_close(loss, want)


@pytest.mark.parametrize("options", [{}, {"fastemit_lambda": 0.3, "delay_penalty": 0.2}])
def test_both_losses_and_their_one_gradient(options):
    teacher = collapsed_log_probs(make_logits(1)[IN_BAND], *SIZES, BLANK, band=BAND)
    logits = make_logits()[IN_BAND].requires_grad_()
    rnnt, distilled = distilled_rnnt_loss(
        logits, teacher, *SIZES, BLANK, "sum", band=BAND, **options
    )
    other = logits.detach().clone().requires_grad_()
    want = rnnt_loss(other, *SIZES, BLANK, reduction="sum", band=BAND, **options)
    torch.testing.assert_close(rnnt, want)
    student = collapsed_log_probs(other, *SIZES, BLANK, band=BAND)
    wanted = distillation_loss(student, teacher, *SIZES[1:], "sum", band=BAND)
    assert distilled == wanted
    torch.testing.assert_close(
        torch.autograd.grad(2.0 * rnnt + distilled, logits),
        torch.autograd.grad(2.0 * want + wanted, other),
    )


def test_another_number_of_rows():
    rows = torch.zeros(13, 3)
    with pytest.raises(ValueError) as raised:
        distillation_loss(rows, rows, *SIZES[1:], band=BAND)
    assert str(raised.value) == (
        "`student` must have a row for each of the 14 cells of `band`, but has 13."
    )
    with pytest.raises(ValueError) as raised:
        collapse_blocks([torch.zeros(13, V)], *SIZES, BLANK, BAND)
    assert str(raised.value) == (
        "packed `logits` must have a row for each of the 14 cells of `band`, but has 13."
    )
    assert int(row_offsets(*SIZES[1:], BAND)[-1]) == 14
