"""From the `model` config group to a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asr_ascend.models.conformer import ConformerEncoder
from asr_ascend.models.predictor import LSTMPredictor, StatelessPredictor
from asr_ascend.models.transducer import Transducer, normalise_blank

_INTEGERS = {
    "num_mel_bins": 7,
    "subsampling_channels": 1,
    "encoder_dim": 1,
    "num_layers": 1,
    "num_heads": 1,
    "feedforward_dim": 1,
    "conv_kernel": 1,
    "max_relative_position": 0,
    "predictor_dim": 1,
    "predictor_context": 1,
    "predictor_layers": 1,
    "joiner_dim": 1,
}
_PROBABILITIES = ("dropout", "predictor_dropout")
_PREDICTORS = ("stateless", "lstm")
# A stateless predictor has no layers and an LSTM no context.
_ONLY_FOR = {"predictor_context": "stateless", "predictor_layers": "lstm"}


def check_model_config(model_config: Mapping[str, Any]) -> None:
    """Checks every key and value of the `model` config group.

    Raises:
        ValueError: a key that is missing or unknown, or a value that can't be.
    """
    predictor = model_config.get("predictor")
    if predictor not in _PREDICTORS:
        raise ValueError(
            f"`model.predictor` must be one of {', '.join(_PREDICTORS)}, but is {predictor!r}."
        )
    known = [*_INTEGERS, *_PROBABILITIES, "predictor"]
    known = sorted(key for key in known if _ONLY_FOR.get(key, predictor) == predictor)
    for key in model_config:
        if key not in known:
            raise ValueError(f"Unknown key `model.{key}`; `model` has {', '.join(known)}.")
    for key in known:
        if key not in model_config:
            raise ValueError(f"`model.{key}` must be given, but is missing.")
        value = model_config[key]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        whole = number and isinstance(value, int)
        if key in _INTEGERS and not (whole and value >= _INTEGERS[key]):
            raise ValueError(
                f"`model.{key}` must be an integer of at least {_INTEGERS[key]}, but is {value!r}."
            )
        if key in _PROBABILITIES and not (number and 0 <= value < 1):
            raise ValueError(f"`model.{key}` must be a number in [0, 1), but is {value!r}.")
    if model_config["encoder_dim"] % model_config["num_heads"]:
        raise ValueError(
            f"`model.encoder_dim` must be a multiple of `model.num_heads` "
            f"({model_config['num_heads']}), but is {model_config['encoder_dim']}."
        )


def build_transducer(vocab_size: int, blank: int, model_config: Mapping[str, Any]) -> Transducer:
    """A transducer with fresh weights, drawn from torch's global generator.

    Args:
        vocab_size: V, blank included.
        blank: id of blank in [-V, V - 1].
        model_config: the flat keys of `conf/model/*.yaml`.

    Raises:
        ValueError: as `check_model_config`, or ``vocab_size`` or ``blank`` out of range.
    """
    check_model_config(model_config)
    config = dict(model_config)
    blank = normalise_blank(blank, vocab_size)
    encoder = ConformerEncoder(
        num_mel_bins=config["num_mel_bins"],
        subsampling_channels=config["subsampling_channels"],
        encoder_dim=config["encoder_dim"],
        num_layers=config["num_layers"],
        num_heads=config["num_heads"],
        feedforward_dim=config["feedforward_dim"],
        conv_kernel=config["conv_kernel"],
        dropout=config["dropout"],
        max_relative_position=config["max_relative_position"],
    )
    dim, dropout = config["predictor_dim"], config["predictor_dropout"]
    predictor: StatelessPredictor | LSTMPredictor
    if config["predictor"] == "stateless":
        predictor = StatelessPredictor(vocab_size, blank, dim, config["predictor_context"], dropout)
    else:
        predictor = LSTMPredictor(vocab_size, dim, config["predictor_layers"], dropout)
    return Transducer(encoder, predictor, config["joiner_dim"], vocab_size, blank)
