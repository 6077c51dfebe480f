"""The simple joiner's two layers, which training with `loss.band=simple` adds to a transducer."""

from __future__ import annotations

from torch import Tensor, nn


class SimpleHeads(nn.Module):
    """Logits of encoder and predictor, which a simple joiner adds; decoding doesn't use them.

    Args:
        encoder_dim, predictor_dim: widths of the inputs.
        vocab_size: V, blank included.
    """

    def __init__(self, encoder_dim: int, predictor_dim: int, vocab_size: int) -> None:
        super().__init__()
        self.am = nn.Linear(encoder_dim, vocab_size)
        self.lm = nn.Linear(predictor_dim, vocab_size)

    def forward(self, encoded: Tensor, predicted: Tensor) -> tuple[Tensor, Tensor]:
        """Computes logits (B, T, V) and (B, U1, V), as `simple_rnnt_loss` takes them."""
        return self.am(encoded), self.lm(predicted)
