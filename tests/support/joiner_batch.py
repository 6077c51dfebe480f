"""A ragged batch for the joiner's loss, and what the joiner and the loss apart make of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from asr_ascend.losses import joiner_rnnt_loss, rnnt_loss

# With U = 0, T = 1, and T < U; the first is the largest, frames and columns are left over.
LENGTHS = ((9, 4), (5, 0), (1, 3), (2, 4))
SAMPLE_BY_SAMPLE = {"max_bytes": None}
CHUNK_BY_CHUNK = {"max_bytes": 1}
EACH_WAY = (SAMPLE_BY_SAMPLE, CHUNK_BY_CHUNK)
INPUTS = ("encoder_out", "predictor_out", "weight", "bias")


class Batch(NamedTuple):
    """Arguments of `joiner_rnnt_loss`, but for its options."""

    encoder_out: Tensor
    predictor_out: Tensor
    weight: Tensor
    bias: Tensor | None
    targets: Tensor
    logit_lengths: Tensor
    target_lengths: Tensor
    blank: int = 0

    def inputs(self) -> list[Tensor]:
        """What may want a gradient."""
        return [t for t in self[:4] if t is not None]

    def as_leaves(self, dtype: torch.dtype, wanted: tuple[str, ...] = INPUTS) -> Batch:
        """New leaves of the same values in another dtype."""
        changes = {}
        for name in INPUTS:
            value = getattr(self, name)
            if value is not None:
                leaf = value.detach().to(dtype).clone()
                changes[name] = leaf.requires_grad_(name in wanted)
        return self._replace(**changes)

    def upstream(self, costs: Tensor) -> Tensor:
        """A gradient for a loss of any reduction."""
        if costs.dim() == 0:
            return torch.tensor(-1.75)
        return torch.linspace(1.0, -2.0, len(costs))


def make_batch(
    lengths=LENGTHS, vocab=11, width=6, *, blank=0, bias=True, seed=0, scale=1.0, extra=(2, 1)
) -> Batch:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return scale * torch.randn(*shape, generator=generator)

    frames = torch.tensor([t for t, _ in lengths])
    labels = torch.tensor([u for _, u in lengths])
    num_frames, num_labels = int(frames.max()) + extra[0], int(labels.max()) + extra[1]
    targets = torch.randint(1, vocab, (len(lengths), num_labels), generator=generator)
    return Batch(
        normal(len(lengths), num_frames, width),
        normal(len(lengths), num_labels + 1, width),
        normal(vocab, width),
        normal(vocab) if bias else None,
        (targets + blank) % vocab,
        frames,
        labels,
        blank,
    )


def apart(
    batch: Batch,
    activation: str = "tanh",
    weights: Tensor | None = None,
    reduction: str = "mean",
    logits_dtype: torch.dtype | None = None,
    **options: Any,
) -> Tensor:
    """The joiner as a user writes it, then `rnnt_loss`; of any dtype."""
    hidden = [
        getattr(torch, activation)(encoded[:frames, None] + predicted[None, : labels + 1])
        for encoded, predicted, frames, labels in zip(
            batch.encoder_out,
            batch.predictor_out,
            batch.logit_lengths.tolist(),
            batch.target_lengths.tolist(),
            strict=True,
        )
    ]
    rows = torch.cat([rows.flatten(0, 1) for rows in hidden])
    logits = torch.nn.functional.linear(rows, batch.weight, batch.bias)
    if logits_dtype is not None:
        logits = logits.to(logits_dtype)
    costs = rnnt_loss(logits, *batch[4:], reduction="none", **options)
    if weights is not None:
        costs = costs * weights
    return costs if reduction == "none" else getattr(costs, reduction)()


def value_and_gradients(loss, batch: Batch, upstream: float = 1.0, **options):
    """The loss, and the gradients of the batch's inputs (None where not wanted)."""
    value = loss(batch, **options)
    value.backward(upstream * batch.upstream(value).to(value.dtype))
    return value.detach(), [leaf.grad for leaf in batch.inputs()]


def fused(batch: Batch, **options) -> Tensor:
    """`joiner_rnnt_loss` of a batch."""
    return joiner_rnnt_loss(*batch, **options)


def relative_errors(actual, expected) -> list[float]:
    """Largest error of each tensor, relative to its own largest component."""
    return [
        float((a.double() - e.double()).abs().max() / e.double().abs().max())
        for a, e in zip(actual, expected, strict=True)
    ]
