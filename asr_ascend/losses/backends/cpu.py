"""Backend "cpu": the C++ kernel behind the operators, for tensors on the CPU."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from asr_ascend.losses import checks, operators, values
from asr_ascend.losses.backends import cpu_library
from asr_ascend.losses.problem import Problem

HAS_BANDS = True


def is_available() -> bool:
    """Returns whether the CPU library can be used now."""
    return cpu_library.is_available()


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
) -> Tensor:
    """Computes costs (B,) float64; see ``LossBackend``.

    The kernel checks values in any case, since it reads raw pointers.
    """
    return operators.costs(_row_contiguous(logits), problem, reuse_logits)


def costs_and_gradient(
    logits: Tensor,
    problem: Problem,
    *,
    reuse_logits: bool = False,
    validate: bool = False,
    values_checked: bool = False,
) -> tuple[Tensor, Tensor]:
    """Computes costs (B,) float64 and the gradient; see ``LossBackend``.

    The kernel checks values in any case, since it reads raw pointers.
    """
    return operators.costs_and_gradient(_row_contiguous(logits), problem, reuse_logits)


def best_paths(logits: Tensor, problem: Problem) -> tuple[Tensor, Tensor]:
    """Finds the likeliest alignments; see ``AlignmentBackend``."""
    return operators.best_paths(logits, problem)


def new_outputs(
    logits: Tensor, batch_size: int, needs_grad: bool, band: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Returns costs (B,) and state of ``rnnt_loss_forward``, float64 and uninitialised.

    A band changes nothing in them.
    """
    costs = logits.new_empty(batch_size, dtype=torch.float64)
    # One slot per row of the tensor, padding included: how many are used depends on values.
    num_rows = math.prod(logits.shape[:-1]) if needs_grad else 0
    return costs, logits.new_empty(cpu_library.STATE_PLANES * num_rows, dtype=torch.float64)


