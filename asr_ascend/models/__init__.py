"""Streaming transducers, Conformer or Emformer; knows nothing of losses, tokenizers or training."""

from asr_ascend.models.build import build_transducer, layers
from asr_ascend.models.conformer import ConformerEncoder
from asr_ascend.models.encoder import EncoderState, StreamingEncoder
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
    "StreamingEncoder",
    "Transducer",
    "build_transducer",
    "layers",
    "subsampled_lengths",
]
