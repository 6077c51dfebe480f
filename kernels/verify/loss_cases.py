"""The loss's cases and their exact answers: the tests take the same list."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from kernels.verify import oracles
from kernels.verify.tolerances import ulp

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


def worst_errors(case: oracles.Case, gradient: Tensor) -> tuple[Tensor, float]:
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
                error -= 0.5 * ulp(exact.abs() + 1e-5, gradient.dtype)
            worst = error.max().item()
            assert worst == worst, f"NaN in the gradient of sample {b}, frame {t}"
            largest = max(largest, worst)
    return costs, largest


DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
# With --quick: what the emulator computes in seconds.
QUICK_PRECISION = ("float16_B2_V64",)
QUICK_CASES = ("one_frame", "more_labels_than_frames", "blank_middle", "logits_x1000", "ragged")


def case_list(quick: bool) -> Iterator[tuple[str, oracles.Case]]:
    """Every case in every dtype, named like ragged/float16."""
    for name, (lengths, vocab, blank, scale) in CASE_LIST.items():
        if quick and name not in QUICK_CASES:
            continue
        for dtype_name, dtype in DTYPES.items():
            case = oracles.make_case(lengths, vocab, blank=blank, dtype=dtype, scale=scale)
            yield f"{name}/{dtype_name}", case


def precision_rows(quick: bool) -> Iterator[tuple[str, oracles.Case, float]]:
    """The specification's four rows and the bound that it gives for each."""
    for name, (dtype, lengths, vocab, bound) in PRECISION_ROWS.items():
        if not quick or name in QUICK_PRECISION:
            yield name, oracles.make_case(lengths, vocab, dtype=dtype, seed=len(name)), bound
