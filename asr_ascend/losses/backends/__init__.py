"""Which implementation runs a loss, and how each is called. The arguments have been checked."""

import torch
from torch import Tensor

from asr_ascend.losses import checks, closed_windows, operators
from asr_ascend.losses.backends import cpu, npu, reference
from asr_ascend.losses.layout import Problem

_NAMES = ("cpu", "npu", "reference")
# Backends whose operators know no emission windows: a copy of the logits closes them.
_WITHOUT_WINDOWS = ("npu",)


def available() -> tuple[str, ...]:
    """Names that ``backend`` takes here and now, fastest first."""
    usable = {"npu": npu.is_available(), "cpu": cpu.is_available(), "reference": True}
    return tuple(name for name, there in usable.items() if there)


def choose(logits: Tensor, backend: str | None) -> str:
    """The name of the backend; None stands for the native one of the device of ``logits``."""
    device = logits.device.type
    if backend is None:
        if device not in ("cpu", npu.DEVICE_TYPE):
            raise RuntimeError(
                f"`rnnt_loss` has no native backend for logits on {logits.device}; "
                'backend="reference" works there, slowly.'
            )
        return device
    if backend not in _NAMES:
        raise ValueError(
            f'`backend` must be None, "cpu", "npu" or "reference", but is {checks.quoted(backend)}.'
        )
    if backend != "reference" and device != backend:
        place = "the CPU" if backend == "cpu" else "an NPU"
        raise ValueError(
            f'`logits` must be on {place} for backend="{backend}", but is on {logits.device}.'
        )
    return backend


def costs(
    logits: Tensor, problem: Problem, backend: str, *, reuse_logits: bool, validate: bool
) -> Tensor:
    """Costs (B,) that autograd can differentiate."""
    rows, problem, _ = _rows(logits, problem, backend, reuse_logits, validate)
    if backend == "reference":
        return reference.rnnt_costs(rows, problem)
    if _must_close_windows(problem, backend):
        rows, problem = closed_windows.close_windows(rows, problem)
    result = operators.rnnt_costs(rows, problem, reuse_logits)
    if validate and backend == "npu":
        npu.check_latest_status(logits.device)
    return result


def costs_and_gradient(
    logits: Tensor, problem: Problem, backend: str, *, reuse_logits: bool, validate: bool
) -> tuple[Tensor, Tensor]:
    """Costs (B,) and d cost_b / d logits, like ``logits`` or in their place."""
    logits = logits.detach()
    rows, problem, places = _rows(logits, problem, backend, reuse_logits, validate)
    if backend == "reference":
        result, grad = reference.rnnt_costs_and_gradient(rows, problem)
    elif _must_close_windows(problem, backend):
        closed, without = closed_windows.close_windows(rows, problem)
        result, grad = operators.rnnt_costs_and_gradient(closed, without, True)
        grad = closed_windows.original_gradient(grad, problem)
    else:
        # Rows that were picked out of padded logits are a copy, whose memory may be used.
        in_place = reuse_logits or places is not None
        result, grad = operators.rnnt_costs_and_gradient(rows, problem, in_place)
    if validate and backend == "npu":
        npu.check_latest_status(logits.device)
    if places is not None:
        grad = _spread(grad, places, logits)
    if reuse_logits and grad.data_ptr() != logits.data_ptr():
        grad = logits.copy_(grad)
    return result, grad


def _must_close_windows(problem: Problem, backend: str) -> bool:
    return problem.emission_windows is not None and backend in _WITHOUT_WINDOWS


def _rows(
    logits: Tensor, problem: Problem, backend: str, reuse_logits: bool, validate: bool
) -> tuple[Tensor, Problem, Tensor | None]:
    """Logits and problem as the backend's operator takes them.

    On an NPU these are packed rows, and the last is their places in padded logits.
    """
    if backend != "npu":
        row_contiguous = checks.is_row_contiguous(logits)
        return logits if row_contiguous else logits.contiguous(), problem, None
    prepared = npu.prepare(logits, problem, validate=validate)
    if logits.dim() == 4:
        places = npu.packed_rows(logits, problem)
        return logits.flatten(0, 2).index_select(0, places), prepared, places
    # aclnn would copy rows that are not contiguous in forward and again in backward.
    return logits if reuse_logits else logits.contiguous(), prepared, None


def _spread(rows: Tensor, places: Tensor, padded: Tensor) -> Tensor:
    """``rows`` (N, V) at their places in zeros of the shape of ``padded``."""
    spread = torch.zeros(padded.shape, dtype=padded.dtype, device=padded.device)
    spread.view(-1, padded.shape[-1]).index_add_(0, places, rows)
    return spread
