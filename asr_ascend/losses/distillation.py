"""Distillation on the transducer lattice: each cell as three classes, blank, label and the rest.

A cell's distribution over V symbols is collapsed to blank, the label that comes next in the
targets, and everything else together. The RNN-T loss needs no more than the first two and the
divergence of student and teacher no more than all three, so both are made from (N, 3)
log-probabilities, and the one gradient of the (N, V) logits joins them:

    z_k of the rest:  softmax_rest(k) * (g_rest - P_rest * G)
    blank and label:  g_c - P_c * G                              with G = g_blank + g_label + g_rest

where g is the upstream gradient of the three. `collapsed_log_probs` alone reads and differentiates
the logits, a few rows at a time: there is no order to keep between two losses, and with
``reuse_logits`` the gradient takes the place of the logits, so that no second (N, V) tensor exists.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from asr_ascend.losses import _arguments, _values, layout
from asr_ascend.losses.layout import Problem
from asr_ascend.losses.rnnt import rnnt_loss

# Columns of collapsed log-probabilities.
BLANK, LABEL, REST = range(3)
DEFAULT_BLOCK_BYTES = 2**20


@torch.compiler.disable
def collapsed_log_probs(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = -1,
    *,
    reuse_logits: bool = False,
    block_bytes: int = DEFAULT_BLOCK_BYTES,
) -> Tensor:
    """Log-probabilities of blank, the next label and the rest at every cell of the lattices.

    The RNN-T loss of the logits is that of the three as log-probabilities, in which every label is
    1 and blank 0; see :func:`distilled_rnnt_loss`.

    torch.compile leaves the call out of its graph.

    Args:
        logits: (N, V) float32, float64, float16 or bfloat16, packed as for :func:`rnnt_loss`, on
            any device.
        targets, logit_lengths, target_lengths, blank: as for :func:`rnnt_loss`.
        reuse_logits: let the gradient overwrite the memory of ``logits`` in the backward pass, as
            for :func:`rnnt_loss`. Only one backward pass is possible then, and no other loss may
            save ``logits``.
        block_bytes: at least 1; rows are worked on a block at a time, each of so many bytes of
            float32 logits but at least one row.

    Returns:
        (N, 3) natural logarithms, float64 for float64 logits and float32 for all others, of blank,
        label and rest. In the last column of a lattice, after the last label, there is no label:
        its logarithm is -inf and all symbols but blank are the rest. A class whose logits are all
        -inf has -inf and gives them no gradient. A row with NaN or +inf is NaN.

    Raises:
        ValueError: shape, device, length, target or blank out of place; or ``reuse_logits`` with
            logits that can't be overwritten, as for :func:`rnnt_loss`.
        TypeError: wrong type or dtype.
        RuntimeError: a second backward pass with ``reuse_logits``, a second derivative.

    Source:
        Panchapagesan et al. 2021, "Efficient Knowledge Distillation for RNN-Transducer Models".
    """
    problem = Problem(targets, logit_lengths, target_lengths, blank, -1.0, True)
    problem = _arguments.check(logits, problem, reuse_logits)
    if logits.dim() != 2:
        raise ValueError(
            f"`logits` must be packed, (N, V), but has shape {_arguments.shape_of(logits)}."
        )
    _check_block_bytes(block_bytes)
    _values.check_values(logits, problem)
    labels = row_labels(targets, logit_lengths, target_lengths)
    block_rows = rows_per_block(logits.shape[1], block_bytes)
    result: Tensor = _Collapse.apply(logits, labels, problem.blank, block_rows, reuse_logits)
    return result


@torch.no_grad()
def collapse_blocks(
    blocks: Iterable[Tensor],
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
) -> Tensor:
    """As :func:`collapsed_log_probs`, of logits that come a few rows at a time; no gradient.

    Args:
        blocks: (n, V) each, consecutive rows of the packed logits, N in all. A block isn't kept.
        targets, logit_lengths, target_lengths: as for :func:`rnnt_loss`, not checked.
        blank: id in [0, V - 1].

    Returns:
        (N, 3) float32, float64 for float64 logits.

    Raises:
        ValueError: another number of rows than N.
    """
    labels = row_labels(targets, logit_lengths, target_lengths)
    parts, start = [], 0
    for block in blocks:
        part = labels[start : start + len(block)]
        if len(part) < len(block):
            raise _values.row_count_error(start + len(block), len(labels))
        parts.append(_collapse(block, part, blank)[0])
        start += len(block)
    if start != len(labels):
        raise _values.row_count_error(start, len(labels))
    return torch.cat(parts) if parts else torch.empty(0, 3, device=targets.device)


def distillation_loss(
    student: Tensor,
    teacher: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    reduction: str = "mean",
) -> Tensor:
    """KL(teacher || student) over blank, label and rest, summed over the cells of each lattice.

    A lattice has hundreds of cells to one path, so beside an RNN-T loss its weight is small.

    Args:
        student: (N, 3) from :func:`collapsed_log_probs`.
        teacher: (N, 3) of the same targets and lengths; gets no gradient.
        logit_lengths, target_lengths: (B,) as given for both.
        reduction: "none", "sum", or "mean", which divides the sum by B.

    Returns:
        A scalar, or (B,) for "none", in nats. A class that the teacher gives no chance adds
        nothing; +inf where the student gives none to one that the teacher does. The gradient is
        finite there too.

    Raises:
        ValueError: shapes that differ or aren't (N, 3), N not the sum of rows, unknown reduction.

    Source:
        Panchapagesan et al. 2021, "Efficient Knowledge Distillation for RNN-Transducer Models".
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(
            f'`reduction` must be "none", "mean" or "sum", but is {_arguments.quoted(reduction)}.'
        )
    if student.dim() != 2 or student.shape[1] != 3 or student.shape != teacher.shape:
        raise ValueError(
            "`student` and `teacher` must be (N, 3) both, but have shapes "
            f"{_arguments.shape_of(student)} and {_arguments.shape_of(teacher)}."
        )
    _values.check_lengths(logit_lengths, target_lengths, num_rows=len(student))
    teacher = teacher.detach().to(student.dtype)
    # exp underflows to 0 where the product with -inf would be NaN; a NaN of the teacher stays.
    chance = teacher.exp()
    cells = torch.where(chance == 0, 0.0, chance * (teacher - student)).sum(1)
    if reduction == "none":
        offsets = layout.row_offsets(logit_lengths, target_lengths).tolist()
        sizes = [stop - start for start, stop in itertools.pairwise(offsets)]
        parts = [part.sum() for part in cells.split(sizes)]
        return torch.stack(parts) if parts else cells.new_zeros(0)
    return cells.sum() / len(logit_lengths) if reduction == "mean" else cells.sum()


