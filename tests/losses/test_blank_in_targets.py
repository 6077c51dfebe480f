"""A label equal to blank: refused, or taken for the ordinary label that it mathematically is.

The truth is the sum over all alignments, one by one, in float64.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from asr_ascend.losses import (
    RNNTLoss,
    joiner_rnnt_loss,
    pack_logits,
    rnnt_alignment,
    rnnt_loss,
    rnnt_loss_and_grad,
)

BLANK, V = 2, 5
LOGIT_LENGTHS, TARGET_LENGTHS = torch.tensor([4, 3, 1]), torch.tensor([3, 2, 2])
# Blank first, last, twice in a row, alone; no blank in the last sample's labels.
TARGETS = torch.tensor([[2, 1, 2], [2, 2, 9], [4, 0, -1]])
SIZES = LOGIT_LENGTHS, TARGET_LENGTHS
ALLOW = {"blank": BLANK, "blank_in_targets": "allow"}
each_backend = pytest.mark.parametrize("backend", ["cpu", "reference"])
each_dtype = pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str
)


def padded_logits(dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return (2 * torch.randn(3, 4, 4, V, generator=generator, dtype=torch.float64)).to(dtype)


def alignments(num_frames: int, num_labels: int) -> list[tuple[int, ...]]:
    """Frames of the labels of each alignment."""
    return list(itertools.combinations_with_replacement(range(num_frames), num_labels))


def scores(blanks: Tensor, labels: Tensor, windows: Tensor | None = None) -> Tensor:
    """Log-probability of every alignment, from those (T, U1) of blank and (T, U) of labels."""
    num_frames, num_labels = labels.shape
    result = []
    for frames in alignments(num_frames, num_labels):
        if windows is not None and any(
            not first <= t <= last for t, (first, last) in zip(frames, windows, strict=False)
        ):
            continue
        passed = [sum(frame <= t for frame in frames) for t in range(num_frames)]
        by_blank = sum(blanks[t, u] for t, u in enumerate(passed))
        result.append(by_blank + sum(labels[t, u] for u, t in enumerate(frames)))
    return torch.stack(result)


def truth(
    logits: Tensor,
    *,
    clamp: float = -1.0,
    fastemit_lambda: float = 0.0,
    fused_log_softmax: bool = True,
    emission_windows: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Costs and gradients, in float64; the gradient is like ``logits`` (B, T, U1, V)."""
    leaf = logits.double().requires_grad_()
    log_probs = leaf.log_softmax(-1) if fused_log_softmax else leaf
    costs, gradients = [], []
    for b, (T, U) in enumerate(zip(LOGIT_LENGTHS.tolist(), TARGET_LENGTHS.tolist(), strict=True)):
        blanks = log_probs[b, :T, : U + 1, BLANK]
        labels = torch.stack([log_probs[b, :T, u, TARGETS[b, u]] for u in range(U)], 1)
        windows = None if emission_windows is None else emission_windows[b]
        cost = -scores(blanks, labels, windows).logsumexp(0)
        by_blank, by_label = torch.autograd.grad(cost, (blanks, labels), retain_graph=True)
        (gradient,) = torch.autograd.grad(
            (blanks, labels), leaf, (by_blank, by_label * (1 + fastemit_lambda)), retain_graph=True
        )
        costs.append(cost.detach())
        gradients.append(gradient)
    gradient = torch.stack(gradients).sum(0)
    return torch.stack(costs), gradient.clamp(-clamp, clamp) if clamp > 0 else gradient


OPTIONS: list[dict[str, Any]] = [
    {},
    {"clamp": 0.3},
    {"fastemit_lambda": 0.5},
    {"fused_log_softmax": False},
    {"fused_log_softmax": False, "clamp": 0.3, "fastemit_lambda": 0.5},
    {"clamp": 0.3, "fastemit_lambda": 0.5},
    {"emission_windows": torch.tensor([[[0, 2], [1, 3], [2, 9]], [[1, 2]] * 3, [[0, 9]] * 3])},
    {
        "emission_windows": torch.tensor([[[0, 2], [1, 3], [2, 9]], [[1, 2]] * 3, [[0, 9]] * 3]),
        "fused_log_softmax": False,
    },
]


