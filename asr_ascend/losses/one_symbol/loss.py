"""Loss and alignment with one symbol per frame, by the kernels of the regular lattice."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from asr_ascend.losses import checks, function_transforms, values
from asr_ascend.losses.backends import AlignmentBackend, LossBackend, reference
from asr_ascend.losses.layout import lattice_mask, row_blocks, row_offsets
from asr_ascend.losses.one_symbol.lattice import Skewed, row_labels, skew
from asr_ascend.losses.problem import Problem, lattice_dtype, on_device
from asr_ascend.losses.row_statistics import as_float, not_negative, statistics, to_gradient

# Rows whose V values are copied at a time.
_BLOCK_BYTES = 16 * 2**20


class _Rows(NamedTuple):
    """What the gradient needs of all rows of the batch."""

    log_norm: Tensor  # (N,); of log-probabilities 0
    label: Tensor  # (N,) int64
    skewed: Skewed


@torch.compiler.disable
def costs(
    backend: LossBackend, logits: Tensor, problem: Problem, *, reuse_logits: bool, validate: bool
) -> Tensor:
    """Computes costs (B,) that autograd can differentiate.

    Arguments are those of ``LossBackend.costs``.
    """
    if backend is reference:
        return reference.costs(logits, problem, one_symbol=True)
    function_transforms.refuse_func_gradient("rnnt_loss", logits)
    function_transforms.refuse_vmap("rnnt_loss", logits, *problem[:3])
    if not (logits.requires_grad and torch.is_grad_enabled()):
        with torch.no_grad():
            log_probs, rows = _log_probs(backend, logits, problem, validate)
            skewed = rows.skewed
            result = backend.costs(
                skewed.log_probs(log_probs), skewed.problem, values_checked=True, validate=validate
            )
            return _checked(result, rows, problem)
    result = _Loss.apply(logits, backend, reuse_logits, validate, *problem)
    return result


@torch.compiler.disable
def costs_and_gradient(
    backend: LossBackend, logits: Tensor, problem: Problem, *, reuse_logits: bool, validate: bool
) -> tuple[Tensor, Tensor]:
    """Computes costs (B,) and the gradient.

    Arguments are those of ``LossBackend.costs_and_gradient``.
    """
    if backend is reference:
        return reference.costs_and_gradient(
            logits, problem, reuse_logits=reuse_logits, one_symbol=True
        )
    function_transforms.refuse_vmap("rnnt_loss_and_grad", logits, *problem[:3])
    with torch.no_grad():
        result, shares, rows = _costs_and_shares(backend, logits, problem, validate)
        grad = logits if reuse_logits else _new_gradient(logits)
        _write_gradient(grad, logits, shares, rows, problem, torch.ones_like(result))
    return result, grad


@torch.compiler.disable
@torch.no_grad()
def best_paths(
    backend: AlignmentBackend, logits: Tensor, problem: Problem
) -> tuple[Tensor, Tensor]:
    """Finds frames and log-probabilities, as ``AlignmentBackend.best_paths`` does."""
    log_probs, rows = _log_probs(None, logits, problem, validate=False)
    skewed = rows.skewed
    frames, scores = backend.best_paths(skewed.log_probs(log_probs), skewed.problem)
    scores = skewed.spoiled(scores, rows.log_norm)
    return skewed.frames(frames).masked_fill(scores.isnan()[:, None], -1), scores


class _Loss(torch.autograd.Function):
    """Costs (B,); the gradient of the logits is made in backward, block by block."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, *arguments: Any) -> Tensor:
        backend, reuse_logits, validate, *fields = arguments
        problem = Problem._make(fields)
        result, shares, rows = _costs_and_shares(backend, logits, problem, validate)
        tensors, ctx.options = problem.split()
        ctx.save_for_backward(logits, shares, *tensors)
        ctx.rows = rows
        ctx.reuse_logits, ctx.overwritten = reuse_logits, False
        return result

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                '`rnnt_loss` with topology="one_symbol_per_frame" has no second derivative; '
                'backend="reference" has.'
            )
        checks.check_not_overwritten("rnnt_loss", ctx.overwritten)
        logits, shares, *tensors = ctx.saved_tensors
        problem = Problem.joined(tuple(tensors), ctx.options)
        logits = logits.detach()
        ctx.overwritten = ctx.reuse_logits
        grad = logits if ctx.reuse_logits else _new_gradient(logits)
        _write_gradient(grad, logits, shares, ctx.rows, problem, *grad_outputs)
        return grad, *[None] * (len(problem) + 3)


def _costs_and_shares(
    backend: LossBackend, logits: Tensor, problem: Problem, validate: bool
) -> tuple[Tensor, Tensor, _Rows]:
    """Costs (B,), the rows' shares (N, 2), and what the gradient needs beside them."""
    log_probs, rows = _log_probs(backend, logits, problem, validate)
    skewed = rows.skewed
    result, shares = backend.costs_and_gradient(
        skewed.log_probs(log_probs),
        skewed.problem,
        reuse_logits=True,
        values_checked=True,
        validate=validate,
    )
    result = _checked(result, rows, problem)
    return result, skewed.of_rows(shares, result), rows


