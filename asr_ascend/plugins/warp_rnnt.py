"""warp_rnnt: the function that FunASR calls, over log-probabilities.

Arguments, defaults and layouts are those of its public source,
https://github.com/1ytic/warp-rnnt/blob/master/pytorch_binding/warp_rnnt/__init__.py.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from asr_ascend.losses import checks
from asr_ascend.losses import rnnt_loss as our_loss
from asr_ascend.losses.problem import reduced
from asr_ascend.plugins.changes import Changes, check_arguments

_ARGUMENTS = (
    "log_probs",
    "labels",
    "frames_lengths",
    "labels_lengths",
    "average_frames",
    "reduction",
    "blank",
    "gather",
    "fastemit_lambda",
    "compact",
)


def install(changes: Changes, *, blank_in_targets: str = "error", validate: bool = False) -> None:
    """Makes ``warp_rnnt`` importable, or replaces ``rnnt_loss`` of the real one.

    ``reduction`` is "none" by default, as there. ``average_frames`` divides each cost by its
    frames before the reduction. ``gather`` changes nothing: the gradient is made of the entries
    of blank and label in any case. ``compact`` takes packed rows (N, V) and flat labels.

    Args:
        blank_in_targets, validate: as for ``rnnt_loss``.
    """
    options = {"blank_in_targets": blank_in_targets, "validate": validate}
    loss = _loss(changes, options)
    if changes.is_stand_in:
        changes.add_module("warp_rnnt", {"rnnt_loss": loss})
        return
    package = importlib.import_module("warp_rnnt")
    check_arguments("warp_rnnt.rnnt_loss", package.rnnt_loss, _ARGUMENTS)
    changes.replace([(package, "rnnt_loss")], loss)


def _loss(changes: Changes, options: dict[str, Any]) -> Any:
    def rnnt_loss(
        log_probs: Tensor,
        labels: Tensor,
        frames_lengths: Tensor,
        labels_lengths: Tensor,
        average_frames: bool = False,
        reduction: str | None = "none",
        blank: int = 0,
        gather: bool = False,
        fastemit_lambda: float = 0.0,
        compact: bool = False,
    ) -> Tensor:
        """RNN-T loss of log-probabilities (B, T, U + 1, V), or (N, V) with ``compact``."""
        changes.count()
        checks.check_flag("compact", compact)
        checks.check_flag("gather", gather)
        reduction = checks.checked_reduction(reduction)
        costs = our_loss(
            log_probs,
            padded_labels(labels, labels_lengths) if compact else labels,
            frames_lengths,
            labels_lengths,
            blank,
            reduction="none",
            fused_log_softmax=False,
            fastemit_lambda=fastemit_lambda,
            **options,
        )
        if average_frames:
            costs = costs / frames_lengths.to(costs)
        return reduced(costs, reduction)

    return rnnt_loss


def padded_labels(labels: Tensor, lengths: Tensor) -> Tensor:
    """Flat labels (sum of U_b,) as (B, max U_b), padded with 0; waits for lengths on a device."""
    checks.check_index("labels", labels)
    if labels.dim() != 1:
        raise ValueError(
            "`labels` must be (sum of labels_lengths,) if `compact` is True, "
            f"but has shape {checks.shape_of(labels)}."
        )
    checks.check_index("labels_lengths", lengths)
    total, longest = int(lengths.sum()), int(lengths.max()) if len(lengths) else 0
    if total != len(labels) or bool((lengths < 0).any()):
        raise ValueError(
            f"`labels` must have sum(labels_lengths) = {total} elements, but has {len(labels)}."
        )
    column = torch.arange(longest, device=labels.device)
    padded = labels.new_zeros(len(lengths), longest)
    return padded.masked_scatter(column < lengths.to(labels.device)[:, None], labels)