@each_backend
@each_dtype
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
def test_value_and_gradient(
    options: dict[str, Any], packed: bool, dtype: torch.dtype, backend: str
) -> None:
    logits = padded_logits(dtype)
    if not options.get("fused_log_softmax", True):
        logits = logits.log_softmax(-1)
    expected_costs, expected = truth(logits, **options)
    if packed:
        logits, expected = (pack_logits(rows, *SIZES) for rows in (logits, expected))
    costs, gradient = rnnt_loss_and_grad(
        logits, TARGETS, *SIZES, **ALLOW, **options, backend=backend
    )
    tolerance = {"rtol": 1e-9, "atol": 1e-9}
    if dtype != torch.float64:
        tolerance = {"rtol": 1e-6, "atol": 1e-6}
    torch.testing.assert_close(costs.double(), expected_costs, **tolerance)
    epsilon = {torch.float16: 2**-11, torch.bfloat16: 2**-8}.get(dtype, tolerance["rtol"])
    torch.testing.assert_close(
        gradient.double(),
        expected,
        rtol=epsilon,
        atol=max(1e-6, epsilon / 2**3) if dtype != torch.float64 else 1e-9,
    )


@pytest.mark.parametrize("reuse_logits", [True, False])
@pytest.mark.parametrize("num_labels", [1, 3])
def test_one_symbol_that_is_blank_and_label(num_labels: int, reuse_logits: bool) -> None:
    """Each row has probability 1: the cost is minus the logarithm of the number of alignments."""
    rows = torch.zeros(4 * (num_labels + 1), 1, requires_grad=True)
    targets = torch.zeros(1, num_labels, dtype=torch.int64)
    lengths = torch.tensor([4]), torch.tensor([num_labels])
    log_probs = rows * 1
    cost = rnnt_loss(
        log_probs,
        targets,
        *lengths,
        0,
        fused_log_softmax=False,
        blank_in_targets="allow",
        reuse_logits=reuse_logits,
    )
    count = len(alignments(4, num_labels))
    torch.testing.assert_close(cost.exp(), torch.tensor(1.0 / count))
    cost.backward()
    # Every alignment passes T blanks and U labels.
    torch.testing.assert_close(rows.grad.sum(), torch.tensor(-4.0 - num_labels))


@each_backend
@pytest.mark.parametrize("packed", [True, False])
def test_gradient_by_finite_differences(packed: bool, backend: str) -> None:
    logits = padded_logits()
    if packed:
        logits = pack_logits(logits, *SIZES)

    def costs(rows: Tensor) -> Tensor:
        return rnnt_loss(rows, TARGETS, *SIZES, **ALLOW, reduction="none", backend=backend)

    assert torch.autograd.gradcheck(costs, logits.requires_grad_(), atol=1e-7)


@pytest.mark.parametrize("reuse_logits", [True, False])
def test_autograd_as_the_call_without_it(reuse_logits: bool) -> None:
    leaf = padded_logits(torch.float32).requires_grad_()
    module = RNNTLoss(**ALLOW, reduction="sum", reuse_logits=reuse_logits)
    module(leaf * 1, TARGETS, *SIZES).backward()
    _, expected = rnnt_loss_and_grad(leaf.detach(), TARGETS, *SIZES, **ALLOW)
    torch.testing.assert_close(leaf.grad, expected, rtol=0, atol=0)


@each_backend
def test_without_such_a_label_nothing_changes(backend: str) -> None:
    logits, targets = padded_logits(torch.float32), torch.tensor([[0, 1, 3]] * 3)
    plain = rnnt_loss_and_grad(logits, targets, *SIZES, BLANK, backend=backend)
    allowed = rnnt_loss_and_grad(logits, targets, *SIZES, **ALLOW, backend=backend)
    torch.testing.assert_close(allowed, plain, rtol=0, atol=0)


