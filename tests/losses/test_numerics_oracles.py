"""The oracles judge the loss; here they are judged themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torchaudio.functional import rnnt_loss as torchaudio_rnnt_loss

from tests.support import oracles

EXACT_FILE = Path(__file__).parents[1] / "expected" / "exact_lattice.json"
EXACT = json.loads(EXACT_FILE.read_text())
each_exact_case = pytest.mark.parametrize("name", EXACT)


def load_exact(name: str, dtype: torch.dtype) -> tuple[oracles.Case, torch.Tensor, torch.Tensor]:
    """Case, costs and gradient from 60-digit arithmetic."""
    entry = EXACT[name]
    logits = torch.tensor(entry["logits_64ths"], dtype=torch.float64) / 64
    case = oracles.Case(
        logits.to(dtype),
        torch.tensor(entry["targets"], dtype=torch.int64)[None],
        torch.tensor([entry["T"]]),
        torch.tensor([entry["U"]]),
        entry["blank"],
    )
    gradient = torch.tensor(entry["gradient"], dtype=torch.float64)
    return case, torch.tensor([entry["cost"]], dtype=torch.float64), gradient


@each_exact_case
def test_float64_lattice_equals_decimal_arithmetic(name: str) -> None:
    case, costs, gradient = load_exact(name, torch.float64)
    lattice_costs, lattice_gradient = oracles.exact(case)
    torch.testing.assert_close(lattice_costs, costs, rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(lattice_gradient, gradient, rtol=1e-11, atol=1e-13)


@oracles.each_backend
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@each_exact_case
def test_loss_equals_decimal_arithmetic(name: str, backend: str, dtype: torch.dtype) -> None:
    case, costs, gradient = load_exact(name, dtype)
    actual_costs, actual_gradient = oracles.run(case, backend)
    oracles.assert_costs(actual_costs, costs, dtype)
    oracles.assert_gradient(actual_gradient, gradient, dtype)


@pytest.mark.parametrize("fused_log_softmax", [True, False])
def test_float64_lattice_equals_enumeration(fused_log_softmax: bool) -> None:
    case = oracles.make_case([(4, 3), (1, 2), (3, 0), (2, 4)], 5, blank=2, dtype=torch.float64)
    if not fused_log_softmax:
        case = case.with_logits(case.logits.log_softmax(-1))
    leaf = case.logits.clone().requires_grad_()
    costs = oracles.enumerate_costs(case.with_logits(leaf), fused_log_softmax)
    costs.sum().backward()
    lattice_costs, lattice_gradient = oracles.exact(case, fused_log_softmax=fused_log_softmax)
    torch.testing.assert_close(lattice_costs, costs.detach(), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(lattice_gradient, leaf.grad, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("clamp", [-1.0, 0.3])
@pytest.mark.parametrize("fused_log_softmax", [True, False])
def test_float64_lattice_equals_torchaudio(clamp: float, fused_log_softmax: bool) -> None:
    case = oracles.make_case([(12, 7), (9, 4), (7, 7)], 11, blank=4)
    if not fused_log_softmax:
        case = case.with_logits(case.logits.log_softmax(-1))
    upstream = torch.tensor([1.0, -0.5, 2.0])
    leaf = case.padded_logits().requires_grad_()
    costs = torchaudio_rnnt_loss(
        leaf,
        case.targets.int(),
        case.logit_lengths.int(),
        case.target_lengths.int(),
        blank=case.blank,
        clamp=clamp,
        reduction="none",
        fused_log_softmax=fused_log_softmax,
    )
    costs.backward(upstream)
    lattice_costs, lattice_gradient = oracles.exact(
        case, clamp=clamp, fused_log_softmax=fused_log_softmax, upstream=upstream
    )
    torch.testing.assert_close(costs.detach().double(), lattice_costs, rtol=2e-6, atol=0)
    actual = case.take_packed(leaf.grad).double()
    torch.testing.assert_close(actual, lattice_gradient, rtol=0, atol=2e-5)


def test_assert_within_notices_one_wrong_element() -> None:
    expected = torch.tensor([1.0, 2.0, float("nan")], dtype=torch.float64)
    tolerance = torch.full_like(expected, 1e-3)
    oracles.assert_within(expected + 5e-4, expected, tolerance, "value")
    with pytest.raises(AssertionError, match=r"value: 1 of 3 wrong, the first at \(1,\)"):
        wrong = torch.tensor([1.0, 2.1, float("nan")])
        oracles.assert_within(wrong, expected, tolerance, "value")
    with pytest.raises(AssertionError, match=r"1 of 3 wrong, the first at \(2,\): 0.0 for nan"):
        finite = torch.tensor([1.0, 2.0, 0.0])
        oracles.assert_within(finite, expected, tolerance, "value")


def test_ulp_is_the_distance_to_the_next_number() -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        values = torch.tensor([1e-4, 0.24, 1.0, 1.5, 300.0], dtype=dtype)
        above = torch.nextafter(values, torch.full_like(values, float("inf")))
        gap = above.double() - values.double()
        assert torch.equal(oracles.ulp(values, dtype), gap)
