"""No speed for wrong numbers: value and gradient of an implementation against float64."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from asr_ascend.losses import rnnt_loss_and_grad
from benchmarks.cases import BLANK, Case
from benchmarks.implementations import Implementation

CHUNK_ROWS = 1 << 16


class WrongNumbersError(Exception):
    """An implementation's value or gradient is off; says by how much."""


def allowed_gradient_error(implementation: Implementation) -> float:
    """Components are at most 1, so half a step of the dtype at 1 is what rounding may add."""
    rounding = torch.finfo(implementation.dtype).eps / 2
    return implementation.gradient_atol + rounding


def check(
    implementation: Implementation, case: Case, value: Tensor, gradient: Tensor, *, whole: bool
) -> dict[str, float]:
    """Compares with float64, made of the same rounded logits.

    Args:
        implementation: what made value and gradient.
        case: of which batch.
        value, gradient: in the implementation's layout.
        whole: compare everything with the reference, which takes a while. Otherwise the value,
            and the gradient of the last sample, whose rows lie farthest from the start, with the
            CPU kernel in float64, which the tests hold to the reference.

    Returns:
        Relative error of the value and largest error of the gradient, and what was allowed.

    Raises:
        WrongNumbersError: more than the implementation may be off.
    """
    backend = "reference" if whole else "cpu"
    samples = range(len(case.logit_lengths)) if whole else [len(case.logit_lengths) - 1]
    total = expected_value(case, implementation.dtype, backend)
    error = abs(float(value) - total) / max(1.0, abs(total))
    if not error <= implementation.value_rtol:
        raise WrongNumbersError(
            f"the value is {float(value):.9g} instead of {total:.9g} on {case}: off by "
            f"{error:.1e}, and {implementation.value_rtol:.0e} is allowed"
        )
    allowed = allowed_gradient_error(implementation)
    largest = 0.0
    for b in samples:
        expected = expected_gradient(case, implementation.dtype, b, backend)
        found = largest_difference(case.sample_of(gradient, b), expected)
        largest = max(largest, found) if found == found else found
        if not largest <= allowed:
            raise WrongNumbersError(
                f"the gradient of sample {b} is off by {largest:.1e} on {case}, and "
                f"{allowed:.1e} is allowed"
            )
    return {
        "value_error": error,
        "value_error_allowed": implementation.value_rtol,
        "gradient_error": largest,
        "gradient_error_allowed": allowed,
    }


def largest_difference(actual: Tensor, expected: Tensor) -> float:
    """NaN if any component of either is."""
    parts = [
        (actual[start : start + CHUNK_ROWS].float() - expected[start : start + CHUNK_ROWS])
        .abs()
        .max()
        for start in range(0, len(expected), CHUNK_ROWS)
    ]
    return float(torch.stack(parts).max())


@functools.lru_cache(maxsize=16)
def expected_value(case: Case, dtype: torch.dtype, backend: str) -> float:
    """The sum of the costs."""
    samples = range(len(case.logit_lengths))
    return sum(float(sample_cost(case, dtype, b, backend)[0]) for b in samples)


@functools.lru_cache(maxsize=64)
def expected_gradient(case: Case, dtype: torch.dtype, b: int, backend: str) -> Tensor:
    """(rows, V) float32."""
    return sample_cost(case, dtype, b, backend)[1].float()


def sample_cost(case: Case, dtype: torch.dtype, b: int, backend: str) -> tuple[Tensor, Tensor]:
    """Cost (1,) and gradient (rows, V) of one sample in float64."""
    logits = case.sample_logits(b, dtype).double()
    targets, logit_lengths, target_lengths = (index[b : b + 1] for index in case.indices())
    indices = targets, logit_lengths, target_lengths
    reuse = backend == "cpu"
    return rnnt_loss_and_grad(logits, *indices, BLANK, reuse_logits=reuse, backend=backend)


def forget() -> None:
    """Frees what was kept of the case before."""
    expected_value.cache_clear()
    expected_gradient.cache_clear()
