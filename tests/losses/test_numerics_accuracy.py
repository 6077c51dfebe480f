"""Accuracy against a float64 lattice: PEERS's case list, half types, long utterances."""

from __future__ import annotations

import pytest
import torch

from asr_ascend.losses import rnnt_loss_and_grad
from kernels.verify.loss_cases import CASE_LIST, PRECISION_ROWS, worst_errors
from tests.support import oracles


def check(case: oracles.Case, backend: str, dtype: torch.dtype) -> None:
    costs, gradient = oracles.run(case, backend)
    exact_costs, exact_gradient = oracles.exact(case)
    oracles.assert_costs(costs, exact_costs, dtype)
    oracles.assert_gradient(gradient, exact_gradient, dtype)


@oracles.each_backend
@oracles.each_dtype
@pytest.mark.parametrize("name", CASE_LIST)
def test_case_list(name: str, dtype: torch.dtype, backend: str) -> None:
    lengths, vocab, blank, scale = CASE_LIST[name]
    check(oracles.make_case(lengths, vocab, blank=blank, dtype=dtype, scale=scale), backend, dtype)


@oracles.each_backend
@oracles.each_dtype
def test_every_vocabulary_size_around_vector_widths(dtype: torch.dtype, backend: str) -> None:
    # The reference has no vectors of its own: a few sizes do.
    for vocab in range(2, 71, 1 if backend == "cpu" else 11):
        case = oracles.make_case([(4, 2), (2, 3)], vocab, blank=vocab // 2, dtype=dtype, seed=vocab)
        check(case, backend, dtype)


@oracles.each_backend
@oracles.each_dtype
def test_a_vocabulary_of_one_symbol_has_only_blank(dtype: torch.dtype, backend: str) -> None:
    case = oracles.make_case([(5, 0), (1, 0)], 1, blank=0, dtype=dtype)
    costs, gradient = oracles.run(case, backend)
    assert costs.tolist() == [0.0, 0.0]
    assert gradient.tolist() == [[0.0]] * 6


@oracles.each_backend
@oracles.each_dtype
@pytest.mark.parametrize("margin", [10.0, 14.0, 20.0])
def test_a_cost_near_zero(margin: float, dtype: torch.dtype, backend: str) -> None:
    """One path takes all but 1e-3 .. 1e-8 of the probability: never negative, and as accurate as
    the float32 log-probabilities that it is made of."""
    lengths = [(12, 0), (30, 0)]
    case = oracles.make_case(lengths, 5, blank=2, scale=0.25)
    logits = case.logits.clone()
    logits[:, 2] += margin
    case = case.with_logits(logits.to(dtype))
    costs, _ = oracles.run(case, backend)
    exact_costs, _ = oracles.exact(case)
    assert (costs >= 0).all()
    steps = torch.tensor([frames for frames, _ in lengths])
    unit = 1e-15 if dtype == torch.float64 else 2.0**-24
    oracles.assert_within(costs, exact_costs, steps * unit, "cost")


@oracles.each_backend
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_half_types_are_no_worse_than_their_own_rounding(dtype: torch.dtype, backend: str) -> None:
    """A cost of several thousand, where float16 itself steps by 4, comes back as float32."""
    case = oracles.make_case([(700, 40), (300, 90)], 30, dtype=dtype)
    costs, gradient = oracles.run(case, backend)
    exact_costs, exact_gradient = oracles.exact(case)
    assert exact_costs.max() > 2000
    oracles.assert_costs(costs, exact_costs, dtype)
    oracles.assert_gradient(gradient, exact_gradient, dtype)


@oracles.each_backend
@pytest.mark.parametrize(
    "row",
    [
        "float16_B2_V64",
        pytest.param("float32_B2_V50", marks=pytest.mark.slow),
        pytest.param("float16_B4_V128", marks=pytest.mark.slow),
        pytest.param("float32_B4_V128", marks=pytest.mark.slow),
    ],
)
def test_precision_rows_of_the_specification(row: str, backend: str) -> None:
    """Within the specification's bounds, and within ours, which are tighter.

    Where a cost is so large that float32 steps by more than the bound, one step is allowed.
    """
    dtype, lengths, vocab, bound = PRECISION_ROWS[row]
    case = oracles.make_case(lengths, vocab, dtype=dtype, seed=len(row))
    mean, gradient = oracles.run(case, backend, reduction="mean")
    exact_costs, gradient_error = worst_errors(case, gradient * len(lengths))
    one_ulp = oracles.ulp(exact_costs.mean(), torch.float32).item()
    assert abs(mean.item() - exact_costs.mean().item()) <= one_ulp
    half_ulp_of_one = torch.finfo(dtype).eps / 2 if dtype == torch.float16 else 0.0
    assert gradient_error <= 1e-5 < bound - half_ulp_of_one


# (T, U, V), dtype, scale of the logits.
LONG_UTTERANCES = [
    *(
        pytest.param((600, 150, 40), dtype, scale, id=f"600x150x40-{dtype}-x{scale}")
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
        for scale in (1.0, 4.0)
    ),
    *(
        pytest.param(
            (2000, 500, 128),
            dtype,
            scale,
            id=f"2000x500x128-{dtype}-x{scale}",
            marks=pytest.mark.slow,
        )
        for dtype, scale in [
            (torch.float32, 1.0),
            (torch.float32, 4.0),
            (torch.float16, 1.0),
            (torch.bfloat16, 1.0),
        ]
    ),
]


@pytest.mark.parametrize(("shape", "dtype", "scale"), LONG_UTTERANCES)
def test_long_utterance_on_the_cpu(
    shape: tuple[int, int, int], dtype: torch.dtype, scale: float
) -> None:
    """Cost within 1 ulp of float32, gradient within 1e-5, flat logits and peaky ones."""
    frames, labels, vocab = shape
    case = oracles.make_case([(frames, labels)], vocab, blank=0, dtype=dtype, scale=scale)
    costs, gradient = rnnt_loss_and_grad(
        case.logits,
        case.targets,
        case.logit_lengths,
        case.target_lengths,
        blank=case.blank,
        backend="cpu",
    )
    exact_costs, gradient_error = worst_errors(case, gradient)
    oracles.assert_costs(costs, exact_costs, dtype)
    assert gradient_error <= 1e-5


@oracles.each_backend
def test_1000_x_200_x_30(backend: str) -> None:
    case = oracles.make_case([(1000, 200)], 30, seed=1)
    costs, gradient = oracles.run(case, backend)
    exact_costs, gradient_error = worst_errors(case, gradient)
    oracles.assert_costs(costs, exact_costs, torch.float32)
    assert gradient_error <= 1e-5
