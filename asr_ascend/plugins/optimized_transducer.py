"""optimized_transducer: the loss over packed logits of three icefall recipes.

Names, arguments and defaults are those of its public source, https://github.com/csukuangfj/
optimized_transducer/blob/master/optimized_transducer/python/optimized_transducer/transducer_loss.py.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from asr_ascend.losses import checks
from asr_ascend.losses import rnnt_loss as our_loss
from asr_ascend.plugins.changes import Changes, check_arguments, owners

_ARGUMENTS = (
    "logits",
    "targets",
    "logit_lengths",
    "target_lengths",
    "blank",
    "from_log_softmax",
    "one_sym_per_frame",
    "reduction",
)


def install(
    changes: Changes,
    *,
    blank_in_targets: str = "error",
    validate: bool = False,
    reuse_logits: bool = False,
) -> None:
    """Makes ``optimized_transducer`` importable, or replaces both names of the real one.

    The logits stay what they are unless ``reuse_logits``; there they are always overwritten.
    ``one_sym_per_frame=True`` ends with a blank in the last frame, as there
    (https://github.com/csukuangfj/optimized_transducer/blob/master/optimized_transducer/csrc/cpu.cc):
    labels are in all frames but that one.

    Args:
        blank_in_targets, validate: as for ``rnnt_loss``.
        reuse_logits: as for ``rnnt_loss``; log-probabilities are kept in any case.
    """
    options = {"blank_in_targets": blank_in_targets, "validate": validate}
    names = _names(changes, options, reuse_logits)
    if changes.is_stand_in:
        changes.add_module("optimized_transducer", names)
        return
    package = importlib.import_module("optimized_transducer")
    shown = "optimized_transducer.transducer_loss"
    check_arguments(shown, package.transducer_loss, _ARGUMENTS)
    for name, new in names.items():
        changes.replace(owners(name, "optimized_transducer", shown), new)


def _names(changes: Changes, options: dict[str, Any], reuse_logits: bool) -> dict[str, Any]:
    def transducer_loss(
        logits: Tensor,
        targets: Tensor,
        logit_lengths: Tensor,
        target_lengths: Tensor,
        blank: int,
        from_log_softmax: bool,
        one_sym_per_frame: bool = False,
        reduction: str | None = "mean",
    ) -> Tensor:
        """RNN-T loss of packed logits (N, V), or of log-probabilities if ``from_log_softmax``."""
        changes.count()
        checks.check_flag("from_log_softmax", from_log_softmax)
        checks.check_flag("one_sym_per_frame", one_sym_per_frame)
        topology: dict[str, Any] = {}
        if one_sym_per_frame:
            topology = {
                "topology": "one_symbol_per_frame",
                "emission_windows": _all_frames_but_the_last(targets, logit_lengths),
            }
        return our_loss(
            logits,
            targets,
            logit_lengths,
            target_lengths,
            blank,
            reduction=reduction,
            fused_log_softmax=not from_log_softmax,
            # The backward pass of a log-softmax needs its output.
            reuse_logits=reuse_logits and not from_log_softmax,
            **topology,
            **options,
        )

    class TransducerLoss(torch.nn.Module):
        """:func:`transducer_loss` as a module."""

        def __init__(self, blank: int, reduction: str | None = "mean") -> None:
            super().__init__()
            self.blank = blank
            self.reduction = reduction

        def forward(
            self,
            logits: Tensor,
            targets: Tensor,
            logit_lengths: Tensor,
            target_lengths: Tensor,
            from_log_softmax: bool,
            one_sym_per_frame: bool = False,
        ) -> Tensor:
            return transducer_loss(
                logits,
                targets,
                logit_lengths,
                target_lengths,
                self.blank,
                from_log_softmax,
                one_sym_per_frame,
                self.reduction,
            )

    return {"transducer_loss": transducer_loss, "TransducerLoss": TransducerLoss}


def _all_frames_but_the_last(targets: Tensor, logit_lengths: Tensor) -> Tensor:
    """(B, columns of ``targets``, 2) windows of labels."""
    last = (logit_lengths.to(targets.device, torch.int64) - 2)[:, None].expand(targets.shape)
    return torch.stack([torch.zeros_like(last), last], dim=-1)
