"""RNN-T loss of a joiner that adds, and the cells that its alignments pass through."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from asr_ascend.losses import backends, checks, function_transforms, values
from asr_ascend.losses.backends import LossBackend
from asr_ascend.losses.problem import Problem, cost_dtype, make_problem, reduced
from asr_ascend.losses.row_statistics import not_negative, two_column_problem
from asr_ascend.losses.simple.log_probs import cell_log_probs


class Occupancies(NamedTuple):
    """Posterior probabilities of the two ways out of every cell of the lattices.

    Args:
        blank: (B, T, U + 1) that an alignment leaves frame t in column u, by blank.
        label: (B, T, U + 1) that it emits label u in frame t; 0 in a sample's last column.
    """

    blank: Tensor
    label: Tensor


@torch.compiler.disable
def simple_rnnt_loss(
    am: Tensor,
    lm: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = -1,
    reduction: str | None = "mean",
    *,
    lm_only_scale: float = 0.0,
    am_only_scale: float = 0.0,
    delay_penalty: float = 0.0,
    blank_in_targets: str = "error",
    backend: str | None = None,
    validate: bool = False,
    return_occupancies: bool = False,
) -> Tensor | tuple[Tensor, Occupancies]:
    """Computes the RNN-T loss of logits ``am[:, :, None] + lm[:, None]``, which never exist.

    The normaliser of all cells is one matrix product. So the memory is about 150 bytes a cell and
    some copies of ``am`` and ``lm``, however large the vocabulary. :func:`pruned_band` makes a band
    of the occupancies. With it :func:`joiner_rnnt_loss` is the pruned loss.

    torch.compile leaves the call out of its graph.

    Args:
        am: (B, T, V) float32, float64, float16 or bfloat16: the acoustic part of the logits.
            Padding is never read and gets zero gradient.
        lm: (B, U + 1, V) of the same dtype: the part of the labels so far. Column u has seen u
            labels. Padding as for ``am``.
        targets, logit_lengths, target_lengths, blank, reduction, delay_penalty, blank_in_targets,
            backend, validate: as for :func:`rnnt_loss`.
        lm_only_scale: in [0, 1], the share of the distribution that only ``lm`` gives.
        am_only_scale: in [0, 1], the share of the distribution that ``am`` gives with the mean
            distribution of ``lm`` over the batch. The two shares are at most 1 together. Above 0,
            a sample's loss depends a little on the others of its batch, by this mean.
        return_occupancies: return occupancies too.

    Returns:
        The loss as of :func:`rnnt_loss`. With ``return_occupancies`` also the
        :class:`Occupancies` of the smoothed distribution, in the dtype of the loss, without
        gradient. Those of a sample without an alignment are 0, those of one with NaN are NaN.

    Raises:
        ValueError: shape, device, length, target, blank, scale, reduction or backend out of place.
        TypeError: wrong type or dtype.
        RuntimeError: no backend, as for :func:`rnnt_loss`; backward with create_graph=True;
            forward-mode differentiation, torch.func.grad and the like, torch.vmap.

    Source:
        Kuang et al. 2022, "Pruned RNN-T for fast, memory-efficient ASR training"
        (https://arxiv.org/abs/2206.13236), sections 3.1 and 3.3. The mean distribution is that of
        fast_rnnt 1.3, except that fast_rnnt counts padding in it.
    """
    function_transforms.refuse_vmap("simple_rnnt_loss", am, lm, targets)
    function_transforms.refuse_forward_mode("simple_rnnt_loss", am, lm)
    function_transforms.refuse_func_gradient("simple_rnnt_loss", am, lm)
    reduction = checks.checked_reduction(reduction)
    _check_tables(am, lm)
    scales = _checked_scales(lm_only_scale, am_only_scale)
    checks.check_flag("return_occupancies", return_occupancies)
    # No logits exist: a tensor without rows stands for their dtype, device and vocabulary.
    no_rows = am.new_empty(0, am.shape[2])
    problem = make_problem(
        no_rows,
        targets,
        logit_lengths,
        target_lengths,
        blank,
        blank_in_targets=blank_in_targets,
        delay_penalty=delay_penalty,
    )
    if len(targets) != len(am):
        raise ValueError(
            f"`targets` must be ({len(am)}, U), but has shape {checks.shape_of(targets)}."
        )
    chosen = backends.for_loss("simple_rnnt_loss", no_rows, backend)
    wrong_labels = _check_values(am, lm, problem, chosen, validate)
    with torch.autocast(am.device.type, enabled=False):
        log_probs = cell_log_probs(am, lm, problem, *scales)
        if wrong_labels is not None:
            log_probs = log_probs.masked_fill(wrong_labels[:, None, :, None], math.nan)
        lattice = two_column_problem(problem)
        needs_grad = torch.is_grad_enabled() and log_probs.requires_grad
        shares = None
        if needs_grad or return_occupancies:
            costs, shares = _Costs.apply(log_probs, lattice, chosen, validate)
        else:
            costs = chosen.costs(log_probs, lattice, validate=validate, values_checked=True)
            costs = not_negative(costs, lattice)
    dtype = cost_dtype(am.dtype)
    loss = reduced(costs, reduction).to(dtype)
    if not return_occupancies:
        return loss
    assert shares is not None
    # Not the negative, which has zeros of both signs.
    return loss, Occupancies(*(0.0 - shares.to(dtype)).unbind(-1))


function_transforms.refuse_script(simple_rnnt_loss, "call it outside of the scripted code")


class _Costs(torch.autograd.Function):
    """Costs (B,), with their derivatives by the log-probabilities, which are known by then."""

    @staticmethod
    def forward(
        ctx: Any, log_probs: Tensor, problem: Problem, backend: LossBackend, validate: bool
    ) -> tuple[Tensor, Tensor]:
        costs, shares = backend.costs_and_gradient(
            log_probs.detach(), problem, validate=validate, values_checked=True
        )
        costs = not_negative(costs, problem)
        ctx.save_for_backward(shares)
        ctx.mark_non_differentiable(shares)
        ctx.set_materialize_grads(False)
        return costs, shares

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "`simple_rnnt_loss` can't run backward with create_graph=True: second derivatives "
                'need `rnnt_loss` with backend="reference".'
            )
        (shares,) = ctx.saved_tensors
        grad_costs = grads[0]
        if grad_costs is None:
            return None, None, None, None
        return shares * grad_costs[:, None, None, None], None, None, None


def _check_tables(am: Tensor, lm: Tensor) -> None:
    for name, value in (("am", am), ("lm", lm)):
        checks.check_tensor(name, value)
        checks.check_has_values(name, value)
        if value.dtype not in checks.DTYPES:
            raise TypeError(
                f"`{name}` must be float32, float64, float16 or bfloat16, "
                f"but is {checks.dtype_name(value.dtype)}."
            )
    if am.dim() != 3 or am.shape[2] < 1:
        raise ValueError(
            f"`am` must be (B, T, V), V at least 1, but has shape {checks.shape_of(am)}."
        )
    if lm.dim() != 3 or lm.shape[::2] != am.shape[::2] or lm.shape[1] < 1:
        raise ValueError(
            f"`lm` must be ({am.shape[0]}, U + 1, {am.shape[2]}), "
            f"but has shape {checks.shape_of(lm)}."
        )
    if lm.dtype != am.dtype:
        raise TypeError(
            f"`lm` must be {checks.dtype_name(am.dtype)} as `am`, "
            f"but is {checks.dtype_name(lm.dtype)}."
        )
    if lm.device != am.device:
        raise ValueError(f"`lm` must be on {am.device} as `am`, but is on {lm.device}.")


def _checked_scales(lm_only_scale: object, am_only_scale: object) -> tuple[float, float]:
    scales = []
    for name, given in (("lm_only_scale", lm_only_scale), ("am_only_scale", am_only_scale)):
        scale = float(checks.as_float(name, given))
        if not 0.0 <= scale <= 1.0:
            raise ValueError(f"`{name}` must be in [0, 1], but is {scale}.")
        scales.append(scale)
    if sum(scales) > 1.0:
        raise ValueError(
            "`lm_only_scale` and `am_only_scale` must be at most 1 together, "
            f"but are {scales[0]} and {scales[1]}."
        )
    return scales[0], scales[1]


def _check_values(
    am: Tensor, lm: Tensor, problem: Problem, backend: LossBackend, validate: bool
) -> Tensor | None:
    """Raises ValueError for a length out of place, and for a label where the host may look.

    Returns:
        (B, U + 1) bool, the labels out of place; None where the host has checked them.
    """
    U = lm.shape[1] - 1
    values.check_lengths(
        problem.logit_lengths,
        problem.target_lengths,
        max_frames=am.shape[1],
        max_labels=min(U, problem.targets.shape[1]),
    )
    if backend.checks_on_host(problem.targets, validate):
        values.check_targets(problem, am.shape[2])
        return None
    wrong = values.wrong_labels(problem, am.shape[2])[:, :U]
    return torch.nn.functional.pad(wrong, (0, U + 1 - wrong.shape[1]))