@each_backend
def test_likeliest_alignment(backend: str) -> None:
    logits = padded_logits()
    frames, log_probs = rnnt_alignment(logits, TARGETS, *SIZES, **ALLOW, backend=backend)
    for b, (T, U) in enumerate(zip(LOGIT_LENGTHS.tolist(), TARGET_LENGTHS.tolist(), strict=True)):
        rows = logits[b, :T, : U + 1].log_softmax(-1)
        labels = torch.stack([rows[:, u, TARGETS[b, u]] for u in range(U)], 1)
        best, index = scores(rows[:, :, BLANK], labels).max(0)
        assert frames[b, :U].tolist() == list(alignments(T, U)[index])
        torch.testing.assert_close(log_probs[b], best)


def joiner_inputs() -> list[Tensor]:
    generator = torch.Generator().manual_seed(6)
    shapes = (3, 4, 8), (3, 4, 8), (V, 8), (V,)
    return [
        torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in shapes
    ]


def gradients(loss: Callable[..., Tensor], inputs: list[Tensor]) -> tuple[Tensor, ...]:
    value = loss(*inputs)
    return value.detach(), *torch.autograd.grad(value, inputs)


@each_backend
@pytest.mark.parametrize("max_bytes", [None, 100])
def test_fused_joiner(max_bytes: int | None, backend: str) -> None:
    """Sample by sample, and chunk by chunk."""

    def together(*inputs: Tensor) -> Tensor:
        options = {**ALLOW, "max_bytes": max_bytes, "backend": backend}
        return joiner_rnnt_loss(*inputs, TARGETS, *SIZES, **options)

    def apart(encoder: Tensor, predictor: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        hidden = torch.tanh(encoder[:, :, None] + predictor[:, None])
        return rnnt_loss(hidden @ weight.T + bias, TARGETS, *SIZES, **ALLOW, backend="reference")

    inputs = joiner_inputs()
    torch.testing.assert_close(
        gradients(together, inputs), gradients(apart, inputs), rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("max_bytes", [None, 100])
@pytest.mark.parametrize("mass", [0.02, 0.2])
def test_rows_left_out_of_the_fused_joiner_hold_at_most_the_mass(
    mass: float, max_bytes: int | None
) -> None:
    """The bias's gradient is the sum of the rows', so its L1 norm changes by 2 ``mass`` at most."""
    inputs = joiner_inputs()

    def loss(mass: float) -> Callable[..., Tensor]:
        options = {**ALLOW, "max_bytes": max_bytes, "max_dropped_mass": mass, "reduction": "sum"}
        return lambda *inputs: joiner_rnnt_loss(*inputs, TARGETS, *SIZES, **options)

    exact, changed = gradients(loss(0.0), inputs)[4], gradients(loss(mass), inputs)[4]
    assert 0 < (changed - exact).abs().sum() <= 3 * 2 * mass


@each_backend
def test_refused_without_being_asked_for(backend: str) -> None:
    message = "`targets` must not contain `blank`, but is 2 at position 0 of sample 0."
    logits = padded_logits()
    for call in (rnnt_loss, rnnt_loss_and_grad, rnnt_alignment):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            call(logits, TARGETS, *SIZES, BLANK, backend=backend)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        joiner_rnnt_loss(*joiner_inputs(), TARGETS, *SIZES, BLANK, backend=backend)


@each_backend
def test_other_wrong_labels_are_refused_all_the_same(backend: str) -> None:
    targets = TARGETS.clone()
    targets[1, 1] = V
    message = "`targets` must be in [0, 4], but is 5 at position 1 of sample 1."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        rnnt_loss(padded_logits(), targets, *SIZES, **ALLOW, backend=backend)


def test_unknown_choice_is_named() -> None:
    message = '`blank_in_targets` must be "error" or "allow", but is "ignore".'
    for call in (rnnt_loss, rnnt_loss_and_grad, rnnt_alignment):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            call(padded_logits(), TARGETS, *SIZES, BLANK, blank_in_targets="ignore")
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        joiner_rnnt_loss(*joiner_inputs(), TARGETS, *SIZES, BLANK, blank_in_targets="ignore")
