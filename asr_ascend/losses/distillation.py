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
from collections.abc import Iterable

import torch
from torch import Tensor

from asr_ascend.losses import checks, function_transforms, layout, values
from asr_ascend.losses.collapsing import BLANK, LABEL, Collapse, collapse, row_labels
from asr_ascend.losses.problem import make_problem
from asr_ascend.losses.rnnt import rnnt_loss

DEFAULT_BLOCK_BYTES = 2**20


@torch.compiler.disable
def collapsed_log_probs(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = -1,
    *,
    band: Tensor | None = None,
    reuse_logits: bool = False,
    block_bytes: int = DEFAULT_BLOCK_BYTES,
) -> Tensor:
    """Computes log-probabilities of blank, the next label and the rest at every lattice cell.

    The RNN-T loss of the logits equals that of the three columns as log-probabilities, in which
    every label is 1 and blank 0; see :func:`distilled_rnnt_loss`.

    torch.compile leaves the call out of its graph.

    Args:
        logits: (N, V) float32, float64, float16 or bfloat16, packed as for :func:`rnnt_loss`, on
            any device.
        targets, logit_lengths, target_lengths, blank, band: as for :func:`rnnt_loss`.
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
        RuntimeError: a second backward pass with ``reuse_logits``, backward with create_graph=True,
            forward-mode differentiation, torch.func.grad and the like, torch.vmap.

    Source:
        Panchapagesan et al. 2021, "Efficient Knowledge Distillation for RNN-Transducer Models".
    """
    problem = make_problem(logits, targets, logit_lengths, target_lengths, blank, band=band)
    checks.check_reuse(logits, reuse_logits)
    function_transforms.refuse_vmap("collapsed_log_probs", logits, *problem[:3])
    function_transforms.refuse_forward_mode("collapsed_log_probs", logits)
    function_transforms.refuse_func_gradient("collapsed_log_probs", logits)
    if logits.dim() != 2:
        raise ValueError(
            f"`logits` must be packed, (N, V), but has shape {checks.shape_of(logits)}."
        )
    _check_block_bytes(block_bytes)
    values.check_values(logits, problem)
    labels = row_labels(len(logits), targets, logit_lengths, target_lengths, band)
    block_rows = rows_per_block(logits.shape[1], block_bytes)
    result: Tensor = Collapse.apply(logits, labels, problem.blank, block_rows, reuse_logits)
    return result


@torch.no_grad()
def collapse_blocks(
    blocks: Iterable[Tensor],
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
    band: Tensor | None = None,
) -> Tensor:
    """Computes :func:`collapsed_log_probs` of logits that come a few rows at a time.

    There is no gradient.

    Args:
        blocks: (n, V) each, consecutive rows of the packed logits, N in all. A block isn't kept.
        targets, logit_lengths, target_lengths: as for :func:`rnnt_loss`, not checked.
        blank: id in [0, V - 1].
        band: as for :func:`rnnt_loss`, not checked.

    Returns:
        (N, 3) float32, float64 for float64 logits.

    Raises:
        ValueError: the number of rows is not N.
    """
    num_rows = int(layout.row_offsets(logit_lengths, target_lengths, band)[-1])
    labels = row_labels(num_rows, targets, logit_lengths, target_lengths, band)
    parts, start = [], 0
    for block in blocks:
        part = labels[start : start + len(block)]
        if len(part) < len(block):
            raise values.row_count_error(start + len(block), len(labels), band is not None)
        parts.append(collapse(block, part, blank)[0])
        start += len(block)
    if start != len(labels):
        raise values.row_count_error(start, len(labels), band is not None)
    return torch.cat(parts) if parts else torch.empty(0, 3, device=targets.device)


