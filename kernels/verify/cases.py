"""The loss's cases and their exact answers: those of the tests, so that there is one list."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[1]
for folder in (KERNELS.parent, KERNELS / "rnnt_loss_fused" / "time_model"):
    sys.path.insert(0, str(folder))

import tables  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from tests.losses.test_numerics_accuracy import (  # noqa: E402
    CASE_LIST,
    PRECISION_ROWS,
    worst_errors,
)
from tests.support import emulated_operator, oracles  # noqa: E402

__all__ = ["emulated_operator", "oracles", "tables"]

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


def gradient_error(case: oracles.Case, gradient: Tensor) -> tuple[Tensor, float]:
    """Exact costs (B,), and the largest error of a gradient beyond the rounding of its dtype."""
    return worst_errors(case, gradient)
