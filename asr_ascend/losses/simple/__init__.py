"""The loss of a simple joiner, which adds two tables of logits: no logits of a cell ever exist."""

from asr_ascend.losses.simple.loss import Occupancies, simple_rnnt_loss

__all__ = ["Occupancies", "simple_rnnt_loss"]
