"""FastEmit: the definition of Yu et al. 2021 written out, and that 0 turns it off to the bit."""

from __future__ import annotations

import pytest
import torch

from asr_ascend.losses import RNNTLoss, rnnt_loss, rnnt_loss_and_grad
from tests.support import oracles

LAMBDA = 0.7


def a_case(dtype: torch.dtype = torch.float32, blank: int = 3) -> oracles.Case:
    return oracles.make_case([(5, 3), (4, 4), (1, 2), (3, 0)], 7, blank=blank, dtype=dtype, seed=1)


def by_definition(case: oracles.Case, fused_log_softmax: bool = True) -> torch.Tensor:
    """d cost / d log-probability from every alignment, labels' enlarged; then the log-softmax."""
    logits = case.logits.double().requires_grad_()
    log_probs = logits.log_softmax(-1) if fused_log_softmax else logits * 1
    given = log_probs.detach().requires_grad_()
    costs = oracles.enumerate_costs(case.with_logits(given), fused_log_softmax=False)
    (gradient,) = torch.autograd.grad(costs.sum(), given)
    is_label = (torch.arange(case.vocab) != case.blank_index).double()
    return torch.autograd.grad(log_probs, logits, gradient * (1 + LAMBDA * is_label))[0]


@oracles.each_backend
@oracles.each_dtype
@pytest.mark.parametrize("blank", [0, 3, -1])
@pytest.mark.parametrize("fused_log_softmax", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_gradient_is_that_of_the_definition(
    padded: bool, fused_log_softmax: bool, blank: int, dtype: torch.dtype, backend: str
) -> None:
    case = a_case(dtype, blank)
    if not fused_log_softmax:
        case = case.with_logits(case.logits.double().log_softmax(-1).to(dtype))
    expected = by_definition(case, fused_log_softmax)
    options = {"fastemit_lambda": LAMBDA, "fused_log_softmax": fused_log_softmax}
    rows = case.padded_logits(float("nan"), 1, 1) if padded else None
    costs, gradient = oracles.run(case, backend, padded=rows, **options)
    if padded:
        assert (case.outside_lattice(gradient) == 0).all()
        gradient = case.take_packed(gradient)
    oracles.assert_gradient(gradient, expected, dtype)
    # The value is the plain cost.
    plain, _ = oracles.run(case, backend, fused_log_softmax=fused_log_softmax)
    oracles.assert_same_bits(costs, plain)


@oracles.each_backend
@oracles.each_dtype
def test_clamp_comes_after_and_upstream_last(dtype: torch.dtype, backend: str) -> None:
    case = a_case(dtype)
    upstream = torch.tensor([1.0, -2.0, 0.5, 3.0])
    clamped = by_definition(case).clamp(-0.3, 0.3)
    assert (clamped.abs() == 0.3).sum() > 3
    options = {"fastemit_lambda": LAMBDA, "clamp": 0.3}
    _, gradient = oracles.run(case, backend, upstream=upstream, **options)
    expected = clamped * case.spread_over_rows(upstream)
    oracles.assert_gradient(gradient, expected, dtype, upstream_scale=3.0)


@oracles.each_backend
@oracles.each_dtype
@pytest.mark.parametrize("fused_log_softmax", [True, False])
def test_reuse_module_and_one_call_give_the_same_bits(
    fused_log_softmax: bool, dtype: torch.dtype, backend: str
) -> None:
    case = a_case(dtype)
    case = case.with_logits(case.logits.log_softmax(-1))
    options = {"fastemit_lambda": LAMBDA, "fused_log_softmax": fused_log_softmax}
    costs, gradient = oracles.run(case, backend, **options)
    again, reused = oracles.run(case, backend, reuse_logits=True, **options)
    oracles.assert_same_bits(again, costs)
    oracles.assert_same_bits(reused, gradient)
    batch = case.logits, case.targets, case.logit_lengths, case.target_lengths
    at_once = rnnt_loss_and_grad(*batch, blank=case.blank, backend=backend, **options)
    oracles.assert_same_bits(at_once[0], costs)
    oracles.assert_same_bits(at_once[1], gradient)
    leaf = case.logits.clone().requires_grad_()
    module = RNNTLoss(blank=case.blank, reduction="sum", backend=backend, **options)
    module(leaf, *batch[1:]).backward()
    oracles.assert_same_bits(leaf.grad, gradient)


@oracles.each_backend
@oracles.each_dtype
@pytest.mark.parametrize("fused_log_softmax", [True, False])
def test_zero_turns_it_off_to_the_bit(
    fused_log_softmax: bool, dtype: torch.dtype, backend: str
) -> None:
    case = a_case(dtype)
    case = case.with_logits(case.logits.log_softmax(-1))
    _, plain = oracles.run(case, backend, fused_log_softmax=fused_log_softmax)
    for zero in (0.0, 0, -0.0):
        options = {"fused_log_softmax": fused_log_softmax, "fastemit_lambda": zero}
        oracles.assert_same_bits(oracles.run(case, backend, **options)[1], plain)


@oracles.each_dtype
def test_a_longer_lattice_against_the_float64_one(dtype: torch.dtype) -> None:
    case = oracles.make_case([(90, 31), (40, 60)], 33, blank=0, dtype=dtype, scale=4.0)
    _, expected = oracles.exact(case, fastemit_lambda=0.01)
    _, gradient = oracles.run(case, "cpu", fastemit_lambda=0.01)
    oracles.assert_gradient(gradient, expected, dtype)


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    case = oracles.make_case([(90, 31), (40, 60)], 33, blank=0)
    before = torch.get_num_threads()
    gradients = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        gradients.append(oracles.run(case, "cpu", fastemit_lambda=0.3)[1])
    torch.set_num_threads(before)
    oracles.assert_same_bits(gradients[1], gradients[0])
    oracles.assert_same_bits(gradients[2], gradients[0])


@oracles.each_backend
def test_samples_without_a_path_or_a_number_stay_what_they_are(backend: str) -> None:
    case = a_case()
    logits = case.logits.clone()
    (first, *_), (second, *_), *_ = case.samples()
    logits[first.stop - 1, case.blank] = -torch.inf
    logits[second.start, 0] = torch.nan
    costs, gradient = oracles.run(case.with_logits(logits), backend, fastemit_lambda=LAMBDA)
    assert costs[0] == torch.inf
    assert (gradient[first] == 0).all()
    assert costs[1].isnan()
    assert gradient[second].isnan().all()
    _, clean = oracles.run(case, backend, fastemit_lambda=LAMBDA)
    oracles.assert_same_bits(gradient[second.stop :], clean[second.stop :])


@oracles.each_backend
def test_a_masked_label_and_huge_lambda_stay_finite(backend: str) -> None:
    case = a_case()
    logits = case.logits.clone()
    logits[1, int(case.targets[0, 1])] = -torch.inf
    case = case.with_logits(logits)
    for weight in (1e-300, 1e30):
        _, gradient = oracles.run(case, backend, fastemit_lambda=weight)
        _, expected = oracles.exact(case, fastemit_lambda=weight)
        assert gradient.isfinite().all()
        torch.testing.assert_close(gradient.double(), expected, rtol=1e-5, atol=1e-5)


def test_the_references_second_derivative_is_that_of_the_gradient() -> None:
    batch = torch.tensor([[1], [0]]), torch.tensor([2, 1]), torch.tensor([1, 0])
    logits = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(5))

    def gradient(logits: torch.Tensor) -> torch.Tensor:
        leaf = logits if logits.requires_grad else logits.detach().requires_grad_()
        loss = rnnt_loss(leaf * 1, *batch, backend="reference", fastemit_lambda=LAMBDA)
        return torch.autograd.grad(loss, leaf, create_graph=True)[0]

    assert torch.autograd.gradcheck(gradient, logits.requires_grad_())