def distilled_rnnt_loss(
    logits: Tensor,
    teacher: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = -1,
    reduction: str = "mean",
    *,
    fastemit_lambda: float = 0.0,
    emission_windows: Tensor | None = None,
    reuse_logits: bool = False,
    backend: str | None = None,
    block_bytes: int = DEFAULT_BLOCK_BYTES,
) -> tuple[Tensor, Tensor]:
    """RNN-T loss of a student's logits, and their divergence from a teacher.

    Both of the same :func:`collapsed_log_probs`, so that one pass makes the one gradient of the
    logits, whatever weights the two get, in their place if ``reuse_logits`` says so. There is no
    ``clamp``: the RNN-T loss has no gradient of its own by the logits.

    Args:
        logits, block_bytes: as for :func:`collapsed_log_probs`.
        teacher: (N, 3) from :func:`collapsed_log_probs` or :func:`collapse_blocks`.
        targets, logit_lengths, target_lengths, blank, reduction, fastemit_lambda,
            emission_windows, reuse_logits, backend: as for :func:`rnnt_loss`.

    Returns:
        Two losses as of :func:`rnnt_loss` and :func:`distillation_loss`.

    Raises:
        As these.
    """
    sizes = logit_lengths, target_lengths
    student = collapsed_log_probs(
        logits, targets, *sizes, blank, reuse_logits=reuse_logits, block_bytes=block_bytes
    )
    rnnt = rnnt_loss(
        student,
        torch.full_like(targets, LABEL),
        *sizes,
        BLANK,
        reduction=reduction,
        fused_log_softmax=False,
        fastemit_lambda=fastemit_lambda,
        emission_windows=emission_windows,
        backend=backend,
    )
    return rnnt, distillation_loss(student, teacher, *sizes, reduction)


