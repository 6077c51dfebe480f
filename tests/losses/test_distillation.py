"""Distillation on the lattice against its definition, written out over all V symbols."""

import re

import pytest
import torch

from asr_ascend.losses import pack_logits, rnnt_loss
from asr_ascend.losses.distillation import (
    collapse_blocks,
    collapsed_log_probs,
    distillation_loss,
    distilled_rnnt_loss,
    row_labels,
)

V, BLANK = 6, 2
TARGETS = torch.tensor([[0, 3, 5], [1, 9, 9], [-1, -1, -1]])  # padding may be anything
LOGIT_LENGTHS, TARGET_LENGTHS = torch.tensor([4, 3, 2]), torch.tensor([3, 1, 0])
SIZES = TARGETS, LOGIT_LENGTHS, TARGET_LENGTHS
N = 4 * 4 + 3 * 2 + 2 * 1


def make_logits(seed: int = 0, dtype=torch.float64, scale: float = 2.0) -> torch.Tensor:
    draws = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(N, V, generator=draws, dtype=torch.float64)).to(dtype)


def written_out(logits: torch.Tensor) -> torch.Tensor:
    """Three log-probabilities per row, from each row's softmax by the definition."""
    rows, index = [], 0
    for b in range(3):
        for _ in range(int(LOGIT_LENGTHS[b])):
            for u in range(int(TARGET_LENGTHS[b]) + 1):
                p = logits[index].double().softmax(-1)
                index += 1
                named = [BLANK] + ([int(TARGETS[b, u])] if u < TARGET_LENGTHS[b] else [])
                rest = sum(p[k] for k in range(V) if k not in named)
                label = p[named[1]] if len(named) == 2 else torch.zeros((), dtype=p.dtype)
                rows.append(torch.stack([p[BLANK], label, rest]))
    assert index == N
    return torch.stack(rows).log()