def _checked(result: Tensor, rows: _Rows, problem: Problem) -> Tensor:
    if not problem.fused_log_softmax:
        return result
    return rows.skewed.spoiled(not_negative(result, problem), rows.log_norm)


def _log_probs(
    backend: LossBackend | None, logits: Tensor, problem: Problem, validate: bool
) -> tuple[Tensor, _Rows]:
    """Log-probabilities (N, 2) of blank and label, and what else is known of the rows.

    Checks the values of lengths and band, which come to the host for it, and of labels where the
    backend's are checked there.
    """
    on_host = problem._replace(
        logit_lengths=problem.logit_lengths.to("cpu", torch.int64),
        target_lengths=problem.target_lengths.to("cpu", torch.int64),
        band=None if problem.band is None else problem.band.to("cpu", torch.int64),
    )
    values.check_sizes(logits, on_host)
    wrong = None
    if backend is None or backend.checks_on_host(problem.targets, validate):
        values.check_targets(problem, logits.shape[-1])
    else:
        wrong = values.wrong_labels(problem, logits.shape[-1])
        on_host = on_host._replace(targets=problem.targets.masked_fill(wrong, problem.blank))
    lengths = on_host.logit_lengths, on_host.target_lengths
    num_rows = int(row_offsets(*lengths, on_host.band)[-1])
    skewed = skew(on_host, num_rows, logits.device)
    label = row_labels(on_host, skewed.sample, skewed.column)

    dtype = lattice_dtype(logits.device)
    log_probs = logits.new_empty(num_rows, 2, dtype=dtype)
    log_norm = logits.new_zeros(num_rows, dtype=dtype)
    for rows in _blocks(num_rows, logits):
        block = _gather(logits, skewed, rows)
        if not problem.fused_log_softmax:
            log_probs[rows, 0] = block[:, problem.blank].to(dtype)
            log_probs[rows, 1] = block.gather(1, label[rows, None])[:, 0].to(dtype)
            continue
        # A sum of one number would be split among threads, whose number would be in its last bit.
        scratch = as_float(block.repeat(2 if len(block) == 1 else 1, 1))
        found = statistics(scratch, problem.blank, label[rows].expand(len(scratch)), dtype)
        log_probs[rows], log_norm[rows] = (of_rows[: len(block)] for of_rows in found)
    if wrong is not None:
        # As the operator does it: NaN in this sample alone.
        out_of_place = torch.nn.functional.pad(wrong, (0, 1))[skewed.sample, skewed.column]
        log_norm = log_norm.masked_fill(out_of_place, math.nan)
    return log_probs, _Rows(log_norm, label, skewed)


def _write_gradient(
    grad: Tensor,
    logits: Tensor,
    shares: Tensor,
    rows: _Rows,
    problem: Problem,
    grad_costs: Tensor,
) -> None:
    """Fills the gradient of ``(grad_costs * costs).sum()``, which may lie where the logits do."""
    skewed = rows.skewed
    upstream = on_device(grad_costs, logits.device)[skewed.sample]
    if logits.dim() == 4:
        _clear_padding(grad, problem)
    for part in _blocks(len(shares), logits):
        block = as_float(_gather(logits, skewed, part)).clone()
        if problem.fused_log_softmax:
            to_gradient(block, shares[part], rows.log_norm[part], rows.label[part], problem)
        else:
            _place_shares(block, shares[part], rows.label[part], problem)
        block.mul_(upstream[part, None].to(block.dtype))
        if logits.dim() == 2:
            grad[part] = block.to(grad.dtype)
        else:
            grad[_cells(skewed, part)] = block.to(grad.dtype)


def _new_gradient(logits: Tensor) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


def _place_shares(grad: Tensor, shares: Tensor, label: Tensor, problem: Problem) -> None:
    """Of log-probabilities: blank's and label's entries alone, NaN where the sample's cost is."""
    shares = shares.to(grad.dtype)
    spoiled = shares.isnan().any(1, keepdim=True)
    grad.zero_()
    grad[:, problem.blank] += shares[:, 0]
    grad.scatter_add_(1, label[:, None], shares[:, 1:])
    if problem.clamp > 0:
        grad.clamp_(-problem.clamp, problem.clamp)
    grad.masked_fill_(spoiled, math.nan)


def _clear_padding(grad: Tensor, problem: Problem) -> None:
    frames = on_device(problem.logit_lengths, grad.device)
    labels = on_device(problem.target_lengths, grad.device)
    held = lattice_mask(frames, labels, grad.shape[1], grad.shape[2])
    grad.masked_fill_(~held[..., None], 0.0)


def _blocks(count: int, logits: Tensor) -> Iterator[slice]:
    """Slices of [0, count): some rows at a time."""
    return row_blocks(count, max(2, _BLOCK_BYTES // (4 * logits.shape[-1])))


def _gather(logits: Tensor, skewed: Skewed, rows: slice) -> Tensor:
    """(n, V): a view of packed rows, a copy of padded ones."""
    return logits[rows] if logits.dim() == 2 else logits[_cells(skewed, rows)]


def _cells(skewed: Skewed, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
    return skewed.sample[rows], skewed.frame[rows], skewed.column[rows]