def row_labels(targets: Tensor, logit_lengths: Tensor, target_lengths: Tensor) -> Tensor:
    """(N,) int64: the label that each packed row may give; -1 in the last column of a lattice."""
    device = targets.device
    columns = target_lengths.to(device, torch.int64) + 1
    rows = logit_lengths.to(device, torch.int64) * columns
    sample = torch.repeat_interleave(rows)
    first = layout.row_offsets(logit_lengths, target_lengths).to(device)[:-1]
    column = (torch.arange(len(sample), device=device) - first[sample]) % columns[sample]
    padded = torch.nn.functional.pad(targets.to(torch.int64), (0, 1), value=-1)
    labels = padded[sample, column]
    return labels.where(column < columns[sample] - 1, -1)


def rows_per_block(vocab_size: int, block_bytes: int) -> int:
    """Rows of float32 logits that fit a block: at least one."""
    return max(1, block_bytes // (4 * vocab_size))


def _check_block_bytes(block_bytes: int) -> None:
    if block_bytes < 1:
        raise ValueError(f"`block_bytes` must be at least 1, but is {block_bytes}.")


def _collapse(logits: Tensor, labels: Tensor, blank: int) -> tuple[Tensor, Tensor]:
    """Log-probabilities (n, 3) of a block, and the logarithm (n,) of the rest's sum."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)
    none = float("-inf")
    label_index = labels.clamp(min=0)[:, None]
    blank_logit = logits[:, blank].clone()
    label_logit = logits.gather(1, label_index)[:, 0].masked_fill(labels < 0, none)
    # A row without a label hides blank twice.
    logits.scatter_(1, label_index.where(labels[:, None] >= 0, blank), none)
    logits[:, blank] = none
    rest = logits.logsumexp(1)
    classes = torch.stack([blank_logit, label_logit, rest], dim=1)
    log_norm = classes.logsumexp(1, keepdim=True)
    log_norm = log_norm.masked_fill(log_norm == float("inf"), float("nan"))
    return classes - log_norm, rest


class _Collapse(torch.autograd.Function):
    """Three log-probabilities per row; the gradient is made block by block, in place if asked."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, blank: int, block_rows: int, reuse_logits: bool
    ) -> Tensor:
        dtype = torch.promote_types(logits.dtype, torch.float32)
        log_probs = logits.new_empty(len(logits), 3, dtype=dtype)
        rest = logits.new_empty(len(logits), dtype=dtype)
        for rows in _blocks(len(logits), block_rows):
            log_probs[rows], rest[rows] = _collapse(logits[rows], labels[rows], blank)
        ctx.save_for_backward(logits, labels, log_probs, rest)
        ctx.options = blank, block_rows, reuse_logits
        ctx.overwritten = False
        return log_probs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.overwritten:
            raise RuntimeError(
                "`collapsed_log_probs` with `reuse_logits=True` can run backward only once: the "
                "first backward pass has put the gradient in the place of the logits."
            )
        logits, labels, log_probs, rest = ctx.saved_tensors
        blank, block_rows, reuse_logits = ctx.options
        logits = logits.detach()
        grad = logits if reuse_logits else torch.empty_like(logits)
        ctx.overwritten = reuse_logits
        own = upstream - log_probs.exp() * upstream.sum(1, keepdim=True)
        # exp(-inf - 0) is the 0 that exp(-inf - -inf) should be.
        shift = rest.masked_fill(rest == float("-inf"), 0.0)
        for rows in _blocks(len(logits), block_rows):
            _write_gradient(grad[rows], logits[rows], shift[rows], own[rows], labels[rows], blank)
        return grad, None, None, None, None


def _write_gradient(
    grad: Tensor, logits: Tensor, shift: Tensor, own: Tensor, labels: Tensor, blank: int
) -> None:
    """Fills a block's gradient, which may lie where the logits do."""
    direct = grad.dtype == own.dtype
    work = torch.sub(logits, shift[:, None], out=grad if direct else None)
    work.exp_().mul_(own[:, REST, None])
    # Where there is no label, blank is written twice.
    has_label = labels >= 0
    index = labels.where(has_label, blank)[:, None]
    work.scatter_(1, index, own[:, LABEL].where(has_label, own[:, BLANK])[:, None])
    work[:, blank] = own[:, BLANK]
    if not direct:
        grad.copy_(work)


def _blocks(count: int, block_rows: int) -> Iterator[slice]:
    for start in range(0, count, block_rows):
        yield slice(start, min(start + block_rows, count))