def distillation_loss(
    student: Tensor,
    teacher: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    reduction: str | None = "mean",
    *,
    band: Tensor | None = None,
) -> Tensor:
    """Computes KL(teacher || student) over blank, label and rest, summed over each lattice.

    With a band the sum is only over its cells. A lattice has hundreds of cells to one path, so next
    to an RNN-T loss its weight is small.

    Args:
        student: (N, 3) from :func:`collapsed_log_probs`.
        teacher: (N, 3) of the same targets and lengths; gets no gradient.
        logit_lengths, target_lengths: (B,) as given for both.
        reduction: "none", "sum", or "mean", which divides the sum by B.
        band: as given for both.

    Returns:
        A scalar, or (B,) for "none", in nats. A class that the teacher gives no chance adds
        nothing; +inf where the student gives none to one that the teacher does. The gradient is
        finite there too.

    Raises:
        ValueError: shapes that differ or aren't (N, 3), N not the sum of rows, unknown reduction,
            device or length out of place.
        TypeError: wrong type or dtype.

    Source:
        Panchapagesan et al. 2021, "Efficient Knowledge Distillation for RNN-Transducer Models".
    """
    reduction = checks.checked_reduction(reduction)
    _check_collapsed(student, teacher)
    checks.check_tensor("logit_lengths", logit_lengths)
    checks.check_lengths(student, logit_lengths, target_lengths, logit_lengths.numel())
    _check_rows(student, logit_lengths, target_lengths, band)
    teacher = teacher.detach().to(student.dtype)
    # exp underflows to 0 where the product with -inf would be NaN; a NaN of the teacher stays.
    chance = teacher.exp()
    cells = torch.where(chance == 0, 0.0, chance * (teacher - student)).sum(1)
    if reduction == "none":
        offsets = layout.row_offsets(logit_lengths, target_lengths, band).tolist()
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
    reduction: str | None = "mean",
    *,
    fastemit_lambda: float = 0.0,
    delay_penalty: float = 0.0,
    emission_windows: Tensor | None = None,
    band: Tensor | None = None,
    reuse_logits: bool = False,
    backend: str | None = None,
    block_bytes: int = DEFAULT_BLOCK_BYTES,
) -> tuple[Tensor, Tensor]:
    """Computes the RNN-T loss of a student's logits, and their divergence from a teacher.

    Both use the same :func:`collapsed_log_probs`. So one pass makes the one gradient of the logits,
    whatever weights the two losses get; with ``reuse_logits`` in the place of the logits. There is
    no ``clamp``: the RNN-T loss has no separate gradient of the logits.

    Args:
        logits, block_bytes: as for :func:`collapsed_log_probs`.
        teacher: (N, 3) from :func:`collapsed_log_probs` or :func:`collapse_blocks`.
        targets, logit_lengths, target_lengths, blank, reduction, fastemit_lambda, delay_penalty,
            emission_windows, band, reuse_logits, backend: as for :func:`rnnt_loss`.

    Returns:
        Two losses as of :func:`rnnt_loss` and :func:`distillation_loss`.

    Raises:
        ValueError, TypeError, RuntimeError: as these functions.
    """
    sizes = logit_lengths, target_lengths
    student = collapsed_log_probs(
        logits,
        targets,
        *sizes,
        blank,
        band=band,
        reuse_logits=reuse_logits,
        block_bytes=block_bytes,
    )
    rnnt = rnnt_loss(
        student,
        torch.full_like(targets, LABEL),
        *sizes,
        BLANK,
        reduction=reduction,
        fused_log_softmax=False,
        fastemit_lambda=fastemit_lambda,
        delay_penalty=delay_penalty,
        emission_windows=emission_windows,
        band=band,
        backend=backend,
    )
    return rnnt, distillation_loss(student, teacher, *sizes, reduction, band=band)


def rows_per_block(vocab_size: int, block_bytes: int) -> int:
    """Returns the rows of float32 logits that fit into a block, at least one."""
    return max(1, block_bytes // (4 * vocab_size))


def _check_block_bytes(block_bytes: int) -> None:
    if not isinstance(block_bytes, int) or block_bytes < 1:
        raise ValueError(
            f"`block_bytes` must be an int of at least 1, but is {checks.quoted(block_bytes)}."
        )


def _check_rows(
    student: Tensor, logit_lengths: Tensor, target_lengths: Tensor, band: Tensor | None
) -> None:
    """Raises ValueError for lengths or a band that don't make as many rows."""
    if band is None:
        values.check_lengths(logit_lengths, target_lengths, num_rows=len(student))
        return
    checks.check_index("band", band)
    values.check_lengths(logit_lengths, target_lengths)
    values.check_band(band, logit_lengths, target_lengths)
    num_rows = int(layout.row_offsets(logit_lengths, target_lengths, band)[-1])
    if num_rows != len(student):
        raise ValueError(
            f"`student` must have a row for each of the {num_rows} cells of `band`, "
            f"but has {len(student)}."
        )


def _check_collapsed(student: Tensor, teacher: Tensor) -> None:
    for name, value in (("student", student), ("teacher", teacher)):
        checks.check_tensor(name, value)
        if value.dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"`{name}` must be float32 or float64, but is {checks.dtype_name(value.dtype)}."
            )
        if value.device != student.device:
            raise ValueError(
                f"`{name}` must be on {student.device} as `student`, but is on {value.device}."
            )
        checks.check_has_values(name, value)
    if student.dim() != 2 or student.shape[1] != 3 or student.shape != teacher.shape:
        raise ValueError(
            "`student` and `teacher` must be (N, 3) both, but have shapes "
            f"{checks.shape_of(student)} and {checks.shape_of(teacher)}."
        )
