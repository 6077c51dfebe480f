"""Long utterances, and the proof that a lattice of plain floats would not do."""

from __future__ import annotations

import ctypes

import pytest
import torch

from kernels.verify.loss_cases import PRECISION_ROWS, worst_errors
from tests.support import emulated_operator as emulated
from tests.support import oracles

GRADIENT_TOLERANCE = 1e-5


def errors(library: ctypes.CDLL, case: oracles.Case) -> tuple[float, float]:
    """Largest error of a cost, in units of what is allowed, and of the gradient."""
    result = emulated.call(library, case, cores=40)
    costs, gradient_error = worst_errors(case, result.gradient)
    allowed = emulated.cost_tolerance(costs)
    assert result.status.tolist() == [emulated.STATUS_OK] * len(costs)
    return ((result.costs.double() - costs).abs() / allowed).max().item(), gradient_error


@pytest.mark.parametrize("scale", [1.0, 4.0])
@pytest.mark.parametrize("dtype", emulated.DTYPES, ids=["float32", "float16", "bf16"])
def test_a_long_utterance(operator: ctypes.CDLL, dtype: torch.dtype, scale: float) -> None:
    case = oracles.make_case([(500, 120)], 30, blank=0, dtype=dtype, scale=scale)
    cost_error, gradient_error = errors(operator, case)
    assert cost_error <= 1.0
    assert gradient_error <= GRADIENT_TOLERANCE / 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        (torch.float32, 1.0),
        (torch.float32, 4.0),
        (torch.float16, 1.0),
        (torch.bfloat16, 1.0),
    ],
)
def test_2000_x_500_x_128(operator: ctypes.CDLL, dtype: torch.dtype, scale: float) -> None:
    case = oracles.make_case([(2000, 500)], 128, blank=0, dtype=dtype, scale=scale)
    cost_error, gradient_error = errors(operator, case)
    assert cost_error <= 1.0
    assert gradient_error <= GRADIENT_TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("row", PRECISION_ROWS)
def test_precision_rows_of_the_specification(operator: ctypes.CDLL, row: str) -> None:
    dtype, lengths, vocab, _ = PRECISION_ROWS[row]
    case = oracles.make_case(lengths, vocab, dtype=dtype, seed=len(row))
    cost_error, gradient_error = errors(operator, case)
    assert cost_error <= 1.0
    assert gradient_error <= GRADIENT_TOLERANCE


def test_a_lattice_of_plain_floats_is_not_accurate_enough() -> None:
    """The same kernel without the errors of its sums and differences fails the test above."""
    nothing = "AscendC::Duplicate(error, 0.0f, count);"
    altered = emulated.build_altered(
        "plain-floats",
        "rnnt_loss_vector.h",
        {
            "AscendC::Add(error, error, y, count);": nothing,
            "AscendC::Sub(error, y, error, count);": nothing,
        },
    )
    _, gradient_error = errors(altered, oracles.make_case([(500, 120)], 30, blank=0))
    assert gradient_error > 10 * GRADIENT_TOLERANCE


@pytest.mark.slow
def test_alpha_and_beta_that_disagree_are_reported() -> None:
    """alpha takes blank for the label: only samples without labels stay right."""
    altered = emulated.build_altered(
        "wrong-alpha",
        "rnnt_loss_lattice.h",
        {"Stacked(kError)[label_lane]};": "Stacked(kError)[label_lane]}; by_label = by_blank;"},
    )
    case = oracles.make_case([(6, 3), (5, 0), (4, 2)], 7)
    result = emulated.call(altered, case)
    costs, _ = oracles.exact(case)
    emulated.assert_costs(result.costs, costs)  # they come from beta
    disagree = emulated.CROSS_CHECK
    assert result.status.tolist() == [disagree, emulated.STATUS_OK, disagree]
