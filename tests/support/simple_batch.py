"""A ragged batch for the simple joiner's loss, and its definition with all logits written out."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from asr_ascend.losses import rnnt_loss
from asr_ascend.losses.layout import lattice_mask

LENGTHS = ((7, 4), (3, 0), (1, 2), (5, 3))
V, BLANK = 6, 2


class Batch(NamedTuple):
    """Arguments of `simple_rnnt_loss`, but for its options."""

    am: Tensor
    lm: Tensor
    targets: Tensor
    logit_lengths: Tensor
    target_lengths: Tensor
    blank: int = BLANK

    def tables(self, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
        """New leaves."""
        am, lm = (t.detach().to(dtype).clone().requires_grad_() for t in self[:2])
        return am, lm


def make_batch(lengths=LENGTHS, seed=0, scale=1.0, dtype=torch.float64, extra=(2, 1)) -> Batch:
    """Padding of the tables is NaN, that of the targets -1."""
    generator = torch.Generator().manual_seed(seed)
    frames = torch.tensor([t for t, _ in lengths], dtype=torch.int64)
    labels = torch.tensor([u for _, u in lengths], dtype=torch.int64)
    T, U = int(frames.max()) + extra[0], int(labels.max()) + extra[1]
    tables = []
    for rows, used in ((T, frames), (U + 1, labels + 1)):
        table = scale * torch.randn(len(lengths), rows, V, generator=generator, dtype=dtype)
        padding = torch.arange(rows) >= used[:, None]
        tables.append(table.masked_fill(padding[..., None], float("nan")))
    targets = torch.randint(0, V - 1, (len(lengths), U), generator=generator)
    targets += targets >= BLANK
    targets = targets.where(torch.arange(U) < labels[:, None], -1)
    return Batch(*tables, targets, frames, labels)


def dense_log_probs(batch: Batch, am: Tensor, lm: Tensor, lm_scale=0.0, am_scale=0.0) -> Tensor:
    """(B, T, U1, V) of the smoothed joiner, straight from its definition; padding is 0."""
    frames, columns = batch.logit_lengths, batch.target_lengths + 1
    is_frame = torch.arange(am.shape[1]) < frames[:, None]
    is_column = torch.arange(lm.shape[1]) < columns[:, None]
    am = torch.where(is_frame[..., None], am, 0.0)
    lm = torch.where(is_column[..., None], lm, 0.0)
    log_probs = (1 - lm_scale - am_scale) * (am[:, :, None] + lm[:, None]).log_softmax(-1)
    # 0 times -inf would be NaN.
    if lm_scale > 0:
        log_probs = log_probs + lm_scale * lm.log_softmax(-1)[:, None]
    if am_scale > 0:
        unigram = lm[is_column].softmax(-1).mean(0)
        log_probs = log_probs + am_scale * (am + unigram.log()).log_softmax(-1)[:, :, None]
    return log_probs


def defined(batch: Batch, am: Tensor, lm: Tensor, lm_scale=0.0, am_scale=0.0, **options: Any):
    """Costs (B,) of the definition, by the reference."""
    log_probs = dense_log_probs(batch, am, lm, lm_scale, am_scale)
    packed = log_probs[
        lattice_mask(batch.logit_lengths, batch.target_lengths, *log_probs.shape[1:3])
    ]
    options = {"reduction": "none", "backend": "reference", **options}
    return rnnt_loss(packed, *batch[2:], fused_log_softmax=False, **options)