@oracles.each_backend
def test_whole_graph(backend: str) -> None:
    torch._dynamo.reset()
    case = a_case()
    batch = case.targets, case.logit_lengths, case.target_lengths

    def loss(logits: torch.Tensor) -> torch.Tensor:
        return rnnt_loss(logits, *batch, blank=3, fastemit_lambda=LAMBDA, backend=backend)

    compiled = torch.compile(loss, fullgraph=backend == "cpu", backend="aot_eager")
    gradients = []
    for function in (loss, compiled):
        leaf = case.logits.clone().requires_grad_()
        function(leaf).backward()
        gradients.append(leaf.grad)
    oracles.assert_same_bits(gradients[1], gradients[0])


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (-0.1, ValueError, "`fastemit_lambda` must be finite and at least 0, but is -0.1."),
        (torch.nan, ValueError, "`fastemit_lambda` must be finite and at least 0, but is nan."),
        (torch.inf, ValueError, "`fastemit_lambda` must be finite and at least 0, but is inf."),
        ("off", TypeError, '`fastemit_lambda` must be a float, but is "off".'),
    ],
)
@oracles.each_backend
def test_errors(backend: str, value: object, error: type[Exception], message: str) -> None:
    case = a_case()
    batch = case.logits, case.targets, case.logit_lengths, case.target_lengths
    for function in (rnnt_loss, rnnt_loss_and_grad):
        with pytest.raises(error) as raised:
            function(*batch, blank=case.blank, backend=backend, fastemit_lambda=value)
        assert str(raised.value) == message
