"""warprnnt_pytorch: a stand-in for the module that ESPnet imports, and NeMo for ``warprnnt``.

Names, arguments, defaults and shapes are those of its public sources:
https://github.com/HawkAaron/warp-transducer/blob/master/pytorch_binding/warprnnt_pytorch/__init__.py
https://github.com/csukuangfj/warp-transducer/blob/master/pytorch_binding/warprnnt_pytorch/__init__.py
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from asr_ascend.losses import checks
from asr_ascend.losses import rnnt_loss as our_loss
from asr_ascend.plugins.changes import Changes, check_arguments

# Of `fastemit_lambda` where a caller gives none.
_FORKS = {"HawkAaron": 0.0, "csukuangfj": 0.001}


def install(
    changes: Changes,
    *,
    fork: str = "HawkAaron",
    blank_in_targets: str = "error",
    validate: bool = False,
    reuse_logits: bool = False,
) -> None:
    """Makes ``warprnnt_pytorch`` importable, or replaces both names of the real one.

    Install it before the framework is imported. ``blank`` is 0 by default, as there; "sum" and
    "mean" have shape (1,); "mean" divides by B, whatever their docstring says; the input is logits.

    Args:
        fork: "HawkAaron", or "csukuangfj", whose ``fastemit_lambda`` is 0.001 by default. Either
            order of its arguments after ``blank`` is understood for both.
        blank_in_targets, validate, reuse_logits: as for ``rnnt_loss``.
    """
    if fork not in _FORKS:
        raise ValueError(f'`fork` must be "HawkAaron" or "csukuangfj", but is {fork!r}.')
    options = {
        "blank_in_targets": blank_in_targets,
        "validate": validate,
        "reuse_logits": reuse_logits,
    }
    names = _names(changes, _FORKS[fork], options)
    if changes.is_stand_in:
        changes.add_module("warprnnt_pytorch", names)
        return
    package = importlib.import_module("warprnnt_pytorch")
    check_arguments(
        "warprnnt_pytorch.rnnt_loss",
        package.rnnt_loss,
        ("acts", "labels", "act_lens", "label_lens", "blank", "reduction"),
    )
    for name, new in names.items():
        changes.replace([(package, name)], new)


def _names(changes: Changes, default_lambda: float, options: dict[str, Any]) -> dict[str, Any]:
    def rnnt_loss(
        acts: Tensor,
        labels: Tensor,
        act_lens: Tensor,
        label_lens: Tensor,
        blank: int = 0,
        reduction: str | None = "mean",
        fastemit_lambda: float = default_lambda,
    ) -> Tensor:
        """RNN-T loss of logits ``acts`` (B, T, U + 1, V); (1,), or (B,) for "none" and None."""
        changes.count()
        reduction = checks.checked_reduction(reduction)
        loss = our_loss(
            acts,
            labels,
            act_lens,
            label_lens,
            blank,
            reduction=reduction,
            fastemit_lambda=fastemit_lambda,
            **options,
        )
        return loss if reduction == "none" else loss.unsqueeze(-1)

    class RNNTLoss(torch.nn.Module):
        """:func:`rnnt_loss` as a module, whose ``reduction`` may be changed between calls."""

        def __init__(
            self,
            blank: int = 0,
            *others: Any,
            reduction: str | None = "mean",
            fastemit_lambda: float = default_lambda,
        ) -> None:
            super().__init__()
            # The forks differ in their order: a reduction is a string, a lambda a number.
            for other in others:
                if other is None or isinstance(other, str):
                    reduction = other
                else:
                    fastemit_lambda = checks.as_float("fastemit_lambda", other)
            self.blank = checks.as_int("blank", blank)
            self.reduction = reduction
            self.fastemit_lambda = fastemit_lambda

        def forward(
            self, acts: Tensor, labels: Tensor, act_lens: Tensor, label_lens: Tensor
        ) -> Tensor:
            return rnnt_loss(
                acts, labels, act_lens, label_lens, self.blank, self.reduction, self.fastemit_lambda
            )

    # Where pickle looks for the class of a saved module.
    RNNTLoss.__module__, RNNTLoss.__qualname__ = "warprnnt_pytorch", "RNNTLoss"
    return {"rnnt_loss": rnnt_loss, "RNNTLoss": RNNTLoss}
