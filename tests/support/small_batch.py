"""A ragged batch of three small lattices, packed or padded, for tests of how the loss is called."""

import torch

from asr_ascend.losses import pack_logits

LOGIT_LENGTHS = torch.tensor([4, 3, 2])
TARGET_LENGTHS = torch.tensor([2, 1, 0])
TARGETS = torch.tensor([[0, 3], [2, 1], [3, 3]])
BATCH = TARGETS, LOGIT_LENGTHS, TARGET_LENGTHS
V = 5
UPSTREAM = torch.tensor([1.0, -2.0, 0.5])


def make_logits(packed=True, dtype=torch.float32, seed=0):
    logits = torch.randn(3, 4, 3, V, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return pack_logits(logits, LOGIT_LENGTHS, TARGET_LENGTHS) if packed else logits


def gradient_of(loss, logits):
    """Value and gradient of a loss; unreduced costs get UPSTREAM. The loss sees no leaf."""
    leaf = logits.detach().clone().requires_grad_()
    costs = loss(leaf * 1)
    (costs * UPSTREAM).sum().backward() if costs.dim() else costs.backward()
    return costs.detach(), leaf.grad
