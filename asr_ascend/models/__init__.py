"""Streaming Conformer transducer; knows nothing of losses, tokenizers or training."""

from asr_ascend.models.build import build_transducer, check_model_config
from asr_ascend.models.conformer import ConformerEncoder, EncoderState
from asr_ascend.models.joiner import Joiner
from asr_ascend.models.predictor import LSTMPredictor, StatelessPredictor
from asr_ascend.models.subsampling import subsampled_lengths
from asr_ascend.models.transducer import Transducer

__all__ = [
    "ConformerEncoder",
    "EncoderState",
    "Joiner",
    "LSTMPredictor",
    "StatelessPredictor",
    "Transducer",
    "build_transducer",
    "check_model_config",
    "subsampled_lengths",
]
