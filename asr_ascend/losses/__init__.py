"""RNN-T loss over packed or padded logits. Needs torch alone."""

from asr_ascend.losses.alignment import rnnt_alignment
from asr_ascend.losses.backends.npu_status import check_status
from asr_ascend.losses.bands import band_around, lattice_band
from asr_ascend.losses.joiner.loss import joiner_rnnt_loss
from asr_ascend.losses.module import RNNTLoss
from asr_ascend.losses.packing import pack_logits, unpack_logits
from asr_ascend.losses.pruning import pruned_band
from asr_ascend.losses.rnnt import available_backends, rnnt_loss, rnnt_loss_and_grad
from asr_ascend.losses.simple.loss import Occupancies, simple_rnnt_loss

__all__ = [
    "Occupancies",
    "RNNTLoss",
    "available_backends",
    "band_around",
    "check_status",
    "joiner_rnnt_loss",
    "lattice_band",
    "pack_logits",
    "pruned_band",
    "rnnt_alignment",
    "rnnt_loss",
    "rnnt_loss_and_grad",
    "simple_rnnt_loss",
    "unpack_logits",
]
