"""The losses of k2 and of fast_rnnt over a joiner's output, by our kernels.

Arguments, defaults and formulas are those of their public sources,
https://github.com/k2-fsa/k2/blob/master/k2/python/k2/rnnt_loss.py and
https://github.com/danpovey/fast_rnnt/blob/master/fast_rnnt/python/fast_rnnt/rnnt_loss.py, whose
older releases have a flag ``modified`` in the place of ``rnnt_type``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from asr_ascend.losses import checks
from asr_ascend.losses import rnnt_loss as our_loss
from asr_ascend.plugins.changes import Changes
from asr_ascend.plugins.values import reduced


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
        reduction = checks.checked_reduction(reduction)
        _check_type(rnnt_type, modified)
        B, T, U1, _ = logits.shape
        lengths = _lengths(symbols, boundary, T)
        if delay_penalty <= 0.0:
            return our_loss(
                logits, symbols, *lengths, termination_symbol, reduction=reduction, **options
            )
        labels = torch.nn.functional.pad(symbols, (0, U1 - symbols.shape[1]))
        frames = torch.arange(T, device=logits.device)[None, :, None].expand(B, T, U1)
        log_probs = _later_is_less(
            logits, labels[:, None].expand(B, T, U1), termination_symbol, frames * delay_penalty
        )
        costs = _of_two_symbols(log_probs, symbols, lengths, options)
        return reduced(costs - _earned(lengths, delay_penalty, costs), reduction)

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
        reduction = checks.checked_reduction(reduction)
        _check_type(rnnt_type, modified)
        if use_hat_loss:
            raise NotImplementedError("`use_hat_loss` must be False: no such loss is here.")
        B, T, S, _ = logits.shape
        lengths = _lengths(symbols, boundary, T)
        num_frames, num_labels = (length.to(logits.device) for length in lengths)
        frames = torch.arange(T, device=logits.device)[None, :, None].expand(B, T, S)
        held = (frames < num_frames[:, None, None]) & (ranges <= num_labels[:, None, None])
        rows = held.flatten().nonzero()[:, 0]
        last = ranges[..., -1].minimum(num_labels[:, None])
        band = torch.stack([ranges[..., 0], last], dim=-1)
        # A copy, which nobody else holds: the gradient may overwrite it.
        packed = logits.flatten(0, 2).index_select(0, rows)
        if delay_penalty <= 0.0:
            return our_loss(
                packed,
                symbols,
                *lengths,
                termination_symbol,
                reduction=reduction,
                band=band,
                reuse_logits=True,
                **options,
            )
        labels = torch.nn.functional.pad(symbols, (0, 1))
        labels = labels[:, None].expand(-1, T, -1).gather(2, ranges.clamp(max=symbols.shape[1]))
        penalty = frames.flatten()[rows] * delay_penalty
        log_probs = _later_is_less(packed, labels.flatten()[rows], termination_symbol, penalty)
        costs = _of_two_symbols(log_probs, symbols, lengths, options, band)
        return reduced(costs - _earned(lengths, delay_penalty, costs), reduction)

    return {"rnnt_loss": rnnt_loss, "rnnt_loss_pruned": rnnt_loss_pruned}


def _check_type(rnnt_type: str | bool, modified: bool) -> None:
    if modified or rnnt_type not in ("regular", False):
        shown = "modified" if modified or rnnt_type is True else rnnt_type
        raise NotImplementedError(
            f'`rnnt_type` must be "regular", since no other loss is here, but is "{shown}".'
        )


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


def _later_is_less(logits: Tensor, labels: Tensor, blank: int, penalty: Tensor) -> Tensor:
    """(..., 2): log-probabilities of blank, and of each cell's label less its penalty.

    The penalty of k2, ((T_b - 1) / 2 - t) * delay_penalty added, differs by what all labels of a
    sample share: see ``_earned``. So no log-probability is above 0.
    """
    chosen = torch.stack([torch.full_like(labels, blank), labels], dim=-1).long()
    log_probs = logits.gather(-1, chosen) - logits.logsumexp(-1, keepdim=True)
    lost = torch.stack([torch.zeros_like(penalty), penalty], dim=-1)
    return log_probs - lost.to(log_probs.dtype)


def _earned(lengths: tuple[Tensor, Tensor], delay_penalty: float, costs: Tensor) -> Tensor:
    """(B,): (T_b - 1) / 2 * delay_penalty for each of the U_b labels."""
    num_frames, num_labels = (length.to(costs) for length in lengths)
    return (num_frames - 1) / 2 * num_labels * delay_penalty


def _of_two_symbols(
    log_probs: Tensor,
    symbols: Tensor,
    lengths: tuple[Tensor, Tensor],
    options: dict[str, Any],
    band: Tensor | None = None,
) -> Tensor:
    """Costs where symbol 0 is blank and symbol 1 is each cell's label."""
    return our_loss(
        log_probs,
        torch.ones_like(symbols),
        *lengths,
        0,
        reduction="none",
        fused_log_softmax=False,
        band=band,
        **options,
    )
