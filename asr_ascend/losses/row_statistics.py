"""The two log-probabilities of a row that a lattice needs, and the gradient of the row's logits.

A row holds V logits. The lattice needs the log-probabilities of blank and of the next label only.
The derivatives of the cost by these two, the row's shares, give the gradient of all V logits.
"""

import math

import torch
from torch import Tensor

from asr_ascend.losses.problem import Problem

_NEGLIGIBLE = math.exp(-76)  # as in the CPU kernel's gradient


def statistics(
    logits: Tensor, blank: int, label: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Computes log-probabilities (n, 2) of blank and label, and log-normalisers (n,), in ``dtype``.

    Args:
        logits: (n, V), float32 or better. Their memory is used: they are lost.
        blank: index of blank.
        label: (n,) int64 in [0, V).
        dtype: of the result.
    """
    label = label[:, None]
    # Differences from the maximum, and only then the sum's logarithm: what is added to a
    # path's score is small where its rows are sure, and keeps its digits.
    maximum = logits.amax(1, keepdim=True)
    log_probs = logits.new_empty(len(logits), 2, dtype=dtype)
    log_probs[:, 0] = (logits[:, blank, None] - maximum)[:, 0].to(dtype)
    log_probs[:, 1] = (logits.gather(1, label) - maximum)[:, 0].to(dtype)
    log_sum = logits.sub_(maximum).exp_().sum(1, keepdim=True).to(dtype).log_()
    log_probs -= log_sum
    return log_probs, (maximum + log_sum)[:, 0]


def to_gradient(
    logits: Tensor, shares: Tensor, log_norm: Tensor, label: Tensor, problem: Problem
) -> None:
    """Replaces logits (n, V) by the gradient of their sample's cost, clamped.

    Args:
        logits: (n, V).
        shares: (n, 2) derivatives of the cost by the log-probabilities of blank and label.
        log_norm: (n,).
        label: (n,) int64 in [0, V).
        problem: its blank and clamp.
    """
    gradient = as_float(logits)
    shares = shares.to(gradient.dtype)
    gradient.sub_(log_norm[:, None].to(gradient.dtype)).exp_()
    gradient.mul_(-shares.sum(1, keepdim=True))
    gradient[:, problem.blank] += shares[:, 0]
    gradient.scatter_add_(1, label[:, None], shares[:, 1:])
    if gradient.dtype == torch.float32 and gradient.device.type == "cpu":
        # Products of what is next to nothing are denormal numbers, which take ten times as long.
        torch.hardshrink(gradient, _NEGLIGIBLE, out=gradient)
    if problem.clamp > 0:
        gradient.clamp_(-problem.clamp, problem.clamp)
    if gradient is not logits:
        logits.copy_(gradient)


def as_float(logits: Tensor) -> Tensor:
    """Returns the tensor in float32 or better: itself, or a copy of half precision."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def not_negative(costs: Tensor, problem: Problem) -> Tensor:
    """Replaces costs below 0 by 0, unless there is a delay penalty.

    Without one, only rounding makes a cost negative: rounded softmaxes may sum to above 1.
    """
    if problem.delay_penalty != 0.0:
        return costs
    # No clamp: an NPU's vector unit may make 0 of a NaN.
    return torch.where(costs < 0.0, 0.0, costs)


def two_column_problem(problem: Problem) -> Problem:
    """Returns the same lattices over log-probabilities of blank (column 0) and label (column 1)."""
    return problem._replace(
        targets=torch.ones_like(problem.targets),
        blank=0,
        clamp=-1.0,
        fused_log_softmax=False,
        blank_in_targets=False,
    )
