"""The loss against its definition: closed form, all alignments, finite differences, autograd."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from asr_ascend.losses import pack_logits, rnnt_loss, unpack_logits
from tests.support import oracles


@oracles.each_backend
@oracles.each_dtype
@pytest.mark.parametrize(
    ("frames", "labels", "vocab"),
    [(1, 0, 2), (1, 1, 2), (5, 0, 7), (1, 6, 3), (4, 3, 5), (3, 9, 17), (40, 20, 64), (64, 1, 33)],
)
def test_equal_logits_have_the_closed_form_cost(
    frames: int, labels: int, vocab: int, dtype: torch.dtype, backend: str
) -> None:
    case = oracles.make_case([(frames, labels)], vocab, dtype=dtype, scale=0.0)
    case = case.with_logits(torch.full_like(case.logits, 0.75))
    costs, _ = oracles.run(case, backend)
    expected = torch.tensor([oracles.equal_logits_cost(frames, labels, vocab)], dtype=torch.float64)
    oracles.assert_costs(costs, expected, dtype)


def test_closed_form_of_two_frames_and_one_label() -> None:
    # Two paths of three steps, each of probability 1/4: ln 32.
    assert oracles.equal_logits_cost(2, 1, 4) == pytest.approx(3.4657359027997265, rel=1e-15)


@oracles.each_backend
@oracles.each_dtype
@pytest.mark.parametrize("blank", [0, 2, 4, -1, -5])
def test_value_and_gradient_equal_the_sum_over_all_alignments(
    blank: int, dtype: torch.dtype, backend: str
) -> None:
    case = oracles.make_case(
        [(4, 3), (1, 0), (1, 4), (5, 0), (2, 4), (3, 1)], 5, blank=blank, dtype=dtype, scale=2.0
    )
    leaf = case.logits.double().requires_grad_()
    enumerated = oracles.enumerate_costs(case.with_logits(leaf))
    upstream = torch.tensor([1.0, 0.5, -1.0, 0.0, 0.25, 1.0], dtype=torch.float64)
    enumerated.backward(upstream)
    costs, gradient = oracles.run(case, backend, upstream=upstream)
    oracles.assert_costs(costs, enumerated.detach(), dtype)
    oracles.assert_gradient(gradient, leaf.grad, dtype)


@oracles.each_backend
@oracles.each_dtype
def test_log_probabilities_as_input(dtype: torch.dtype, backend: str) -> None:
    case = oracles.make_case([(4, 3), (3, 0), (1, 2)], 6, blank=1, seed=3)
    case = case.with_logits(case.logits.log_softmax(-1).to(dtype))
    leaf = case.logits.double().requires_grad_()
    enumerated = oracles.enumerate_costs(case.with_logits(leaf), fused_log_softmax=False)
    enumerated.sum().backward()
    costs, gradient = oracles.run(case, backend, fused_log_softmax=False)
    oracles.assert_costs(costs, enumerated.detach(), dtype)
    oracles.assert_gradient(gradient, leaf.grad, dtype)
    for rows, frames, labels, targets in case.samples():
        # Only blank and the next label are read, so nothing else has a gradient.
        block = gradient[rows].reshape(frames, labels + 1, -1).clone()
        block[:, :, case.blank_index] = 0
        for u, target in enumerate(targets):
            block[:, u, target] = 0
        assert torch.count_nonzero(block) == 0


def loss_of(case: oracles.Case, backend: str, **options: object) -> Callable:
    def loss(logits: torch.Tensor) -> torch.Tensor:
        return rnnt_loss(
            logits,
            case.targets,
            case.logit_lengths,
            case.target_lengths,
            blank=case.blank,
            backend=backend,
            **options,
        )

    return loss


@oracles.each_backend
def test_gradient_equals_central_differences(backend: str) -> None:
    case = oracles.make_case([(4, 2), (1, 2)], 4, blank=1, dtype=torch.float64, seed=5)
    _, gradient = oracles.run(case, backend)
    loss = loss_of(case, backend, reduction="sum")
    step = 1e-5
    for row in range(case.logits.shape[0]):
        for symbol in range(case.vocab):
            nudge = torch.zeros_like(case.logits)
            nudge[row, symbol] = step
            slope = (loss(case.logits + nudge) - loss(case.logits - nudge)).item() / (2 * step)
            assert gradient[row, symbol].item() == pytest.approx(slope, abs=2e-8)


@oracles.each_backend
@oracles.each_dtype
def test_gradient_of_a_row_sums_to_zero(dtype: torch.dtype, backend: str) -> None:
    case = oracles.make_case([(9, 5), (4, 6)], 23, dtype=dtype, scale=3.0)
    _, gradient = oracles.run(case, backend)
    worst = gradient.double().sum(-1).abs().max().item()
    bound = {torch.float64: 1e-12, torch.float32: 2e-6}.get(dtype, 23 * torch.finfo(dtype).eps)
    assert worst <= bound


@oracles.each_backend
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("fused_log_softmax", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_gradcheck(backend: str, reduction: str, fused_log_softmax: bool, padded: bool) -> None:
    case = oracles.make_case([(3, 2), (2, 0), (1, 2)], 3, blank=0, dtype=torch.float64)
    if not fused_log_softmax:
        case = case.with_logits(case.logits.log_softmax(-1))
    logits = case.padded_logits() if padded else case.logits
    loss = loss_of(case, backend, reduction=reduction, fused_log_softmax=fused_log_softmax)
    assert torch.autograd.gradcheck(loss, (logits.clone().requires_grad_(),))


@pytest.mark.parametrize("fused_log_softmax", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_gradgradcheck_of_the_reference(fused_log_softmax: bool, padded: bool) -> None:
    case = oracles.make_case([(2, 1), (1, 1)], 3, blank=0, dtype=torch.float64)
    if not fused_log_softmax:
        case = case.with_logits(case.logits.log_softmax(-1))
    logits = case.padded_logits() if padded else case.logits
    loss = loss_of(case, "reference", reduction="none", fused_log_softmax=fused_log_softmax)
    assert torch.autograd.gradgradcheck(loss, (logits.clone().requires_grad_(),))


def test_reference_hessian_equals_that_of_the_enumeration() -> None:
    case = oracles.make_case([(2, 2), (2, 0)], 3, blank=1, dtype=torch.float64)

    def enumerated(logits: torch.Tensor) -> torch.Tensor:
        return oracles.enumerate_costs(case.with_logits(logits)).sum()

    expected = torch.autograd.functional.hessian(enumerated, case.logits)
    actual = torch.autograd.functional.hessian(
        loss_of(case, "reference", reduction="sum"), case.logits
    )
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-11)


def test_gradcheck_of_pack_and_unpack() -> None:
    case = oracles.make_case([(3, 2), (2, 0), (1, 3)], 2, dtype=torch.float64)
    lengths = (case.logit_lengths, case.target_lengths)
    padded = case.padded_logits(extra_frames=1, extra_columns=1).requires_grad_()
    packed = case.logits.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: pack_logits(x, *lengths), (padded,))
    assert torch.autograd.gradcheck(lambda x: unpack_logits(x, *lengths), (packed,))


@oracles.each_backend
@oracles.each_dtype
@pytest.mark.parametrize("clamp", [0.02, 0.3, 5.0])
def test_clamp_cuts_each_component_before_the_upstream_gradient(
    clamp: float, dtype: torch.dtype, backend: str
) -> None:
    case = oracles.make_case([(6, 3), (4, 5), (3, 0)], 7, dtype=dtype, scale=2.0)
    upstream = torch.tensor([1.0, -4.0, 0.5])
    costs, gradient = oracles.run(case, backend, clamp=clamp, upstream=upstream)
    exact_costs, exact_gradient = oracles.exact(case, clamp=clamp, upstream=upstream)
    _, unclamped = oracles.exact(case)
    assert (unclamped.abs() > clamp).any() == (clamp < 1)
    oracles.assert_costs(costs, exact_costs, dtype)
    oracles.assert_gradient(gradient, exact_gradient, dtype, upstream_scale=4.0)


@oracles.each_backend
@pytest.mark.parametrize("clamp", [0.0, -1.0, -0.5])
def test_clamp_of_zero_or_less_is_off(clamp: float, backend: str) -> None:
    case = oracles.make_case([(6, 3), (4, 5)], 7)
    _, gradient = oracles.run(case, backend, clamp=clamp)
    _, exact_gradient = oracles.exact(case)
    assert exact_gradient.abs().max() > 0.5
    oracles.assert_gradient(gradient, exact_gradient, torch.float32)


@oracles.each_backend
@oracles.each_dtype
@pytest.mark.parametrize(("reduction", "weight"), [("mean", 1 / 3), ("sum", 1.0)])
def test_reductions(reduction: str, weight: float, dtype: torch.dtype, backend: str) -> None:
    case = oracles.make_case([(6, 3), (4, 5), (3, 0)], 7, dtype=dtype)
    value, gradient = oracles.run(case, backend, reduction=reduction)
    assert value.shape == ()
    weights = torch.full((3,), weight, dtype=torch.float64)
    exact_costs, exact_gradient = oracles.exact(case, upstream=weights)
    oracles.assert_costs(value, exact_costs.sum() * weight, dtype)
    oracles.assert_gradient(gradient, exact_gradient, dtype)


@oracles.each_backend
@oracles.each_dtype
def test_upstream_gradient_per_sample(dtype: torch.dtype, backend: str) -> None:
    """Negative and zero among them: a loss such as 1000 - L must not give NaN."""
    case = oracles.make_case([(6, 3), (4, 5), (3, 0), (5, 5)], 7, dtype=dtype)
    upstream = torch.tensor([-1.0, 0.0, 3.0, -0.125])
    _, gradient = oracles.run(case, backend, upstream=upstream)
    _, exact_gradient = oracles.exact(case, upstream=upstream)
    oracles.assert_gradient(gradient, exact_gradient, dtype, upstream_scale=3.0)
    rows = list(case.samples())[1][0]
    assert torch.count_nonzero(gradient[rows]) == 0


@oracles.each_backend
def test_a_large_upstream_gradient_as_a_loss_scaler_uses(backend: str) -> None:
    case = oracles.make_case([(6, 3), (4, 5)], 7, dtype=torch.float16)
    upstream = torch.full((2,), 1024.0)
    _, gradient = oracles.run(case, backend, upstream=upstream)
    _, exact_gradient = oracles.exact(case, upstream=upstream)
    oracles.assert_gradient(gradient, exact_gradient, torch.float16, upstream_scale=1024.0)


@oracles.each_backend
@pytest.mark.parametrize("offset", range(6))
def test_blank_anywhere_positive_or_negative(offset: int, backend: str) -> None:
    vocab = 6
    case = oracles.make_case([(5, 3), (3, 4)], vocab, blank=offset)
    costs, gradient = oracles.run(case, backend)
    exact_costs, exact_gradient = oracles.exact(case)
    oracles.assert_costs(costs, exact_costs, torch.float32)
    oracles.assert_gradient(gradient, exact_gradient, torch.float32)
    negative = oracles.Case(
        case.logits, case.targets, case.logit_lengths, case.target_lengths, offset - vocab
    )
    negative_costs, negative_gradient = oracles.run(negative, backend)
    oracles.assert_same_bits(negative_costs, costs)
    oracles.assert_same_bits(negative_gradient, gradient)