def _forward(logits: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    *fields, needs_grad, _ = arguments
    problem = _kernel_problem(Problem._make(fields))
    logits = _row_contiguous(logits)
    costs, state = new_outputs(logits, problem.targets.shape[0], needs_grad, problem.band)
    status, failure = cpu_library.forward(logits, problem, costs, state if needs_grad else None)
    _finish(status, failure, logits, problem)
    return costs, state


def _backward(grad_costs: Tensor, logits: Tensor, state: Tensor, *fields: Any) -> Tensor:
    logits = _row_contiguous(logits)
    grad = torch.empty_like(logits, memory_format=torch.contiguous_format)
    _write_gradient(grad, grad_costs, logits, state, fields)
    return grad


def _backward_in_place(grad_costs: Tensor, logits: Tensor, state: Tensor, *fields: Any) -> None:
    rows = _row_contiguous(logits)
    _write_gradient(rows, grad_costs, rows, state, fields)
    if rows is not logits:
        logits.copy_(rows)
    elif not logits.is_inference():
        # Autograd can't see a write through a raw pointer.
        torch.autograd.graph.increment_version(logits)


def _write_gradient(
    grad: Tensor, grad_costs: Tensor, logits: Tensor, state: Tensor, fields: Sequence[Any]
) -> None:
    problem = _kernel_problem(Problem._make(fields))
    num_rows = math.prod(logits.shape[:-1])
    if grad_costs.shape != problem.logit_lengths.shape or (
        state.numel() != cpu_library.STATE_PLANES * num_rows
    ):
        raise RuntimeError("grad_costs and state must be those of rnnt_loss_forward's outputs.")
    grad_costs = grad_costs.to(torch.float64).contiguous()
    status, failure = cpu_library.backward(logits, problem, state, grad_costs, grad)
    if status != cpu_library.OK:
        raise _kernel_error(status, failure, logits, problem)


def _alignment(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
    fused_log_softmax: bool,
    blank_in_targets: bool,
    band: Tensor | None,
) -> tuple[Tensor, Tensor]:
    indices = targets, logit_lengths, target_lengths
    problem = Problem(
        *indices,
        blank=blank,
        clamp=-1.0,
        fused_log_softmax=fused_log_softmax,
        fastemit_lambda=0.0,
        delay_penalty=0.0,
        blank_in_targets=blank_in_targets,
        emission_windows=None,
        band=band,
    )
    problem = _kernel_problem(problem)
    logits = _row_contiguous(logits)
    frames, log_probs = operators.new_paths(logits, targets)
    status, failure = cpu_library.alignment(logits, problem, frames, log_probs)
    _finish(status, failure, logits, problem)
    return frames, log_probs


def _row_contiguous(logits: Tensor) -> Tensor:
    # Operators ask again: a compiled caller may hand over other strides than the ones seen here.
    return logits if checks.is_row_contiguous(logits) else logits.contiguous()


def _kernel_problem(problem: Problem) -> Problem:
    """The problem as the kernel reads it: contiguous int64 indices."""
    targets, logit_lengths, target_lengths = problem[:3]
    if not logit_lengths.shape == target_lengths.shape == targets.shape[:1]:
        # The kernel reads raw pointers: also a direct call must not lead it out of a tensor.
        raise RuntimeError("targets, logit_lengths and target_lengths must be of one batch.")
    windows = problem.emission_windows
    if windows is not None and windows.shape != (*targets.shape, 2):
        raise RuntimeError("emission_windows must have two frames for each of targets.")
    band = problem.band
    if band is not None and (band.dim() != 3 or band.shape[::2] != (len(targets), 2)):
        raise RuntimeError("band must have two columns for each frame of each of targets.")
    return problem.with_indices(lambda index: index.to(torch.int64).contiguous())


def _finish(status: int, failure: cpu_library.Failure, logits: Tensor, problem: Problem) -> None:
    """Raises for a failed pass over log-probabilities or logits, and warns of a mistaken one."""
    if status != cpu_library.OK:
        raise _kernel_error(status, failure, logits, problem)
    if not problem.fused_log_softmax:
        values.warn_if_logits(logits, problem)


def _kernel_error(
    status: int, failure: cpu_library.Failure, logits: Tensor, problem: Problem
) -> Exception:
    """The exception for a status of the kernel, which says where it stopped."""
    b, position = failure.sample, failure.position
    packed = logits.dim() == 2
    if status == cpu_library.BAD_LOGIT_LENGTH:
        max_frames = None if packed else logits.shape[1]
        if problem.band is not None:
            max_frames = problem.band.shape[1]
        return values.logit_length_error(b, int(problem.logit_lengths[b]), max_frames)
    if status == cpu_library.BAD_TARGET_LENGTH:
        max_labels = values.label_limit(logits, problem.targets)
        return values.target_length_error(b, int(problem.target_lengths[b]), max_labels)
    if status == cpu_library.BAD_ROWS:
        has_band = problem.band is not None
        return values.row_count_error(logits.shape[0], failure.value, has_band)
    if status == cpu_library.BAD_BAND and problem.band is not None:
        return values.band_error(problem.band, b, position, int(problem.target_lengths[b]))
    if status == cpu_library.BAD_TARGET:
        label = int(problem.targets[b, position])
        return values.target_range_error(b, position, label, logits.shape[-1])
    if status == cpu_library.TARGET_IS_BLANK:
        return values.target_is_blank_error(b, position, problem.blank)
    if status == cpu_library.CROSS_CHECK_FAILED:
        return RuntimeError(
            f"the forward and backward scores of sample {b} disagree: this is a fault in the CPU "
            'kernel, please report it; backend="reference" works, slowly.'
        )
    if status == cpu_library.NO_MEMORY:
        return RuntimeError("the CPU kernel could not allocate its workspace.")
    values.check_values(logits, problem)  # lengths beyond any memory have no status of their own
    return RuntimeError(f"the CPU kernel refused its arguments with status {status}.")


operators.register_outputs("cpu", new_outputs)
for _name, _implementation in (
    ("rnnt_loss_forward", _forward),
    ("rnnt_loss_backward", _backward),
    ("rnnt_loss_backward_", _backward_in_place),
    ("rnnt_alignment", _alignment),
):
    operators.library.impl(_name, _implementation, "CPU")
