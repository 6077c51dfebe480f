"""The losses of k2 and of fast_rnnt over a joiner's output, by our kernels.

Arguments, defaults and formulas are those of their public sources,
https://github.com/k2-fsa/k2/blob/master/k2/python/k2/rnnt_loss.py and
https://github.com/danpovey/fast_rnnt/blob/master/fast_rnnt/python/fast_rnnt/rnnt_loss.py, whose
older releases have a flag ``modified`` in the place of ``rnnt_type``. Their "modified" is one
symbol per frame. Their "constrained" adds to each label the log-probability of the blank after it
in the same frame, which no loss here does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from asr_ascend.losses import checks
from asr_ascend.losses import rnnt_loss as our_loss
from asr_ascend.plugins.changes import Changes


def make_losses(changes: Changes, options: dict[str, Any]) -> dict[str, Any]:
    """``rnnt_loss`` and ``rnnt_loss_pruned`` with what goes to our loss with every call."""

    def rnnt_loss(
        logits: Tensor,
        symbols: Tensor,
        termination_symbol: int,
        boundary: Tensor | None = None,
        rnnt_type: str | bool = "regular",
        delay_penalty: float = 0.0,
        reduction: str | None = "mean",
        modified: bool = False,
    ) -> Tensor:
        """RNN-T loss of logits (B, T, S + 1, C)."""
        changes.count()
        topology = _topology(rnnt_type, modified)
        lengths = _lengths(symbols, boundary, logits.shape[1])
        return our_loss(
            logits,
            symbols,
            *lengths,
            termination_symbol,
            reduction=reduction,
            # k2 takes no notice of one below 0.
            delay_penalty=max(0.0, delay_penalty),
            topology=topology,
            **options,
        )

    def rnnt_loss_pruned(
        logits: Tensor,
        symbols: Tensor,
        ranges: Tensor,
        termination_symbol: int,
        boundary: Tensor | None = None,
        rnnt_type: str | bool = "regular",
        delay_penalty: float = 0.0,
        reduction: str | None = "mean",
        use_hat_loss: bool = False,
        modified: bool = False,
    ) -> Tensor:
        """RNN-T loss of the logits (B, T, s_range, C) of some columns of each frame."""
        changes.count()
        topology = _topology(rnnt_type, modified)
        if use_hat_loss:
            raise NotImplementedError("`use_hat_loss` must be False: no such loss is here.")
        if logits.dim() != 4 or logits.shape[:3] != ranges.shape:
            raise ValueError(
                "`logits` must be (B, T, s_range, C) and `ranges` (B, T, s_range), but they have "
                f"shapes {checks.shape_of(logits)} and {checks.shape_of(ranges)}."
            )
        lengths = _lengths(symbols, boundary, logits.shape[1])
        num_frames, num_labels = (length.to(ranges.device)[:, None] for length in lengths)
        frame = torch.arange(ranges.shape[1], device=ranges.device)
        held = (frame < num_frames)[..., None] & (ranges <= num_labels[..., None])
        last = ranges[..., -1].minimum(num_labels)
        # A copy, which nobody else holds: the gradient may overwrite it.
        rows = logits.flatten(0, 2).index_select(0, held.flatten().nonzero()[:, 0])
        return our_loss(
            rows,
            symbols,
            *lengths,
            termination_symbol,
            reduction=reduction,
            delay_penalty=max(0.0, delay_penalty),
            band=torch.stack([ranges[..., 0], last], dim=-1),
            reuse_logits=True,
            topology=topology,
            **options,
        )

    return {"rnnt_loss": rnnt_loss, "rnnt_loss_pruned": rnnt_loss_pruned}


def _topology(rnnt_type: str | bool, modified: bool) -> str:
    """Ours for theirs."""
    if rnnt_type not in ("regular", "modified", False, True):
        raise NotImplementedError(
            '`rnnt_type` must be "regular" or "modified", since no other loss is here, '
            f'but is "{rnnt_type}".'
        )
    is_modified = modified or rnnt_type in ("modified", True)
    return "one_symbol_per_frame" if is_modified else "regular"


def _lengths(symbols: Tensor, boundary: Tensor | None, frames: int) -> tuple[Tensor, Tensor]:
    """Frames and labels of each sample."""
    if boundary is None:
        B, U = symbols.shape
        return torch.full((B,), frames), torch.full((B,), U)
    checks.check_index("boundary", boundary)
    if boundary.shape != (len(symbols), 4):
        raise ValueError(
            f"`boundary` must be ({len(symbols)}, 4), but has shape {checks.shape_of(boundary)}."
        )
    if boundary.device.type == "cpu" and bool((boundary[:, :2] != 0).any()):
        raise ValueError("`boundary` must begin at symbol 0 and frame 0 of every sample.")
    return boundary[:, 3], boundary[:, 2]
