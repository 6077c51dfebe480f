"""From the options of a model to the model."""

from __future__ import annotations

from asr_ascend.config.model_options import (
    ConformerOptions,
    EmformerOptions,
    EncoderOptions,
    LSTMOptions,
    ModelOptions,
    PredictorOptions,
    StatelessOptions,
)
from asr_ascend.models.blank import normalise_blank
from asr_ascend.models.conformer import ConformerEncoder
from asr_ascend.models.encoder import StreamingEncoder
from asr_ascend.models.predictor import LSTMPredictor, StatelessPredictor
from asr_ascend.models.transducer import Transducer


def build_transducer(
    vocab_size: int, blank: int, options: ModelOptions, *, simple_heads: bool = False
) -> Transducer:
    """Builds a transducer with fresh weights, drawn from torch's global generator.

    Args:
        vocab_size: V, blank included.
        blank: id of blank in [-V, V - 1].
        options: sizes and kinds of encoder, predictor and joiner.
        simple_heads: whether to add the layers of a simple joiner, which only training uses.

    Raises:
        ValueError: ``vocab_size`` or ``blank`` is out of range.
    """
    blank = normalise_blank(blank, vocab_size)
    encoder = _build_encoder(options.encoder)
    predictor = _build_predictor(options.predictor, vocab_size, blank)
    model = Transducer(encoder, predictor, options.joiner_dim, vocab_size, blank)
    if simple_heads:
        model.add_simple_heads()
    return model


def layers(options: ModelOptions) -> int:
    """Returns how many layers a model of these options has, in encoder and predictor."""
    predictor = options.predictor
    deep = predictor.predictor_layers if isinstance(predictor, LSTMOptions) else 0
    return options.encoder.num_layers + deep


def _build_encoder(options: EncoderOptions) -> StreamingEncoder:
    sizes = options.plain()  # the arguments have the names of the keys
    if isinstance(options, ConformerOptions):
        return ConformerEncoder(**sizes)
    assert isinstance(options, EmformerOptions)
    # torchaudio is imported only where it is needed.
    from asr_ascend.models.emformer import EmformerEncoder

    return EmformerEncoder(**sizes)


def _build_predictor(
    options: PredictorOptions, vocab_size: int, blank: int
) -> StatelessPredictor | LSTMPredictor:
    dim, dropout = options.predictor_dim, options.predictor_dropout
    if isinstance(options, StatelessOptions):
        return StatelessPredictor(vocab_size, blank, dim, options.predictor_context, dropout)
    assert isinstance(options, LSTMOptions)
    return LSTMPredictor(vocab_size, dim, options.predictor_layers, dropout)
