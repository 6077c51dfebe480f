"""From the `model` config group to a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asr_ascend.models.conformer import ConformerEncoder
from asr_ascend.models.encoder import StreamingEncoder
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
    "segment_frames": 1,
    "left_segments": 0,
    "right_context_frames": 0,
    "memory_segments": 0,
    "predictor_dim": 1,
    "predictor_context": 1,
    "predictor_layers": 1,
    "joiner_dim": 1,
}
_PROBABILITIES = ("dropout", "predictor_dropout")
_ENCODERS = ("conformer", "emformer")
_PREDICTORS = ("stateless", "lstm")
# Keys that only one of the encoders or predictors has.
_ONLY_FOR = {
    "conv_kernel": "conformer",
    "max_relative_position": "conformer",
    "segment_frames": "emformer",
    "left_segments": "emformer",
    "right_context_frames": "emformer",
    "memory_segments": "emformer",
    "predictor_context": "stateless",
    "predictor_layers": "lstm",
}


def check_model_config(model_config: Mapping[str, Any]) -> None:
    """Checks every key and value of the `model` config group.

    Raises:
        ValueError: a key that is missing or unknown, or a value that can't be.
    """
    kinds = encoder_kind(model_config), model_config.get("predictor")
    for key, kind, options in zip(
        ("encoder", "predictor"), kinds, (_ENCODERS, _PREDICTORS), strict=True
    ):
        if kind not in options:
            raise ValueError(f"`model.{key}` must be one of {', '.join(options)}, but is {kind!r}.")
    mandatory = [*_INTEGERS, *_PROBABILITIES, "predictor"]
    mandatory = [key for key in mandatory if _ONLY_FOR.get(key, kinds[0]) in kinds]
    known = sorted([*mandatory, "encoder"])
    for key in model_config:
        if key not in known:
            raise ValueError(f"Unknown key `model.{key}`; `model` has {', '.join(known)}.")
    for key in sorted(mandatory):
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


def encoder_kind(model_config: Mapping[str, Any]) -> Any:
    """The value of the key `encoder`, which configs of older checkpoints don't have."""
    return model_config.get("encoder", "conformer")


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
    encoder = _build_encoder(config)
    dim, dropout = config["predictor_dim"], config["predictor_dropout"]
    predictor: StatelessPredictor | LSTMPredictor
    if config["predictor"] == "stateless":
        predictor = StatelessPredictor(vocab_size, blank, dim, config["predictor_context"], dropout)
    else:
        predictor = LSTMPredictor(vocab_size, dim, config["predictor_layers"], dropout)
    return Transducer(encoder, predictor, config["joiner_dim"], vocab_size, blank)


def _build_encoder(config: Mapping[str, Any]) -> StreamingEncoder:
    shared = (
        "num_mel_bins",
        "subsampling_channels",
        "encoder_dim",
        "num_layers",
        "num_heads",
        "feedforward_dim",
        "dropout",
    )
    kind = encoder_kind(config)
    own = [key for key, owner in _ONLY_FOR.items() if owner == kind]
    arguments = {key: config[key] for key in (*shared, *own)}
    if kind == "conformer":
        return ConformerEncoder(**arguments)
    # torchaudio is imported only where it is needed.
    from asr_ascend.models.emformer import EmformerEncoder

    return EmformerEncoder(**arguments)
