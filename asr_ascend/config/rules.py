"""From a composed config to typed options: the keys one by one, then those that must agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, overload

from asr_ascend.config.command_options import EvaluateOptions, TranscribeOptions
from asr_ascend.config.frames import ENCODER_HOP_MS
from asr_ascend.config.keys import ConfigError, Options, plain_value
from asr_ascend.config.loss_options import LossOptions
from asr_ascend.config.model_options import EmformerOptions, ModelOptions
from asr_ascend.config.train_options import TrainerOptions, TrainOptions

__all__ = ["COMMANDS", "ConfigError", "read_options"]

COMMANDS: dict[str, type[Options]] = {
    "train": TrainOptions,
    "evaluate": EvaluateOptions,
    "transcribe": TranscribeOptions,
}


@overload
def read_options(command: Literal["train"], config: Mapping[str, Any]) -> TrainOptions: ...
@overload
def read_options(command: Literal["evaluate"], config: Mapping[str, Any]) -> EvaluateOptions: ...
@overload
def read_options(
    command: Literal["transcribe"], config: Mapping[str, Any]
) -> TranscribeOptions: ...
@overload
def read_options(command: str, config: Mapping[str, Any]) -> Options: ...
def read_options(command: str, config: Mapping[str, Any]) -> Options:
    """Reads and checks a composed config.

    Args:
        command: `train`, `evaluate` or `transcribe`.
        config: plain Python.

    Raises:
        ConfigError: a key isn't known or a value breaks its rule; the first is named.
    """
    loss = config.get("loss")
    if command == "train" and isinstance(loss, Mapping) and loss.get("reduction") == "none":
        raise ConfigError(
            "`loss.reduction` must be one of sum, mean in training, which needs a single number to "
            "minimise, but is 'none'."
        )
    options = COMMANDS[command].read(config)
    if isinstance(options, TrainOptions):
        _check_together(options)
    return options


def _check_together(options: TrainOptions) -> None:
    """Refuses values that are right one by one, but don't fit together."""
    loss, trainer = options.loss, options.trainer
    if loss.joiner == "fused" and not loss.fused_log_softmax:
        raise ConfigError(
            "`loss.joiner` must be packed where `loss.fused_log_softmax` is false, but is 'fused'."
        )
    _check_band(loss)
    if options.distillation.teacher is not None:
        _check_distillation(loss)
    wanted, given = options.model.encoder.num_mel_bins, options.data.num_mel_bins
    if given != wanted:
        raise ConfigError(
            f"`data.num_mel_bins` must be `model.num_mel_bins` ({wanted}), but is {given}."
        )
    _check_chunks(options.model, trainer)
    if trainer.average_top_k > trainer.save_top_k:
        raise ConfigError(
            f"`trainer.average_top_k` must be at most `trainer.save_top_k` "
            f"({trainer.save_top_k}), but is {trainer.average_top_k}."
        )
    if trainer.max_steps == -1 and trainer.max_epochs == -1:
        raise ConfigError(
            "One of `trainer.max_steps` and `trainer.max_epochs` must be set, but both are -1."
        )


def _check_band(loss: LossOptions) -> None:
    """A pruned loss has no other bounds, and a distribution's shares are at most 1."""
    if loss.band != "simple":
        return
    if loss.alignment_frames is not None:
        raise ConfigError(
            "`loss.alignment_frames` must be null where `loss.band` is simple, since the pruned "
            f"band may leave its windows, but is {plain_value(loss.alignment_frames)}."
        )
    if loss.lm_only_scale + loss.am_only_scale > 1:
        raise ConfigError(
            "`loss.lm_only_scale` and `loss.am_only_scale` must be at most 1 together, but are "
            f"{loss.lm_only_scale} and {loss.am_only_scale}."
        )


def _check_distillation(loss: LossOptions) -> None:
    """A teacher's step has logits, and differentiates them once for both losses."""
    if loss.joiner == "fused":
        raise ConfigError(
            "`loss.joiner` must be packed where `distillation.teacher` is given, since a fused "
            "joiner has no logits to compare, but is 'fused'."
        )
    if loss.clamp > 0:
        raise ConfigError(
            "`loss.clamp` must be at most 0 where `distillation.teacher` is given, since the RNN-T "
            f"loss has no gradient of its own there, but is {loss.clamp}."
        )


def _check_chunks(model: ModelOptions, trainer: TrainerOptions) -> None:
    """An Emformer serves the chunks that it is built with, and trains with no others."""
    if not isinstance(model.encoder, EmformerOptions):
        return
    segment, left = model.encoder.segment_frames, model.encoder.left_segments
    frame = f"{ENCODER_HOP_MS} ms times model.segment_frames"
    wanted = {
        "chunk_frames": ((segment,), "model.segment_frames"),
        "left_chunks": ((left,), "model.left_segments"),
        "val_chunk_ms": (ENCODER_HOP_MS * segment, frame),
    }
    for key, (value, origin) in wanted.items():
        given = getattr(trainer, key)
        if given != value:
            raise ConfigError(
                f"`trainer.{key}` must be {plain_value(value)} ({origin}) where `model.encoder` is "
                f"emformer, but is {plain_value(given)}."
            )
