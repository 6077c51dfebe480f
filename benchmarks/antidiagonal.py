"""The RNN-T loss as one would write it in torch: softmax, gather, anti-diagonals, autograd."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def rnnt_loss(
    logits: Tensor, targets: Tensor, logit_lengths: Tensor, target_lengths: Tensor, blank: int
) -> Tensor:
    """Costs (B,) of padded logits (B, T, U1, V), in their dtype, differentiable."""
    B, T, U1, _ = logits.shape
    log_probs = logits.log_softmax(-1)
    emit_blank = log_probs[..., blank]  # (B, T, U1)
    labels = targets[:, None, :, None].expand(B, T, U1 - 1, 1)
    emit_label = log_probs[:, :, :-1].gather(-1, labels)[..., 0]  # (B, T, U)

    # Row d of a skewed tensor is the anti-diagonal t + u = d, by u.
    skewed_blank = _skew(emit_blank)  # (T + U1 - 1, B, U1)
    skewed_label = _skew(emit_label)  # (T + U1 - 2, B, U)
    alpha = logits.new_full((B, U1), -math.inf)
    alpha[:, 0] = 0.0
    nowhere = logits.new_full((B, 1), -math.inf)
    alphas = [alpha]
    for by_blank, by_label in zip(skewed_blank[:-1], skewed_label, strict=True):
        stay = alpha + by_blank
        move = torch.cat((nowhere, alpha[:, :-1] + by_label), dim=1)
        # The finite floor keeps the gradient of -inf - -inf out of autograd.
        alpha = torch.logaddexp(stay.clamp(min=-1e30), move.clamp(min=-1e30))
        alphas.append(alpha)
    samples = torch.arange(B)
    last = logit_lengths - 1 + target_lengths
    end = torch.stack(alphas)[last, samples, target_lengths]
    return -(end + emit_blank[samples, logit_lengths - 1, target_lengths])


def _skew(values: Tensor) -> Tensor:
    """(T + U - 1, B, U) from (B, T, U): [d, b, u] is [b, d - u, u], -inf where there is none."""
    T, U = values.shape[1:]
    t = torch.arange(T + U - 1)[:, None] - torch.arange(U)  # (T + U - 1, U)
    outside = (t < 0) | (t >= T)
    skewed = values[:, t.clamp(0, T - 1), torch.arange(U)]  # (B, T + U - 1, U)
    return skewed.masked_fill(outside, -math.inf).transpose(0, 1)
