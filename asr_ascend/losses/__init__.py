"""RNN-T loss over packed or padded logits. Needs torch alone."""

from asr_ascend.losses._ascend import check_status
from asr_ascend.losses.rnnt import (
    RNNTLoss,
    available_backends,
    pack_logits,
    rnnt_loss,
    rnnt_loss_and_grad,
    unpack_logits,
)

__all__ = [
    "RNNTLoss",
    "available_backends",
    "check_status",
    "pack_logits",
    "rnnt_loss",
    "rnnt_loss_and_grad",
    "unpack_logits",
]
