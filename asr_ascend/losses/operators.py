"""The torch operators of the loss: schema, fake, autograd, vmap; and how they are called.

Python owns the schemas; a backend only implements them for its device. Shapes and dtypes were
checked by the caller (``problem.py``), values are checked by the implementation, out of sight of
torch.compile.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

from asr_ascend.losses import checks, function_transforms
from asr_ascend.losses.problem import Problem

# The fields of Problem.
_PROBLEM = (
    "Tensor targets, Tensor logit_lengths, Tensor target_lengths, "
    "SymInt blank, float clamp, bool fused_log_softmax, "
    "float fastemit_lambda, float delay_penalty, bool blank_in_targets, "
    "Tensor? emission_windows, Tensor? band"
)

library = torch.library.Library("asr_ascend", "DEF")
library.define(
    f"rnnt_loss_forward(Tensor logits, {_PROBLEM}, bool needs_grad, bool reuse_logits)"
    " -> (Tensor costs, Tensor state)"
)
library.define(
    f"rnnt_loss_backward(Tensor grad_costs, Tensor logits, Tensor state, {_PROBLEM}) -> Tensor"
)
library.define(
    f"rnnt_loss_backward_(Tensor grad_costs, Tensor(a!) logits, Tensor state, {_PROBLEM}) -> ()"
)
# Costs and gradient by one kernel, and what the latest calls found: of an NPU alone.
library.define(f"rnnt_loss_fused(Tensor logits, {_PROBLEM}) -> (Tensor costs, Tensor grad)")
library.define("rnnt_loss_take_statuses(Device device, int count) -> Tensor[]")
library.define(
    "rnnt_alignment(Tensor logits, Tensor targets, Tensor logit_lengths, Tensor target_lengths, "
    "SymInt blank, bool fused_log_softmax, bool blank_in_targets, Tensor? band)"
    " -> (Tensor frames, Tensor log_probs)"
)

# Given logits, B, needs_grad and band: costs and state, uninitialised, as a device's kernel makes
# them.
NewOutputs = Callable[[Tensor, int, bool, Tensor | None], tuple[Tensor, Tensor]]
_new_outputs: dict[str, NewOutputs] = {}


def register_outputs(device_type: str, new_outputs: NewOutputs) -> None:
    """Registers what makes costs and state of ``rnnt_loss_forward`` on a type of device."""
    _new_outputs[device_type] = new_outputs


def costs(logits: Tensor, problem: Problem, reuse_logits: bool) -> Tensor:
    """Computes costs (B,) of packed or padded logits, which autograd can differentiate.

    They are float64 on the CPU.
    """
    function_transforms.refuse_func_gradient("rnnt_loss", logits)
    needs_grad = logits.requires_grad and torch.is_grad_enabled()
    result: Tensor
    result, _ = torch.ops.asr_ascend.rnnt_loss_forward(logits, *problem, needs_grad, reuse_logits)
    return result


@torch.no_grad()
def costs_and_gradient(
    logits: Tensor, problem: Problem, reuse_logits: bool
) -> tuple[Tensor, Tensor]:
    """Computes costs (B,) as ``costs`` does, and the gradient of their sum.

    The gradient is like ``logits``, or in their place.
    """
    logits = logits.detach()
    result, state = torch.ops.asr_ascend.rnnt_loss_forward(logits, *problem, True, reuse_logits)
    grad_costs = torch.ones_like(result)
    if reuse_logits:
        torch.ops.asr_ascend.rnnt_loss_backward_(grad_costs, logits, state, *problem)
        return result, logits
    return result, torch.ops.asr_ascend.rnnt_loss_backward(grad_costs, logits, state, *problem)


@torch.no_grad()
def costs_and_gradient_fused(logits: Tensor, problem: Problem) -> tuple[Tensor, Tensor]:
    """Computes the same by one kernel, which has no FastEmit."""
    result, grad = torch.ops.asr_ascend.rnnt_loss_fused(logits.detach(), *problem)
    return result, grad


def best_paths(logits: Tensor, problem: Problem) -> tuple[Tensor, Tensor]:
    """Finds the frames, like ``targets``, and the log-probability (B,) of likeliest alignments."""
    frames, log_probs = torch.ops.asr_ascend.rnnt_alignment(
        logits,
        *problem[:3],
        problem.blank,
        problem.fused_log_softmax,
        problem.blank_in_targets,
        problem.band,
    )
    return frames, log_probs


# Fake: shapes and dtypes without values, for torch.compile and torch.export.


@torch.library.register_fake("asr_ascend::rnnt_loss_forward", lib=library)
def _forward_fake(logits: Tensor, targets: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    *fields, needs_grad, _ = arguments
    band = Problem(targets, *fields).band
    return _new_outputs[logits.device.type](logits, targets.shape[0], needs_grad, band)


@torch.library.register_fake("asr_ascend::rnnt_loss_backward", lib=library)
def _backward_fake(grad_costs: Tensor, logits: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


@torch.library.register_fake("asr_ascend::rnnt_loss_backward_", lib=library)
def _backward_in_place_fake(grad_costs: Tensor, logits: Tensor, *_: Any) -> None:
    return None


@torch.library.register_fake("asr_ascend::rnnt_loss_fused", lib=library)
def _fused_fake(logits: Tensor, targets: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    result, _ = _new_outputs[logits.device.type](logits, targets.shape[0], False, None)
    return result, torch.empty_like(logits, memory_format=torch.contiguous_format)


@torch.library.register_fake("asr_ascend::rnnt_alignment", lib=library)
def new_paths(logits: Tensor, targets: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    """Returns frames and log-probabilities of ``rnnt_alignment``, uninitialised."""
    frames = targets.new_empty(targets.shape, dtype=torch.int64)
    return frames, logits.new_empty(targets.shape[0], dtype=torch.float64)


# Autograd


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    logits, *fields, needs_grad, reuse = inputs
    tensors, ctx.options = Problem._make(fields).split()
    _, state = output
    ctx.mark_non_differentiable(state)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(logits, state, *tensors)
    ctx.needs_grad = needs_grad
    ctx.reuse_logits = reuse
    ctx.overwritten = False


def _differentiate(ctx: Any, grad_costs: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    without_gradient = (None,) * (len(Problem._fields) + 2)
    if grad_costs is None:
        return None, *without_gradient
    if not ctx.needs_grad:
        raise RuntimeError("rnnt_loss_forward must be called with needs_grad=True for a gradient.")
    checks.check_not_overwritten("rnnt_loss", ctx.overwritten)
    logits, state, *tensors = ctx.saved_tensors
    problem = Problem.joined(tuple(tensors), ctx.options)
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
    backend = grads[0].device.type
    raise RuntimeError(
        f'`rnnt_loss` with backend="{backend}" has no second derivative; backend="reference" has.'
    )


torch.library.register_autograd(
    "asr_ascend::rnnt_loss_forward",
    _differentiate,
    setup_context=_save_for_backward,
    lib=library,
)
torch.library.register_autograd(
    "asr_ascend::rnnt_loss_backward", _refuse_second_derivative, lib=library
)


# vmap


def _refuse_vmap(function: str) -> Callable[..., NoReturn]:
    def refuse(info: Any, in_dims: Any, *args: Any) -> NoReturn:
        raise function_transforms.vmap_error(function)

    return refuse


for _name, _function in (
    ("rnnt_loss_forward", "rnnt_loss"),
    ("rnnt_loss_backward", "rnnt_loss"),
    ("rnnt_loss_backward_", "rnnt_loss"),
    ("rnnt_alignment", "rnnt_alignment"),
):
    torch.library.register_vmap(f"asr_ascend::{_name}", _refuse_vmap(_function), lib=library)
