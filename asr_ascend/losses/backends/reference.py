"""Backend "reference": the loss in plain torch, slow, on any device, to be checked by reading.

The cost is written down from its definition and autograd differentiates it, so neither the
gradient nor the second derivative rests on a formula of ours.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from asr_ascend.losses import function_transforms, layout, values
from asr_ascend.losses.backends.recursions import (
    log_add,
    never_on_a_path,
    next_column,
    one_symbol_scores,
    start,
)
from asr_ascend.losses.problem import Problem, lattice_dtype

HAS_BANDS = True


def is_available() -> bool:
    """Returns True: the reference always works."""
    return True


def checks_on_host(index: Tensor, validate: bool) -> bool:
    """Returns True: the host checks every index tensor; see ``LossBackend``."""
    return True


def costs(
    logits: Tensor,
    problem: Problem,
    *,
    reuse_logits: bool = False,
    validate: bool = False,
    values_checked: bool = False,
    one_symbol: bool = False,
) -> Tensor:
    """Computes costs (B,), differentiable twice; see ``LossBackend``.

    They are float32 on devices without float64. ``reuse_logits`` overwrites nothing.
    """
    result: Tensor = _ReferenceLoss.apply(logits, values_checked, one_symbol, *problem)
    return result


def costs_and_gradient(
    logits: Tensor,
    problem: Problem,
    *,
    reuse_logits: bool = False,
    validate: bool = False,
    values_checked: bool = False,
    one_symbol: bool = False,
) -> tuple[Tensor, Tensor]:
    """Computes costs (B,) and the gradient; see ``LossBackend``.

    Costs are float32 on devices without float64.
    """
    # Autograd makes the gradient, so inference mode is off here and no tensor may come from it.
    with torch.inference_mode(False), torch.no_grad():
        rows = logits.clone()
        problem = problem.with_indices(torch.clone)
        result = costs(rows, problem, values_checked=values_checked, one_symbol=one_symbol)
        grad = _gradient(rows, _on_device(problem, rows), torch.ones_like(result), one_symbol)
    return result, logits.copy_(grad) if reuse_logits else grad


def _log_probs(rows: Tensor, problem: Problem, one_symbol: bool = False) -> tuple[Tensor, Tensor]:
    """(N,) each: the log-probabilities of blank and of the next label in packed rows (N, V).

    A label's is -inf where it can't be emitted: in the last column and outside of its window. But
    NaN stays, where a row has no softmax. The delay penalty is in the labels'.
    """
    b, t, u = _cells(rows, problem)
    possible = u < problem.target_lengths[b]
    label = torch.where(possible, pad(problem.targets, (0, 1))[b, u], 0).to(torch.int64)
    if problem.emission_windows is not None:
        first, last = pad(problem.emission_windows, (0, 0, 0, 1))[b, u].unbind(-1)
        possible = possible & (first <= t) & (t <= last)
    if problem.band is not None and not one_symbol:
        possible = possible & (u < problem.band[b, t, 1])  # a label doesn't lead out of the band

    log_probs = rows.log_softmax(-1) if problem.fused_log_softmax else rows
    label_log_prob = log_probs.gather(1, label[:, None])[:, 0]
    if problem.fused_log_softmax:
        possible = possible | label_log_prob.isnan()
    blank_log_prob = log_probs[:, problem.blank]
    if not problem.fused_log_softmax:
        # In the last frame a blank leads nowhere while labels are left, so it is not read.
        unused = (t + 1 == problem.logit_lengths[b]) & (u < problem.target_lengths[b])
        if problem.band is not None:  # nor does it out of the band
            leaves = u < pad(problem.band, (0, 0, 0, 1))[b, t + 1, 0]
            unused = unused | (leaves & (t + 1 < problem.logit_lengths[b]))
        if one_symbol:
            lengths = problem.logit_lengths[b], problem.target_lengths[b]
            unused = unused | never_on_a_path(t, u, *lengths)
            possible = possible & ~never_on_a_path(t + 1, u + 1, *lengths)
        blank_log_prob = blank_log_prob.masked_fill(unused, -math.inf)
    label_log_prob = label_log_prob.masked_fill(~possible, -math.inf)
    if problem.delay_penalty != 0.0:
        # Kang et al. 2022, "Delay-penalized transducer for low-latency streaming ASR".
        frames_early = (problem.logit_lengths[b] - 1).to(rows.dtype) / 2 - t
        label_log_prob = label_log_prob + problem.delay_penalty * frames_early
    return blank_log_prob, label_log_prob


def _cells(rows: Tensor, problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """(N,) each: sample, frame and column of every packed row."""
    lengths = problem.logit_lengths, problem.target_lengths
    return layout.packed_cells(len(rows), *lengths, rows.device, problem.band)


def _lattice_costs(
    blank_log_prob: Tensor, label_log_prob: Tensor, problem: Problem, one_symbol: bool = False
) -> Tensor:
    """(B,) costs from log-probabilities (N,), by the forward recursion over anti-diagonals.

    Source: Graves 2012, "Sequence Transduction with Recurrent Neural Networks", section 2.4.
    """
    if one_symbol:
        return _one_symbol_costs(blank_log_prob, label_log_prob, problem)
    alpha = start(blank_log_prob, problem)
    alphas = [alpha]
    for blank_step, label_step in _diagonals(blank_log_prob, label_log_prob, problem):
        alpha = log_add(alpha + blank_step, next_column(alpha + label_step))
        alphas.append(alpha)
    return -_scores_at_end(alphas, problem)


def _one_symbol_costs(blank_log_prob: Tensor, label_log_prob: Tensor, problem: Problem) -> Tensor:
    """The same where a label takes a frame: by the recursion over frames."""
    alphas = one_symbol_scores(blank_log_prob, label_log_prob, problem)
    lengths = problem.logit_lengths, problem.target_lengths
    samples = torch.arange(len(problem.targets), device=blank_log_prob.device)
    scores = torch.stack(alphas)[lengths[0], samples, lengths[1]]
    # A row without a softmax spoils its sample, also where no path passes.
    b, _, _ = _cells(blank_log_prob, problem)
    no_softmax = (blank_log_prob.isnan() & problem.fused_log_softmax).to(torch.int64)
    spoiled = torch.zeros_like(samples).index_add(0, b, no_softmax) > 0
    return -scores.masked_fill(spoiled | (scores == math.inf), math.nan)


def _diagonals(
    blank_log_prob: Tensor, label_log_prob: Tensor, problem: Problem
) -> Iterator[tuple[Tensor, Tensor]]:
    """The log-probabilities (N,) by anti-diagonals, (B, U1) each.

    Cell (t, u) of sample b stands at [b, u] of diagonal t + u: a step of a recursion is a step to
    the next diagonal. What lies outside of a sample's lattice is impossible.
    """
    T, U1 = layout.padded_size(problem.logit_lengths, problem.target_lengths)
    b, t, u = _cells(blank_log_prob, problem)
    nowhere = blank_log_prob.new_full((T + U1, len(problem.targets), U1), -math.inf)
    emit_blank = nowhere.index_put((t + u, b, u), blank_log_prob)
    emit_label = nowhere.index_put((t + u, b, u), label_log_prob)
    return zip(emit_blank.unbind(), emit_label.unbind(), strict=True)


def _scores_at_end(alphas: list[Tensor], problem: Problem) -> Tensor:
    """(B,): the last blank leads from (T_b - 1, U_b) to (T_b, U_b), a diagonal past the lattice."""
    _, logit_lengths, target_lengths, *_ = problem
    samples = torch.arange(len(logit_lengths), device=alphas[0].device)
    scores = torch.stack(alphas)[logit_lengths + target_lengths, samples, target_lengths]
    # A log-probability of +inf means nothing; like NaN, it spoils its own sample.
    return scores.masked_fill(scores == math.inf, math.nan)


@torch.no_grad()
def best_paths(logits: Tensor, problem: Problem) -> tuple[Tensor, Tensor]:
    """Finds the likeliest alignments; see ``AlignmentBackend``.

    Log-probabilities are float32 on devices without float64.
    """
    _check_values(logits, problem)
    problem = _on_device(problem, logits)
    log_probs = _log_probs(_lattice_rows(logits, problem), problem)
    alpha = start(log_probs[0], problem)
    alphas, by_label = [alpha], []
    for blank_step, label_step in _diagonals(*log_probs, problem):
        from_frame_before, from_label_before = alpha + blank_step, next_column(alpha + label_step)
        by_label.append(from_label_before > from_frame_before)
        alpha = torch.maximum(from_frame_before, from_label_before)
        alphas.append(alpha)
    scores = _scores_at_end(alphas, problem)

    # Back from the end. A blank wins a tie, so the label before it came earlier.
    samples = torch.arange(len(scores), device=scores.device)
    u = problem.target_lengths
    frames = torch.full((len(scores), max(problem.targets.shape[1], alpha.shape[1])), -1)
    frames = frames.to(scores.device)
    for diagonal in reversed(range(len(by_label))):
        within = diagonal < problem.logit_lengths + problem.target_lengths
        emits = by_label[diagonal][samples, u] & within & scores.isfinite()
        u = u - emits.to(torch.int64)
        frames[samples, u] = torch.where(emits, diagonal - u, frames[samples, u])
    return frames[:, : problem.targets.shape[1]], scores


def _lattice_rows(logits: Tensor, problem: Problem) -> Tensor:
    """(N, V): the rows of packed or padded logits that belong to a lattice."""
    if logits.dim() == 4:
        logits = logits[_mask(logits, problem)]
    return logits.to(lattice_dtype(logits.device))


def _mask(logits: Tensor, problem: Problem) -> Tensor:
    _, T, U1, _ = logits.shape
    return layout.lattice_mask(problem.logit_lengths, problem.target_lengths, T, U1)


def _gradient(
    logits: Tensor, problem: Problem, grad_costs: Tensor, one_symbol: bool = False
) -> Tensor:
    """The sum over samples of grad_costs[b] * clamp(d cost_b / d logits)."""
    create_graph = torch.is_grad_enabled() and logits.requires_grad
    rows = _lattice_rows(logits, problem)
    if not create_graph:
        rows = rows.detach().requires_grad_()
    with torch.enable_grad():
        log_probs = _log_probs(rows, problem, one_symbol)
        costs = _lattice_costs(*log_probs, problem, one_symbol)
        # No two samples share a row, so the gradient of the sum is the gradient of each.
        by_blank, by_label = torch.autograd.grad(
            costs.sum(), log_probs, retain_graph=True, create_graph=create_graph
        )
        # FastEmit: Yu et al. 2021.
        by_label = by_label * (1.0 + problem.fastemit_lambda)
        (grad,) = torch.autograd.grad(
            log_probs, rows, (by_blank, by_label), create_graph=create_graph
        )

    lengths = problem.logit_lengths, problem.target_lengths
    lattice_sizes = layout.row_offsets(*lengths, problem.band).diff()
    cost = costs.detach().repeat_interleave(lattice_sizes)[:, None]  # (N, 1)
    grad = grad.masked_fill(cost.isinf(), 0.0).masked_fill(cost.isnan(), math.nan)
    if problem.clamp > 0:
        grad = grad.clamp(-problem.clamp, problem.clamp)
    grad = (grad * grad_costs.repeat_interleave(lattice_sizes)[:, None]).to(logits.dtype)
    if logits.dim() == 4:
        grad = grad.new_zeros(logits.shape).index_put((_mask(logits, problem),), grad)
    return grad


def _check_values(logits: Tensor, problem: Problem, values_checked: bool = False) -> None:
    if not values_checked:
        values.check_values(logits, problem)
    if not problem.fused_log_softmax:
        values.warn_if_logits(logits, problem)


def _on_device(problem: Problem, logits: Tensor) -> Problem:
    return problem.with_indices(lambda index: index.to(logits.device, torch.int64))


class _ReferenceLoss(torch.autograd.Function):
    """Makes the gradient itself, since each sample's is clamped before ``grad_costs`` scales it."""

    @staticmethod
    def forward(logits: Tensor, values_checked: bool, one_symbol: bool, *fields: Any) -> Tensor:
        problem = Problem._make(fields)
        _check_values(logits, problem, values_checked)
        problem = _on_device(problem, logits)
        log_probs = _log_probs(_lattice_rows(logits, problem), problem, one_symbol)
        return _lattice_costs(*log_probs, problem, one_symbol)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        logits, _, ctx.one_symbol, *fields = inputs
        tensors, ctx.options = Problem._make(fields).split()
        ctx.save_for_backward(logits, *tensors)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        logits, *tensors = ctx.saved_tensors
        problem = _on_device(Problem.joined(tuple(tensors), ctx.options), logits)
        grad = _gradient(logits, problem, grad_outputs[0], ctx.one_symbol)
        return grad, None, None, *[None] * len(problem)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        raise function_transforms.vmap_error("rnnt_loss")
