"""Dropout whose masks cost little on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_LEVELS = 2**16


class Dropout(nn.Dropout):
    """`nn.Dropout`, which on a CPU draws the numbers of four elements at once.

    torch's own draws one double per element there, on any CPU that isn't Intel's: a thirtieth of a
    small model's training step. Here one 64-bit draw of torch's global generator gives four 16-bit
    numbers, so the probability is a multiple of 2^-16, and the values that stay are scaled by
    exactly its complement. The same seed gives the same masks on every CPU. Other devices run
    torch's own.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Returns a dropped-out copy of ``x``, of any shape; ``x`` itself in evaluation."""
        if not self.training or self.p == 0 or x.device.type != "cpu":
            return super().forward(x)
        return x * _scaled_mask(x, self.p)


def _scaled_mask(x: Tensor, probability: float) -> Tensor:
    """Returns 0 where an element is dropped, else the factor that keeps the expectation."""
    dropped_levels = min(round(probability * _LEVELS), _LEVELS - 1)
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64)
    draws.random_(torch.iinfo(torch.int64).min, None)  # all 64 bits
    levels = draws.view(torch.int16)[: x.numel()].view(x.shape)
    stays = levels >= torch.iinfo(torch.int16).min + dropped_levels
    return stays.to(x.dtype).mul_(_LEVELS / (_LEVELS - dropped_levels))
