"""The same calls through torchaudio.functional.rnnt_loss, within torchaudio's own accuracy.

torchaudio's lattice is float32: its gradient is off by 1.3e-3 at T=1000, U=200 (measured), and by
about 1e-5 at the sizes here. Its cost comes back in the logits' dtype.
"""

from __future__ import annotations

import pytest
import torch
from torchaudio.functional import rnnt_loss as torchaudio_rnnt_loss
from torchaudio.transforms import RNNTLoss as TorchaudioRNNTLoss

from asr_ascend.losses import RNNTLoss, rnnt_loss
from tests.support import oracles

COST_RTOL = 2e-6
GRADIENT_ATOL = 3e-5

SHAPES = {
    "plain": ([(12, 7), (12, 7)], 11),
    "ragged": ([(30, 4), (11, 12), (8, 8)], 29),
    "one_frame": ([(1, 3), (1, 0)], 5),
    "no_labels": ([(6, 0), (4, 0)], 5),
    "more_labels_than_frames": ([(3, 9), (2, 6)], 7),
    "two_symbols": ([(8, 4), (6, 6)], 2),
}


def both(
    case: oracles.Case, backend: str, **options: object
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Value and gradient from torchaudio and from us, from one and the same argument list."""
    results = []
    for function, extra in ((torchaudio_rnnt_loss, {}), (rnnt_loss, {"backend": backend})):
        logits = case.padded_logits().requires_grad_()
        value = function(
            logits,
            case.targets.int(),
            case.logit_lengths.int(),
            case.target_lengths.int(),
            **options,
            **extra,
        )
        value.sum().backward()
        results.append((value.detach(), logits.grad))
    return results


def assert_agree(results: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    (their_value, their_gradient), (value, gradient) = results
    assert value.shape == their_value.shape
    assert gradient.abs().max() > 0
    torch.testing.assert_close(value, their_value.float(), rtol=COST_RTOL, atol=1e-6)
    torch.testing.assert_close(gradient, their_gradient, rtol=0, atol=GRADIENT_ATOL)


@oracles.each_backend
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("name", SHAPES)
def test_value_and_gradient(name: str, reduction: str, backend: str) -> None:
    lengths, vocab = SHAPES[name]
    assert_agree(both(oracles.make_case(lengths, vocab), backend, reduction=reduction))


@oracles.each_backend
def test_defaults_are_torchaudios(backend: str) -> None:
    """No option given: blank is the last symbol, no clamp, mean over the batch, logits."""
    assert_agree(both(oracles.make_case([(9, 4), (7, 5), (8, 1)], 6), backend))


@oracles.each_backend
@pytest.mark.parametrize("blank", [0, 3, 6, -1, -7, -4])
def test_blank(blank: int, backend: str) -> None:
    case = oracles.make_case([(9, 4), (7, 5)], 7, blank=blank)
    assert_agree(both(case, backend, blank=blank, reduction="sum"))


@oracles.each_backend
@pytest.mark.parametrize("clamp", [-1.0, 0.0, 0.05, 0.4, 10.0])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_clamp(reduction: str, clamp: float, backend: str) -> None:
    case = oracles.make_case([(9, 4), (7, 5)], 7, scale=2.0)
    assert_agree(both(case, backend, clamp=clamp, reduction=reduction))


@oracles.each_backend
@pytest.mark.parametrize("clamp", [-1.0, 0.2])
def test_log_probabilities(clamp: float, backend: str) -> None:
    case = oracles.make_case([(9, 4), (7, 5)], 7)
    case = case.with_logits(case.logits.log_softmax(-1))
    assert_agree(both(case, backend, fused_log_softmax=False, clamp=clamp, reduction="sum"))


@oracles.each_backend
def test_arguments_by_position(backend: str) -> None:
    case = oracles.make_case([(9, 4), (7, 5)], 7, blank=2)
    case = case.with_logits(case.logits.log_softmax(-1))
    logits = case.padded_logits()
    lengths = (case.targets.int(), case.logit_lengths.int(), case.target_lengths.int())
    position = (2, 0.1, "none", False)
    theirs = torchaudio_rnnt_loss(logits, *lengths, *position)
    ours = rnnt_loss(logits, *lengths, *position, backend=backend)
    torch.testing.assert_close(ours, theirs, rtol=COST_RTOL, atol=1e-6)


def test_the_module_takes_torchaudios_arguments() -> None:
    case = oracles.make_case([(9, 4), (7, 5)], 7, blank=2)
    arguments = (
        case.padded_logits(),
        case.targets.int(),
        case.logit_lengths.int(),
        case.target_lengths.int(),
    )
    for options in ((2,), (2, 0.3), (2, 0.3, "sum")):
        theirs = TorchaudioRNNTLoss(*options)(*arguments)
        ours = RNNTLoss(*options)(*arguments)
        torch.testing.assert_close(ours, theirs, rtol=COST_RTOL, atol=1e-6)


@oracles.each_backend
def test_float16(backend: str) -> None:
    case = oracles.make_case([(9, 4), (7, 5)], 7, dtype=torch.float16)
    (their_value, their_gradient), (value, gradient) = both(case, backend, reduction="none")
    # torchaudio rounds the cost to float16 and its arithmetic on the way, too.
    torch.testing.assert_close(value, their_value.float(), rtol=2e-3, atol=0)
    torch.testing.assert_close(gradient, their_gradient, rtol=0, atol=3e-3)


@oracles.each_backend
def test_it_is_at_least_as_near_to_float64_as_torchaudio(backend: str) -> None:
    case = oracles.make_case([(300, 60)], 30)
    exact_costs, exact_gradient = oracles.exact(case)
    errors = []
    for value, gradient in both(case, backend, reduction="none"):
        gradient_error = (case.take_packed(gradient).double() - exact_gradient).abs().max().item()
        errors.append((abs(value.item() - exact_costs.item()), gradient_error))
    (their_cost_error, their_gradient_error), (cost_error, gradient_error) = errors
    assert cost_error <= max(their_cost_error, oracles.ulp(exact_costs, torch.float32).item())
    assert gradient_error <= their_gradient_error
