"""Rows collapsed to blank, label and the rest, and the gradient's way back, a block at a time.

The mathematics are in distillation.py.
"""

from typing import Any

import torch
from torch import Tensor

from asr_ascend.losses import checks, layout

# Columns of collapsed log-probabilities.
BLANK, LABEL, REST = range(3)


def row_labels(
    num_rows: int,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    band: Tensor | None = None,
) -> Tensor:
    """Returns the label that each packed row may give, (N,) int64.

    It is -1 in the last column of a lattice. A row where a band ends has its label too, though no
    alignment uses it.
    """
    device = targets.device
    cells = layout.packed_cells(num_rows, logit_lengths, target_lengths, device, band)
    sample, _, column = cells
    padded = torch.nn.functional.pad(targets.to(torch.int64), (0, 1), value=-1)
    return padded[sample, column].where(column < target_lengths.to(device)[sample], -1)


def collapse(logits: Tensor, labels: Tensor, blank: int) -> tuple[Tensor, Tensor]:
    """Computes log-probabilities (n, 3) of a block, and the logarithm (n,) of the rest's sum."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)
    none = float("-inf")
    label_index = labels.clamp(min=0)[:, None]
    blank_logit = logits[:, blank].clone()
    label_logit = logits.gather(1, label_index)[:, 0].masked_fill(labels < 0, none)
    # A row without a label hides blank twice.
    logits.scatter_(1, label_index.where(labels[:, None] >= 0, blank), none)
    logits[:, blank] = none
    rest = logits.logsumexp(1)
    classes = torch.stack([blank_logit, label_logit, rest], dim=1)
    log_norm = classes.logsumexp(1, keepdim=True)
    log_norm = log_norm.masked_fill(log_norm == float("inf"), float("nan"))
    return classes - log_norm, rest


class Collapse(torch.autograd.Function):
    """Three log-probabilities per row; the gradient is made block by block, in place if asked."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, blank: int, block_rows: int, reuse_logits: bool
    ) -> Tensor:
        """Computes log-probabilities (N, 3) of blank, label and rest, block by block."""
        dtype = torch.promote_types(logits.dtype, torch.float32)
        log_probs = logits.new_empty(len(logits), 3, dtype=dtype)
        rest = logits.new_empty(len(logits), dtype=dtype)
        for rows in layout.row_blocks(len(logits), block_rows):
            log_probs[rows], rest[rows] = collapse(logits[rows], labels[rows], blank)
        ctx.save_for_backward(logits, labels, log_probs, rest)
        ctx.options = blank, block_rows, reuse_logits
        ctx.overwritten = False
        return log_probs

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Computes the gradient of the logits, block by block.

        Raises:
            RuntimeError: create_graph=True, or a second backward pass with ``reuse_logits``.
        """
        if torch.is_grad_enabled():
            # once_differentiable lets it pass where `upstream` has no graph: the gradient would be
            # a constant, and what depends on it would lose its derivative silently.
            raise RuntimeError(
                "`collapsed_log_probs` can't run backward with create_graph=True: it has no second "
                "derivative."
            )
        checks.check_not_overwritten("collapsed_log_probs", ctx.overwritten)
        logits, labels, log_probs, rest = ctx.saved_tensors
        blank, block_rows, reuse_logits = ctx.options
        logits = logits.detach()
        grad = logits if reuse_logits else torch.empty_like(logits)
        ctx.overwritten = reuse_logits
        own = upstream - log_probs.exp() * upstream.sum(1, keepdim=True)
        # exp(-inf - 0) is the 0 that exp(-inf - -inf) should be.
        shift = rest.masked_fill(rest == float("-inf"), 0.0)
        for rows in layout.row_blocks(len(logits), block_rows):
            _write_gradient(grad[rows], logits[rows], shift[rows], own[rows], labels[rows], blank)
        return grad, None, None, None, None


def _write_gradient(
    grad: Tensor, logits: Tensor, shift: Tensor, own: Tensor, labels: Tensor, blank: int
) -> None:
    """Fills a block's gradient, which may lie where the logits do."""
    direct = grad.dtype == own.dtype
    work = torch.sub(logits, shift[:, None], out=grad if direct else None)
    work.exp_().mul_(own[:, REST, None])
    # Where there is no label, blank is written twice.
    has_label = labels >= 0
    index = labels.where(has_label, blank)[:, None]
    work.scatter_(1, index, own[:, LABEL].where(has_label, own[:, BLANK])[:, None])
    work[:, blank] = own[:, BLANK]
    if not direct:
        grad.copy_(work)
