"""Emission windows for operators that know none: what is impossible moves out of the way.

In a cell whose label is outside of its window, the label's logit moves to one more column of the
vocabulary, which no target names. The softmax stays what it was, and the label is impossible. It
costs one copy of the logits; operators that know windows need none.
"""

import math
from typing import Any

import torch
from torch import Tensor

from asr_ascend.losses import layout, operators
from asr_ascend.losses.problem import Problem


def costs(logits: Tensor, problem: Problem, reuse_logits: bool) -> Tensor:
    """As ``operators.costs``, by an operator without windows; ``problem`` has windows.

    With ``reuse_logits`` the gradient overwrites the copy.
    """
    return operators.costs(*close_windows(logits, problem), reuse_logits)


def costs_and_gradient(logits: Tensor, problem: Problem) -> tuple[Tensor, Tensor]:
    """Costs (B,) by an operator without windows; gradient of their sum, like ``logits``."""
    closed, without_windows = close_windows(logits, problem)
    result, grad = operators.costs_and_gradient(closed, without_windows, reuse_logits=True)
    return result, _original_gradient(grad, problem)


def close_windows(logits: Tensor, problem: Problem) -> tuple[Tensor, Problem]:
    """The same losses without windows; no value of an index tensor goes to the host.

    Args:
        logits: (N, V) or (B, T, U1, V).
        problem: with emission windows.

    Returns:
        (N, V + 1) or (B, T, U1, V + 1) logits, new and differentiable, whose last column is -inf
        but for closed labels; and ``problem`` without windows.
    """
    restricted: Tensor = _CloseWindows.apply(logits, *problem)
    # A target of V must not find the new column: the operator is to refuse it as it did.
    targets = problem.targets + (problem.targets >= logits.shape[-1])
    return restricted, problem._replace(targets=targets, emission_windows=None)


class _CloseWindows(torch.autograd.Function):
    """Differentiated as `_original_gradient` does it: autograd would go through more copies."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, *fields: Any) -> Tensor:
        problem = Problem._make(fields)
        tensors, ctx.options = problem.split()
        ctx.save_for_backward(*tensors)
        closed, label = _closed_labels(logits, problem)
        at_label = logits.gather(-1, label)
        nothing = torch.full_like(at_label, -math.inf)
        restricted = torch.cat([logits, torch.where(closed, at_label, nothing)], -1)
        return restricted.scatter_(-1, label, torch.where(closed, nothing, at_label))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        problem = Problem.joined(ctx.saved_tensors, ctx.options)
        return _original_gradient(grad, problem), *[None] * len(problem)


def _original_gradient(grad: Tensor, problem: Problem) -> Tensor:
    """d cost / d logits (..., V) from ``grad`` (..., V + 1) of what ``close_windows`` made.

    ``problem`` is the one with emission windows.
    """
    extra, grad = grad[..., -1:], grad[..., :-1]
    closed, label = _closed_labels(grad, problem)
    return grad.scatter(-1, label, torch.where(closed, extra, grad.gather(-1, label)))


def _closed_labels(logits: Tensor, problem: Problem) -> tuple[Tensor, Tensor]:
    """For each row (..., 1): whether its label exists and may not be emitted there; the label."""
    device = logits.device
    targets, windows = problem.targets, problem.emission_windows
    assert windows is not None
    b, t, u = _cells(logits, problem)
    if targets.numel() == 0:
        return torch.zeros_like(b, dtype=torch.bool)[..., None], torch.zeros_like(b)[..., None]
    has_label = u < problem.target_lengths.to(device)[b]
    column = u.clamp(max=targets.shape[1] - 1)
    first, last = windows.to(device, torch.int64)[b, column].unbind(-1)
    closed = has_label & ((t < first) | (t > last))
    label = targets[b, column].to(torch.int64)
    label = torch.where(has_label, label, 0).clamp(0, logits.shape[-1] - 1)
    return closed[..., None], label[..., None]


def _cells(logits: Tensor, problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """Sample, frame and column of each row: (N,) or broadcast to (B, T, U1)."""
    if logits.dim() == 2:
        # Wrong lengths are the operator's to refuse.
        lengths = problem.logit_lengths, problem.target_lengths
        return layout.packed_cells(logits.shape[0], *lengths, logits.device)
    sizes = (torch.arange(size, device=logits.device) for size in logits.shape[:3])
    b, t, u = torch.meshgrid(*sizes, indexing="ij")
    return b, t, u