def divergence(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Sum over cells and classes of p_teacher ln(p_teacher / p_student), no class of chance 0."""
    p = teacher.exp()
    possible = p > 0
    return (p[possible] * (teacher[possible] - student[possible])).sum()


def test_every_row_has_its_label_and_the_last_column_none():
    first = [0, 3, 5, -1] * 4
    assert row_labels(N, *SIZES).tolist() == [*first, *[1, -1] * 3, -1, -1]


@pytest.mark.parametrize("block_bytes", [1, 4 * V * 5, 2**20])
def test_three_classes_by_the_definition(block_bytes):
    logits = make_logits()
    collapsed = collapsed_log_probs(logits, *SIZES, BLANK, block_bytes=block_bytes)
    assert collapsed.dtype == torch.float64
    torch.testing.assert_close(collapsed, written_out(logits), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(collapsed.exp().sum(1), torch.ones(N, dtype=torch.float64))
    last = row_labels(N, *SIZES) < 0
    assert (collapsed[last, 1] == float("-inf")).all()
    assert collapsed[~last].isfinite().all()


def test_the_divergence_by_the_definition():
    student, teacher = (collapsed_log_probs(make_logits(s), *SIZES, BLANK) for s in (0, 1))
    sizes = LOGIT_LENGTHS, TARGET_LENGTHS
    costs = distillation_loss(student, teacher, *sizes, "none")
    parts = zip(student.split([16, 6, 2]), teacher.split([16, 6, 2]), strict=True)
    expected = torch.stack([divergence(s, t) for s, t in parts])
    torch.testing.assert_close(costs, expected, rtol=1e-12, atol=1e-12)
    total = distillation_loss(student, teacher, *sizes, "sum")
    torch.testing.assert_close(total, costs.sum())
    torch.testing.assert_close(distillation_loss(student, teacher, *sizes), costs.sum() / 3)
    assert distillation_loss(student, student, *sizes, "none").tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("block_bytes", [1, 4 * V * 5, 2**20])
def test_the_gradient_by_the_definition(reuse, block_bytes):
    """Of the RNN-T loss and the divergence together: autograd through the written-out softmax."""
    teacher = written_out(make_logits(1))
    plain = make_logits().requires_grad_()
    expected = rnnt_loss(plain, *SIZES, BLANK, reduction="sum", backend="reference")
    expected_distance = divergence(written_out(plain), teacher)
    (expected + 0.3 * expected_distance).backward()
    leaf = make_logits().requires_grad_()
    options = {"reuse_logits": reuse, "block_bytes": block_bytes}
    loss, distance = distilled_rnnt_loss(leaf.clone(), teacher, *SIZES, BLANK, "sum", **options)
    (loss + 0.3 * distance).backward()
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(distance, expected_distance, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(leaf.grad, plain.grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fastemit_lambda": 0.3},
        {"emission_windows": torch.tensor([[[0, 2], [0, 3], [1, 3]]] * 3)},
        {"backend": "reference"},
    ],
    ids=["plain", "fastemit", "windows", "reference"],
)
def test_the_rnnt_loss_of_three_classes_is_that_of_the_logits(dtype, options):
    leaf, plain = (make_logits(dtype=dtype).requires_grad_() for _ in range(2))
    expected = rnnt_loss(plain, *SIZES, BLANK, reduction="sum", **options)
    expected.backward()
    teacher = collapsed_log_probs(make_logits(1, dtype), *SIZES, BLANK)
    loss, distance = distilled_rnnt_loss(
        leaf.clone(), teacher, *SIZES, BLANK, "sum", reuse_logits=True, **options
    )
    assert loss.dtype == distance.dtype == torch.float32
    loss.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-6)
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(leaf.grad, plain.grad, rtol=2 * step, atol=max(step / 100, 1e-6))


def test_gradcheck():
    # Weights that keep the -inf of the last columns out of the sum.
    weights = torch.rand(N, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    last = row_labels(N, *SIZES) < 0
    weights[last, 1] = 0

    def function(logits):
        collapsed = collapsed_log_probs(logits, *SIZES, BLANK)
        return torch.where(weights == 0, 0.0, weights * collapsed).sum()

    assert torch.autograd.gradcheck(function, make_logits().requires_grad_())


def test_half_logits_are_differentiated_in_float32():
    half = make_logits(dtype=torch.bfloat16)
    teacher = collapsed_log_probs(make_logits(1, torch.float32), *SIZES, BLANK)
    gradients = []
    for logits in (half.clone().requires_grad_(), half.float().requires_grad_()):
        student = collapsed_log_probs(logits, *SIZES, BLANK)
        distillation_loss(student, teacher, *SIZES[1:], "sum").backward()
        gradients.append(logits.grad)
    assert gradients[0].dtype == torch.bfloat16
    assert torch.equal(gradients[0], gradients[1].to(torch.bfloat16))


def test_two_symbols_leave_no_rest():
    logits = torch.tensor([[1.0, 0.0]] * 4, dtype=torch.float64, requires_grad=True)
    sizes = torch.tensor([[1]]), torch.tensor([2]), torch.tensor([1])
    collapsed = collapsed_log_probs(logits, *sizes, 0)
    ln = torch.tensor([1.0, 0.0]).double().log_softmax(0)
    none = float("-inf")
    expected = [[ln[0], ln[1], none], [ln[0], none, ln[1]]] * 2
    torch.testing.assert_close(collapsed, torch.tensor(expected, dtype=torch.float64))
    teacher = collapsed_log_probs(torch.zeros(4, 2, dtype=torch.float64), *sizes, 0)
    loss = distillation_loss(collapsed, teacher, *sizes[1:], "sum")
    loss.backward()
    # Two symbols each, so the divergence is that of the whole distributions: 4 cells alike.
    assert loss.item() == pytest.approx(4 * 0.5 * (-2 * 0.6931471805599453 - ln.sum().item()))
    expected_grad = (ln.exp() - 0.5).expand(4, 2)
    torch.testing.assert_close(logits.grad, expected_grad)


@pytest.mark.parametrize("reuse", [False, True])
def test_impossible_symbols_get_no_gradient(reuse):
    leaf = make_logits()
    leaf[0, 1] = leaf[0, 4] = float("-inf")
    leaf[5, [0, 1, 4, 5]] = float("-inf")  # the row's label is 3, blank 2: no rest
    teacher_logits = make_logits(1)
    teacher_logits[5] = leaf[5] + 1.0 * (torch.arange(V) == 3)
    leaf.requires_grad_()
    student = collapsed_log_probs(leaf.clone(), *SIZES, BLANK, reuse_logits=reuse)
    assert student[5, 2] == float("-inf")
    teacher = collapsed_log_probs(teacher_logits, *SIZES, BLANK)
    loss = distillation_loss(student, teacher, *SIZES[1:], "sum")
    loss.backward()
    assert loss.isfinite() and leaf.grad.isfinite().all()
    assert leaf.grad[0, [1, 4]].tolist() == [0.0, 0.0]
    assert leaf.grad[5, [0, 1, 4, 5]].tolist() == [0.0] * 4
    # Where a class is one symbol, its gradient is the difference of the chances.
    expected = student[5].exp() - teacher[5].exp()
    torch.testing.assert_close(leaf.grad[5, [2, 3]], expected[:2].detach())
    torch.testing.assert_close(leaf.grad.sum(1), torch.zeros(N, dtype=torch.float64))


def test_a_class_that_only_the_teacher_gives_a_chance_costs_infinity_with_a_finite_gradient():
    logits = make_logits()
    logits[17, 1] = float("-inf")  # the last column of sample 1, whose labels are part of the rest
    logits[16, 1] = float("-inf")  # its first cell, whose label is 1
    logits.requires_grad_()
    student = collapsed_log_probs(logits, *SIZES, BLANK)
    teacher = collapsed_log_probs(make_logits(1), *SIZES, BLANK)
    costs = distillation_loss(student, teacher, *SIZES[1:], "none")
    assert costs.isinf().tolist() == [False, True, False]
    costs.sum().backward()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("symbol", [0, 1, BLANK])
def test_a_bad_logit_makes_its_sample_nan_and_no_other(bad, symbol):
    leaf = make_logits()
    leaf[18, symbol] = bad  # of sample 1
    leaf.requires_grad_()
    teacher = collapsed_log_probs(make_logits(1), *SIZES, BLANK)
    rnnt, costs = distilled_rnnt_loss(
        leaf.clone(), teacher, *SIZES, BLANK, "none", reuse_logits=True
    )
    assert costs.isnan().tolist() == rnnt.isnan().tolist() == [False, True, False]
    (costs + rnnt).sum().backward()
    assert leaf.grad[16:22].isnan().all()
    assert leaf.grad[:16].isfinite().all() and leaf.grad[22:].isfinite().all()


def test_large_logits_keep_small_chances():
    logits = torch.tensor([[1e4, 0.0, -1e4, 5.0]], dtype=torch.float32, requires_grad=True)
    sizes = torch.zeros(1, 0, dtype=torch.int64), torch.tensor([1]), torch.tensor([0])
    collapsed = collapsed_log_probs(logits, *sizes, 0)
    rest = 5.0 - 1e4 + torch.tensor(-5.0).exp().log1p().item()
    torch.testing.assert_close(collapsed, torch.tensor([[0.0, float("-inf"), rest]]))
    collapsed[0, 2].backward()
    within = torch.tensor([0.0, -1e4, 5.0]).softmax(0)
    expected = torch.tensor([-1.0, within[0], within[1], within[2]])
    torch.testing.assert_close(logits.grad[0], expected)


def test_the_teacher_gets_no_gradient():
    student, teacher = (
        collapsed_log_probs(make_logits(seed), *SIZES, BLANK).requires_grad_() for seed in (0, 1)
    )
    distillation_loss(student, teacher, *SIZES[1:]).backward()
    assert teacher.grad is None
    torch.testing.assert_close(student.grad, -teacher.detach().exp() / len(TARGETS))


def test_no_samples_and_no_labels():
    none = torch.zeros(0, dtype=torch.int64)
    collapsed = collapsed_log_probs(torch.zeros(0, V), none.view(0, 3), none, none, BLANK)
    assert collapsed.shape == (0, 3)
    assert distillation_loss(collapsed, collapsed, none, none, "sum").item() == 0.0
    assert distillation_loss(collapsed, collapsed, none, none, "none").shape == (0,)
    sizes = torch.zeros(2, 0, dtype=torch.int64), torch.tensor([3, 1]), torch.tensor([0, 0])
    rows = torch.randn(4, V, generator=torch.Generator().manual_seed(0))
    collapsed = collapsed_log_probs(rows, *sizes, BLANK)
    log_probs = rows.log_softmax(1)[:, BLANK]
    torch.testing.assert_close(collapsed[:, 0], log_probs)
    torch.testing.assert_close(collapsed[:, 2], log_probs.exp().neg().log1p())


@pytest.mark.parametrize("size", [1, 7, 100])
def test_blocks_of_rows_give_the_same(size):
    logits = make_logits(dtype=torch.float32)
    blocks = (part.clone() for part in logits.split(size))
    expected = collapsed_log_probs(logits, *SIZES, BLANK)
    assert torch.equal(collapse_blocks(blocks, *SIZES, BLANK), expected)


def test_wrong_numbers_of_rows_are_one_sentence():
    message = (
        r"packed `logits` must have sum\(logit_lengths \* \(target_lengths \+ 1\)\) = 24 rows, "
        r"but has {}\."
    )
    for rows in (23, 25):
        with pytest.raises(ValueError, match=f"^{message.format(rows)}$"):
            collapse_blocks([torch.zeros(rows, V)], *SIZES, BLANK)
        with pytest.raises(ValueError, match=f"^{message.format(rows)}$"):
            collapsed_log_probs(torch.zeros(rows, V), *SIZES, BLANK)
        zeros = torch.zeros(rows, 3)
        with pytest.raises(ValueError, match=f"^{message.format(rows)}$"):
            distillation_loss(zeros, zeros, *SIZES[1:])


WRONG = {
    "`logits` must be packed, (N, V), but has shape (3, 4, 4, 6).": lambda: collapsed_log_probs(
        torch.zeros(3, 4, 4, V), *SIZES, BLANK
    ),
    "`blank` must be in [-6, 5], but is 6.": lambda: collapsed_log_probs(
        make_logits(), *SIZES, blank=6
    ),
    "`block_bytes` must be an int of at least 1, but is 0.": lambda: collapsed_log_probs(
        make_logits(), *SIZES, BLANK, block_bytes=0
    ),
    "`targets` must not contain `blank`, but is 3 at position 1 of sample 0.": lambda: (
        collapsed_log_probs(make_logits(), *SIZES, 3)
    ),
    "`logits` must not be a leaf that requires grad if `reuse_logits` is True, since the gradient "
    "would overwrite it.": lambda: collapsed_log_probs(
        make_logits().requires_grad_(), *SIZES, BLANK, reuse_logits=True
    ),
    '`reduction` must be "none", "mean" or "sum", but is "max".': lambda: distillation_loss(
        torch.zeros(N, 3), torch.zeros(N, 3), *SIZES[1:], "max"
    ),
    "`student` and `teacher` must be (N, 3) both, but have shapes (24, 3) and (24, 4).": lambda: (
        distillation_loss(torch.zeros(N, 3), torch.zeros(N, 4), *SIZES[1:])
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments_are_one_sentence(message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        WRONG[message]()


def test_a_second_backward_pass_is_refused_where_logits_are_reused():
    leaf = make_logits().requires_grad_()
    collapsed = collapsed_log_probs(leaf.clone(), *SIZES, BLANK, reuse_logits=True)
    collapsed[:, 0].sum().backward(retain_graph=True)
    message = (
        "`collapsed_log_probs` with `reuse_logits=True` can run backward only once: the first "
        "backward pass has put the gradient in the place of the logits."
    )
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
        collapsed[:, 0].sum().backward()


def test_another_user_of_overwritten_logits_gets_torchs_error():
    leaf = make_logits().requires_grad_()
    logits = leaf.clone()
    squares = logits.square().sum()  # saves the logits for its own backward pass
    collapsed = collapsed_log_probs(logits, *SIZES, BLANK, reuse_logits=True)
    collapsed[:, 0].sum().backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squares.backward()


def test_padded_logits_are_packed_first():
    padded = torch.randn(3, 4, 4, V, generator=torch.Generator().manual_seed(0))
    packed = pack_logits(padded, *SIZES[1:])
    collapsed = collapsed_log_probs(packed, *SIZES, BLANK)
    torch.testing.assert_close(collapsed.double(), written_out(packed), rtol=1e-5, atol=1e-6)
