"""Joiner and RNN-T loss in one: the logits of all samples never exist together."""

from asr_ascend.losses.joiner.loss import joiner_rnnt_loss

__all__ = ["joiner_rnnt_loss"]
