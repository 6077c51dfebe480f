"""The torch operators of the loss: schema, CPU implementation, fake, autograd, vmap.

Python owns the schema; another device's binary only implements it. Shapes and dtypes were checked
by the caller (``rnnt.py``), values are checked here, out of sight of torch.compile.
"""

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from asr_ascend.losses import function_transforms, values
from asr_ascend.losses.backends import cpu, npu
from asr_ascend.losses.checks import is_row_contiguous
from asr_ascend.losses.layout import Problem

# The fields of layout.Problem.
_PROBLEM = (
    "Tensor targets, Tensor logit_lengths, Tensor target_lengths, "
    "SymInt blank, float clamp, bool fused_log_softmax, "
    "float fastemit_lambda, Tensor? emission_windows"
)

_library = torch.library.Library("asr_ascend", "DEF")
_library.define(
    f"rnnt_loss_forward(Tensor logits, {_PROBLEM}, bool needs_grad, bool reuse_logits)"
    " -> (Tensor costs, Tensor state)"
)
_library.define(
    f"rnnt_loss_backward(Tensor grad_costs, Tensor logits, Tensor state, {_PROBLEM}) -> Tensor"
)
_library.define(
    f"rnnt_loss_backward_(Tensor grad_costs, Tensor(a!) logits, Tensor state, {_PROBLEM}) -> ()"
)
# The NPU alone: costs and gradient by one kernel, and what the latest calls found (npu.py).
_library.define(f"rnnt_loss_fused(Tensor logits, {_PROBLEM}) -> (Tensor costs, Tensor grad)")
_library.define("rnnt_loss_take_statuses(Device device, int count) -> Tensor[]")


def rnnt_costs(logits: Tensor, problem: Problem, reuse_logits: bool) -> Tensor:
    """Costs (B,) of packed or padded logits, float64 on the CPU; autograd knows their gradient."""
    needs_grad = logits.requires_grad and torch.is_grad_enabled()
    costs: Tensor
    costs, _ = torch.ops.asr_ascend.rnnt_loss_forward(logits, *problem, needs_grad, reuse_logits)
    return costs


@torch.no_grad()
def rnnt_costs_and_gradient(
    logits: Tensor, problem: Problem, reuse_logits: bool
) -> tuple[Tensor, Tensor]:
    """Costs (B,) as of rnnt_costs; gradient of their sum, like ``logits`` or in their place."""
    logits = logits.detach()
    if _is_on_npu(logits) and not reuse_logits and problem.fastemit_lambda == 0.0:
        costs, grad = torch.ops.asr_ascend.rnnt_loss_fused(logits, *problem)
        return costs, grad
    costs, state = torch.ops.asr_ascend.rnnt_loss_forward(logits, *problem, True, reuse_logits)
    grad_costs = torch.ones_like(costs)
    if reuse_logits:
        torch.ops.asr_ascend.rnnt_loss_backward_(grad_costs, logits, state, *problem)
        return costs, logits
    return costs, torch.ops.asr_ascend.rnnt_loss_backward(grad_costs, logits, state, *problem)


def _is_on_npu(tensor: Tensor) -> bool:
    return tensor.device.type == npu.DEVICE_TYPE


# CPU


