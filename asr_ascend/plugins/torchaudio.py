"""torchaudio: our kernel behind its operator ``torchaudio::rnnt_loss_forward``, or its names.

The operator's schema and what it returns are those of torchaudio's public source,
https://github.com/pytorch/audio/blob/v2.11.0/src/libtorchaudio/rnnt/compute.cpp.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch
from torch import Tensor

from asr_ascend.losses import function_transforms, rnnt_loss, rnnt_loss_and_grad
from asr_ascend.plugins.changes import Changes, check_arguments

_OPERATOR = "torchaudio::rnnt_loss_forward"
_ARGUMENTS = (
    "logits",
    "targets",
    "logit_lengths",
    "target_lengths",
    "blank",
    "clamp",
    "reduction",
    "fused_log_softmax",
)


def install(
    changes: Changes,
    *,
    cpu: bool = False,
    patch: bool = False,
    blank_in_targets: str = "error",
    validate: bool = False,
) -> None:
    """Puts our kernel behind torchaudio's operator, and on request our function behind its names.

    The operator serves NPU tensors always. It also gets a shape function for torch.compile and a
    gradient of its own: without that, a loss in TorchScript has none. Like torchaudio's, it makes
    the padded gradient in the forward pass, and its cost has the dtype of the logits.

    Args:
        cpu: let the operator serve tensors on the CPU, too.
        patch: replace ``rnnt_loss`` in ``torchaudio.functional``, in its inner module and in
            ``torchaudio.transforms``. Then the gradient is made in the backward pass, the cost of
            half precision is float32, and a second derivative is an error instead of 0. It serves
            the CPU and the NPU; other devices go on to torchaudio's. TorchScript can't take it.
        blank_in_targets, validate: as for ``rnnt_loss``.
    """
    importlib.import_module("torchaudio")
    options = {"blank_in_targets": blank_in_targets, "validate": validate}
    if hasattr(torch.ops.torchaudio, "rnnt_loss_forward"):
        _register(changes, options, ("PrivateUse1", "CPU") if cpu else ("PrivateUse1",))
    elif not patch:
        raise RuntimeError(f"`{_OPERATOR}` must exist, but torchaudio has not loaded its library.")
    if patch:
        _patch(changes, options)


def _register(changes: Changes, options: dict[str, Any], keys: tuple[str, ...]) -> None:
    def forward(
        logits: Tensor,
        targets: Tensor,
        logit_lengths: Tensor,
        target_lengths: Tensor,
        blank: int,
        clamp: float,
        fused_log_softmax: bool,
    ) -> tuple[Tensor, Tensor]:
        changes.count()
        arguments = (targets, logit_lengths, target_lengths, blank, clamp, fused_log_softmax)
        costs, grad = rnnt_loss_and_grad(logits, *arguments, **options)
        return costs.to(logits.dtype), grad

    library = torch.library.Library("torchaudio", "IMPL")
    for key in keys:
        library.impl("rnnt_loss_forward", forward, key, allow_override=True)
    torch.library.register_fake(_OPERATOR, _fake, lib=library, allow_override=True)
    torch.library.register_autograd(_OPERATOR, _backward, setup_context=_keep_gradient, lib=library)
    changes.on_undo(f"{_OPERATOR} ({', '.join(keys)})", library._destroy)


def _fake(logits: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return logits.new_empty(logits.shape[0]), torch.empty_like(logits)


def _keep_gradient(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1])


def _backward(ctx: Any, grad_costs: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    (grad,) = ctx.saved_tensors
    return grad * grad_costs.view(-1, 1, 1, 1), None, None, None, None, None, None


def _patch(changes: Changes, options: dict[str, Any]) -> None:
    package = importlib.import_module("torchaudio.functional")
    inner = importlib.import_module("torchaudio.functional.functional")
    transforms = importlib.import_module("torchaudio.transforms._transforms")
    theirs = package.rnnt_loss
    check_arguments("torchaudio.functional.rnnt_loss", theirs, _ARGUMENTS)

    @functools.wraps(theirs)
    def loss(
        logits: Tensor,
        targets: Tensor,
        logit_lengths: Tensor,
        target_lengths: Tensor,
        blank: int = -1,
        clamp: float = -1,
        reduction: str = "mean",
        fused_log_softmax: bool = True,
    ) -> Tensor:
        arguments = (
            logits,
            targets,
            logit_lengths,
            target_lengths,
            blank,
            clamp,
            reduction,
            fused_log_softmax,
        )
        if logits.device.type not in ("cpu", "npu"):
            return theirs(*arguments)
        changes.count()
        return rnnt_loss(*arguments, **options)

    function_transforms.refuse_script(loss, 'install("torchaudio", cpu=True) can be')
    changes.replace([(owner, "rnnt_loss") for owner in (package, inner, transforms)], loss)
