"""NeMo: a loss that its configs name, ``loss_name: asr_ascend``.

How a loss is resolved, and what FastEmit and the clamp do, is NeMo's public source:
https://github.com/NVIDIA/NeMo/blob/main/nemo/collections/asr/losses/rnnt.py and
https://github.com/NVIDIA/NeMo/blob/main/nemo/collections/asr/parts/numba/rnnt_loss/rnnt_pytorch.py.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch
from torch import Tensor

from asr_ascend.losses import checks, rnnt_loss
from asr_ascend.losses.problem import reduced
from asr_ascend.plugins.changes import Changes, check_arguments
from asr_ascend.plugins.values import value_with_gradient_of

LOSS_NAME = "asr_ascend"
_MODULE = "nemo.collections.asr.losses.rnnt"
_KEYS = ("fastemit_lambda", "clamp")


def install(
    changes: Changes,
    *,
    blank_in_targets: str = "error",
    validate: bool = False,
    reuse_logits: bool = False,
) -> None:
    """Adds the loss ``asr_ascend`` to those that ``model.loss.loss_name`` can choose.

    ``model.loss.asr_ascend_kwargs`` takes ``fastemit_lambda`` and ``clamp``. NeMo then hands over
    half-precision logits as they are, without a float32 copy.

    Args:
        blank_in_targets, validate, reuse_logits: as for ``rnnt_loss``.
    """
    options = {
        "blank_in_targets": blank_in_targets,
        "validate": validate,
        "reuse_logits": reuse_logits,
    }
    module = importlib.import_module(_MODULE)
    theirs = module.resolve_rnnt_loss
    check_arguments(
        f"{_MODULE}.resolve_rnnt_loss", theirs, ("loss_name", "blank_idx", "loss_kwargs")
    )
    config = module.RNNTLossConfig(
        loss_name=LOSS_NAME, lib_name="asr_ascend", is_available=True, force_float32=False
    )

    @functools.wraps(theirs)
    def resolve_rnnt_loss(loss_name: str, blank_idx: int, loss_kwargs: Any = None) -> Any:
        if loss_name != LOSS_NAME:
            return theirs(loss_name, blank_idx, loss_kwargs)
        return _loss(changes, blank_idx, loss_kwargs, options)

    changes.set_item(module.RNNT_LOSS_RESOLVER, f"{_MODULE}.RNNT_LOSS_RESOLVER", LOSS_NAME, config)
    changes.replace([(module, "resolve_rnnt_loss")], resolve_rnnt_loss)


def _loss(changes: Changes, blank: int, loss_kwargs: Any, options: dict[str, Any]) -> NemoLoss:
    given = dict(loss_kwargs or {})
    unknown = sorted(set(given) - set(_KEYS))
    if unknown:
        raise ValueError(
            f"`{LOSS_NAME}_kwargs` must have no keys but {' and '.join(_KEYS)}, "
            f"but has {', '.join(unknown)}."
        )
    return NemoLoss(blank, reduction="none", count=changes.count, options=options, **given)


class NemoLoss(torch.nn.Module):
    """What NeMo's ``RNNTLoss`` calls: its ``reduction`` is set by the caller between calls.

    Args:
        blank: index of blank.
        reduction: "mean", "sum", "none" or None.
        fastemit_lambda: at least 0. As in NeMo, the value is (1 + fastemit_lambda) times the cost;
            the gradient is that of ``rnnt_loss``.
        clamp: above 0, each component of a cost's gradient is clipped before the upstream gradient
            multiplies it, as on NeMo's GPUs. On a CPU NeMo clips afterwards.
        count: called with every call.
        options: of ``rnnt_loss``.
    """

    def __init__(
        self,
        blank: int,
        reduction: str | None,
        fastemit_lambda: float = 0.0,
        clamp: float = -1.0,
        *,
        count: Any = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.blank = blank
        self.reduction = reduction
        self.fastemit_lambda = float(checks.as_float("fastemit_lambda", fastemit_lambda))
        self.clamp = float(checks.as_float("clamp", clamp))
        self._count = count
        self._options = dict(options or {})

    def forward(self, acts: Tensor, labels: Tensor, act_lens: Tensor, label_lens: Tensor) -> Tensor:
        """Costs (B,), or their mean or sum; ``acts`` are logits (B, T, U + 1, V)."""
        if self._count is not None:
            self._count()
        reduction = checks.checked_reduction(self.reduction)
        costs = rnnt_loss(
            acts,
            labels,
            act_lens,
            label_lens,
            self.blank,
            self.clamp,
            "none",
            fastemit_lambda=self.fastemit_lambda,
            **self._options,
        )
        if self.fastemit_lambda > 0.0:
            costs = value_with_gradient_of(costs, costs * (1.0 + self.fastemit_lambda))
        return reduced(costs, reduction)