def _forward_cpu(logits: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    *fields, needs_grad, _ = arguments
    problem = kernel_problem(fields)
    logits = kernel_logits(logits)
    costs, state = _forward_fake(logits, *arguments)
    status, failure = cpu.forward(logits, problem, costs, state if needs_grad else None)
    if status != cpu.OK:
        raise kernel_error(status, failure, logits, problem)
    if not problem.fused_log_softmax:
        values.warn_if_logits(logits, problem)
    return costs, state


def _backward_cpu(grad_costs: Tensor, logits: Tensor, state: Tensor, *fields: Any) -> Tensor:
    logits = kernel_logits(logits)
    grad = torch.empty_like(logits, memory_format=torch.contiguous_format)
    _write_gradient(grad, grad_costs, logits, state, fields)
    return grad


def _backward_in_place_cpu(grad_costs: Tensor, logits: Tensor, state: Tensor, *fields: Any) -> None:
    rows = kernel_logits(logits)
    _write_gradient(rows, grad_costs, rows, state, fields)
    if rows is not logits:
        logits.copy_(rows)
    elif not logits.is_inference():
        # Autograd can't see a write through a raw pointer.
        torch.autograd.graph.increment_version(logits)


def _write_gradient(
    grad: Tensor, grad_costs: Tensor, logits: Tensor, state: Tensor, fields: Sequence[Any]
) -> None:
    problem = kernel_problem(fields)
    num_rows = math.prod(logits.shape[:-1])
    if grad_costs.shape != problem.logit_lengths.shape or (
        state.numel() != cpu.STATE_PLANES * num_rows
    ):
        raise RuntimeError("grad_costs and state must be those of rnnt_loss_forward's outputs.")
    grad_costs = grad_costs.to(torch.float64).contiguous()
    status, failure = cpu.backward(logits, problem, state, grad_costs, grad)
    if status != cpu.OK:
        raise kernel_error(status, failure, logits, problem)


def kernel_problem(fields: Sequence[Any]) -> Problem:
    """An operator's arguments as the kernel reads them: contiguous int64 indices."""
    targets, logit_lengths, target_lengths, *options, windows = fields
    if not logit_lengths.shape == target_lengths.shape == targets.shape[:1]:
        # The kernel reads raw pointers: also a direct call must not lead it out of a tensor.
        raise RuntimeError("targets, logit_lengths and target_lengths must be of one batch.")
    if windows is not None and windows.shape != (*targets.shape, 2):
        raise RuntimeError("emission_windows must have two frames for each of targets.")
    indices = targets, logit_lengths, target_lengths
    return Problem._make(
        (
            *(index.to(torch.int64).contiguous() for index in indices),
            *options,
            None if windows is None else windows.to(torch.int64).contiguous(),
        )
    )


def kernel_logits(logits: Tensor) -> Tensor:
    """Logits whose rows are contiguous."""
    # A compiled caller may hand over other strides than the ones that rnnt.py saw.
    return logits if is_row_contiguous(logits) else logits.contiguous()


def kernel_error(status: int, failure: cpu.Failure, logits: Tensor, problem: Problem) -> Exception:
    """The exception for a status of the kernel, which says where it stopped."""
    b, position = failure.sample, failure.position
    packed = logits.dim() == 2
    if status == cpu.BAD_LOGIT_LENGTH:
        max_frames = None if packed else logits.shape[1]
        return values.logit_length_error(b, int(problem.logit_lengths[b]), max_frames)
    if status == cpu.BAD_TARGET_LENGTH:
        max_labels = values.label_limit(logits, problem.targets)
        return values.target_length_error(b, int(problem.target_lengths[b]), max_labels)
    if status == cpu.BAD_ROWS:
        return values.row_count_error(logits.shape[0], failure.value)
    if status == cpu.BAD_TARGET:
        label = int(problem.targets[b, position])
        return values.target_range_error(b, position, label, logits.shape[-1])
    if status == cpu.TARGET_IS_BLANK:
        return values.target_is_blank_error(b, position, problem.blank)
    if status == cpu.CROSS_CHECK_FAILED:
        return RuntimeError(
            f"the forward and backward scores of sample {b} disagree: this is a fault in the CPU "
            'kernel, please report it; backend="reference" works, slowly.'
        )
    if status == cpu.NO_MEMORY:
        return RuntimeError("the CPU kernel could not allocate its workspace.")
    values.check_values(logits, problem)  # lengths beyond any memory have no status of their own
    return RuntimeError(f"the CPU kernel refused its arguments with status {status}.")


_library.impl("rnnt_loss_forward", _forward_cpu, "CPU")
_library.impl("rnnt_loss_backward", _backward_cpu, "CPU")
_library.impl("rnnt_loss_backward_", _backward_in_place_cpu, "CPU")


# Fake: shapes and dtypes without values, for torch.compile and torch.export.


@torch.library.register_fake("asr_ascend::rnnt_loss_forward", lib=_library)
def _forward_fake(logits: Tensor, targets: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    *_, needs_grad, _ = arguments
    if _is_on_npu(logits):
        size = npu.state_size(logits.shape[0], targets.shape[0], True) if needs_grad else 0
        floats = torch.float32
        return logits.new_empty(targets.shape[0], dtype=floats), logits.new_empty(
            size, dtype=floats
        )
    costs = logits.new_empty(targets.shape[0], dtype=torch.float64)
    # One slot per row of the tensor, padding included: how many are used depends on values.
    num_rows = math.prod(logits.shape[:-1]) if needs_grad else 0
    return costs, logits.new_empty(cpu.STATE_PLANES * num_rows, dtype=torch.float64)


@torch.library.register_fake("asr_ascend::rnnt_loss_backward", lib=_library)
def _backward_fake(grad_costs: Tensor, logits: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


@torch.library.register_fake("asr_ascend::rnnt_loss_backward_", lib=_library)
def _backward_in_place_fake(grad_costs: Tensor, logits: Tensor, *_: Any) -> None:
    return None


@torch.library.register_fake("asr_ascend::rnnt_loss_fused", lib=_library)
def _fused_fake(logits: Tensor, targets: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    costs = logits.new_empty(targets.shape[0], dtype=torch.float32)
    return costs, torch.empty_like(logits, memory_format=torch.contiguous_format)


# Autograd


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    logits, *indices, blank, clamp, fused, fastemit_lambda, windows, needs_grad, reuse = inputs
    _, state = output
    ctx.mark_non_differentiable(state)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(logits, state, *indices, windows)
    ctx.options = blank, clamp, fused, fastemit_lambda
    ctx.needs_grad = needs_grad
    ctx.reuse_logits = reuse
    ctx.overwritten = False


def _differentiate(ctx: Any, grad_costs: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    without_gradient = (None,) * 10
    if grad_costs is None:
        return None, *without_gradient
    if not ctx.needs_grad:
        raise RuntimeError("rnnt_loss_forward must be called with needs_grad=True for a gradient.")
    if ctx.overwritten:
        raise RuntimeError(
            "`rnnt_loss` with `reuse_logits=True` can run backward only once: the first backward "
            "pass has put the gradient in the place of the logits."
        )
    logits, state, *indices, windows = ctx.saved_tensors
    problem = *indices, *ctx.options, windows
    if not ctx.reuse_logits:
        grad = torch.ops.asr_ascend.rnnt_loss_backward(grad_costs, logits, state, *problem)
        return grad, *without_gradient
    if torch.is_grad_enabled():
        raise RuntimeError(
            "`rnnt_loss` with `reuse_logits=True` can't run backward with create_graph=True: "
            'second derivatives need backend="reference".'
        )
    logits = logits.detach()
    torch.ops.asr_ascend.rnnt_loss_backward_(grad_costs, logits, state, *problem)
    ctx.overwritten = True
    return logits, *without_gradient


def _refuse_second_derivative(ctx: Any, *grads: Any) -> NoReturn:
    backend = "npu" if _is_on_npu(grads[0]) else "cpu"
    raise RuntimeError(
        f'`rnnt_loss` with backend="{backend}" has no second derivative; backend="reference" has.'
    )


torch.library.register_autograd(
    "asr_ascend::rnnt_loss_forward",
    _differentiate,
    setup_context=_save_for_backward,
    lib=_library,
)
torch.library.register_autograd(
    "asr_ascend::rnnt_loss_backward", _refuse_second_derivative, lib=_library
)


# vmap


def _refuse_vmap(info: Any, in_dims: Any, *args: Any) -> NoReturn:
    raise function_transforms.vmap_error("rnnt_loss")


for _name in ("rnnt_loss_forward", "rnnt_loss_backward", "rnnt_loss_backward_"):
    torch.library.register_vmap(f"asr_ascend::{_name}", _refuse_vmap, lib=_library)
