"""Accuracy against a float64 lattice: PEERS's case list, half types, long utterances."""

from __future__ import annotations

import pytest
import torch

from asr_ascend.losses import rnnt_loss_and_grad
from tests.support import oracles

# Samples (T, U), V, blank, scale of the logits.
CASE_LIST = {
    "one_frame": ([(1, 4)], 9, -1, 1.0),
    "one_frame_for_some": ([(1, 4), (7, 4), (1, 0)], 9, -1, 1.0),
    "no_labels_for_one": ([(7, 0), (9, 5)], 9, -1, 1.0),
    "no_labels_for_all": ([(7, 0), (9, 0), (1, 0)], 9, -1, 1.0),
    "more_labels_than_frames": ([(3, 11), (2, 30), (5, 5)], 9, -1, 1.0),
    "blank_first": ([(9, 5), (6, 6)], 31, 0, 1.0),
    "blank_middle": ([(9, 5), (6, 6)], 31, 15, 1.0),
    "blank_last": ([(9, 5), (6, 6)], 31, 30, 1.0),
    "logits_x30": ([(40, 11), (17, 8)], 31, -1, 30.0),
    "logits_x1000": ([(40, 11), (17, 8)], 31, -1, 1000.0),
    "two_symbols": ([(20, 9), (15, 0), (3, 8)], 2, 0, 1.0),
    "many_short": ([(1 + i % 5, i % 4) for i in range(64)], 19, -1, 1.0),
    "wide": ([(6, 3), (4, 2)], 5003, 7, 1.0),
    "ragged": ([(60, 20), (7, 40), (33, 1), (50, 0)], 101, 50, 1.0),
}


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


# The precision rows of the operator's specification (elec-ops-inspection, rnnt-loss-ascend): dtype,
# (T, U) of each sample over the ranges it gives, V, and its bound on cost and gradient, reduction
# "mean". The largest is 0.85 GB of packed logits.
PRECISION_ROWS = {
    "float32_B2_V50": (torch.float32, [(100, 100), (1000, 300)], 50, 1e-4),
    "float32_B4_V128": (
        torch.float32,
        [(200, 50), (800, 200), (1400, 350), (2000, 500)],
        128,
        1e-4,
    ),
    "float16_B2_V64": (torch.float16, [(100, 50), (500, 200)], 64, 1e-3),
    "float16_B4_V128": (torch.float16, [(100, 50), (400, 150), (700, 200), (1000, 300)], 128, 1e-3),
}


def worst_errors(case: oracles.Case, gradient: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Exact costs, and the gradient's largest error beyond half an ulp of a half output type.

    Frame by frame, so that no float64 copy of the logits is ever alive.
    """
    costs = torch.empty(len(case.logit_lengths), dtype=torch.float64)
    largest = 0.0
    for b, (rows, frames, num_labels, labels) in enumerate(case.samples()):
        lattice = oracles.build_lattice(case.logits[rows], frames, labels, case.blank_index)
        costs[b] = lattice.cost
        for t in range(frames):
            first = rows.start + t * (num_labels + 1)
            frame = slice(first, first + num_labels + 1)
            logits = case.logits[frame].double().numpy()
            exact = torch.from_numpy(
                oracles.gradient_of_frame(lattice, logits, t, labels, case.blank_index)
            )
            error = (gradient[frame].double() - exact).abs()
            if gradient.dtype in (torch.float16, torch.bfloat16):
                error -= 0.5 * oracles.ulp(exact.abs() + 1e-5, gradient.dtype)
            worst = error.max().item()
            assert worst == worst, f"NaN in the gradient of sample {b}, frame {t}"
            largest = max(largest, worst)
    return costs, largest


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
