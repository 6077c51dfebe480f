"""Checkpoint files: written in one step, read without running their code, checked by version."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO

from asr_ascend.checkpoints.fields import FORMAT_VERSION, KEY, FieldError, check_fields
from asr_ascend.checkpoints.outline import OutlineError, read_outline
from asr_ascend.config.keys import ConfigError
from asr_ascend.config.train_options import TrainOptions
from asr_ascend.data.features import LogMel
from asr_ascend.data.tokenizer import Tokenizer
from asr_ascend.models import Transducer, build_transducer, layers
from asr_ascend.system.atomic import replaced_file
from asr_ascend.system.paths import user_path

# Layers that training alone uses.
SIMPLE_HEADS = "simple_heads."
_PREFIX = "model."
_ZIP_START = b"PK\x03\x04"
_LFS_POINTER = b"version https://git-lfs.github.com/spec/v1"
# torch writes a zip archive, whose directory is at its end, before a comment of 64 KiB at most.
_ZIP_END = 2**16 + 22


class CheckpointError(ValueError):
    """A checkpoint that can't be used; the message is one sentence for the user."""


@dataclass(frozen=True)
class TrainedModel:
    """A transducer from a checkpoint, in evaluation mode, and what it was trained with."""

    model: Transducer
    tokenizer: Tokenizer
    options: TrainOptions
    step: int

    @property
    def sample_rate_hz(self) -> int:
        """The rate that its audio must have."""
        return self.options.data.sample_rate_hz

    def log_mel(self) -> LogMel:
        """Makes the features that the model was trained with."""
        return LogMel(self.sample_rate_hz, self.options.model.encoder.num_mel_bins)


class AtomicCheckpointIO(CheckpointIO):
    """Writes to a temporary file in the same folder, then replaces: a crash leaves the old file."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Writes `checkpoint` to `path` in one step, down to the disk.

        Raises:
            OSError: the file can't be written.
        """
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with replaced_file(target) as temporary, temporary.open("wb") as stream:
            _save(checkpoint, stream)
            stream.flush()
            os.fsync(stream.fileno())

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Reads a checkpoint as `read_checkpoint` does, always onto the CPU."""
        return read_checkpoint(path)

    def remove_checkpoint(self, path: Any) -> None:
        """Removes the file `path`, if it exists."""
        Path(path).unlink(missing_ok=True)


def _save(checkpoint: dict[str, Any], stream: BinaryIO) -> None:
    try:
        torch.save(checkpoint, stream)
    except RuntimeError as error:  # torch's own, of a write that failed
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def read_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads the contents of a checkpoint of this package onto the CPU.

    Raises:
        CheckpointError: the file is missing, not a checkpoint of asr_ascend, or of another version.
    """
    file = user_path(path)
    if not file.is_file():
        from asr_ascend.config.composing import made_by

        raise CheckpointError(f"The checkpoint {file} is not a file.{made_by(file)}")
    with file.open("rb") as stream:
        if stream.read(len(_ZIP_START)) != _ZIP_START:
            raise CheckpointError(f"{file} {_foreign(file)}")
    try:
        check_fields(read_outline(file))
        contents: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except FieldError as error:
        raise CheckpointError(f"{file} {error}") from error
    except OSError:
        raise
    except OutlineError as error:
        raise CheckpointError(f"{file} {_foreign(file, str(error))}") from error
    except Exception as error:  # torch.load raises many kinds
        raise CheckpointError(f"{file} {_foreign(file)}") from error
    return contents


def _foreign(file: Path, reason: str = "") -> str:
    """What can be said of a file that torch can't load, or that is refused for a reason."""
    with file.open("rb") as stream:
        start = stream.read(len(_LFS_POINTER))
        stream.seek(max(0, file.stat().st_size - _ZIP_END))
        end = stream.read()
    if start == _LFS_POINTER:
        return "is a pointer of git-lfs, not the checkpoint itself: run git lfs pull."
    if not end:
        return "is empty."
    if start.startswith(_ZIP_START) and b"PK\x05\x06" not in end:
        return "was cut short: its end is missing. Copy it again."
    return f"is not a checkpoint of asr_ascend{reason and ': '}{reason}."


def read_config(path: str | os.PathLike[str], contents: Mapping[str, Any]) -> TrainOptions:
    """Reads what a checkpoint was trained with; keys that it lacks get their defaults.

    Args:
        path: of the checkpoint, for messages.
        contents: from `read_checkpoint`.

    Raises:
        CheckpointError: the config can't be read.
    """
    try:
        return TrainOptions.read(contents[KEY]["config"], saved=True)
    except ConfigError as error:
        raise CheckpointError(f"The config in {path} can't be read: {error}") from error


def describe(tokenizer: Tokenizer, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns this package's part of a checkpoint, as plain Python and tensors."""
    return {
        "format_version": FORMAT_VERSION,
        "tokenizer": tokenizer.state_dict(),
        "blank": tokenizer.blank,
        "config": dict(config),
    }


def model_weights(contents: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the transducer's part of a checkpoint's state_dict, under the transducer's names."""
    return {
        key.removeprefix(_PREFIX): value
        for key, value in contents["state_dict"].items()
        if key.startswith(_PREFIX)
    }


def without_simple_heads(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a transducer's weights without the layers of its simple joiner, if it has one."""
    return {name: value for name, value in weights.items() if not name.startswith(SIMPLE_HEADS)}


def read_tokenizer(path: str | os.PathLike[str], contents: Mapping[str, Any]) -> Tokenizer:
    """Returns the tokenizer of a checkpoint.

    Args:
        path: of the checkpoint, for messages.
        contents: from `read_checkpoint`.

    Raises:
        CheckpointError: a tokenizer that can't be read.
    """
    try:
        return Tokenizer.from_state_dict(contents[KEY]["tokenizer"])
    except ValueError as error:
        raise CheckpointError(f"The tokenizer in {path} can't be read: {error}") from error


def load_model(path: str | os.PathLike[str]) -> TrainedModel:
    """Rebuilds the transducer of a checkpoint from the config that it carries.

    The model is built without memory first: a config that describes a larger model than the file
    has weights for is refused before it takes any.

    Raises:
        CheckpointError: the checkpoint can't be read, or its weights don't fit its config.
        OSError: the file can't be read.
    """
    contents = read_checkpoint(path)
    tokenizer = read_tokenizer(path, contents)
    options = read_config(path, contents)
    weights = without_simple_heads(model_weights(contents))
    check_weights(path, tokenizer, options, weights)
    model = build_transducer(tokenizer.vocab_size, tokenizer.blank, options.model)
    model.load_state_dict(weights)
    return TrainedModel(model.eval(), tokenizer, options, int(contents["global_step"]))


def check_weights(
    path: str | os.PathLike[str],
    tokenizer: Tokenizer,
    options: TrainOptions,
    weights: Mapping[str, Any],
) -> None:
    """Checks that weights are those of the model that a config describes, without building it.

    Args:
        path: of the checkpoint, for the message.
        tokenizer: whose vocabulary the model has.
        options: of the training that gave the weights.
        weights: from `model_weights`.

    Raises:
        CheckpointError: they are not.
    """
    difference = _difference(tokenizer, options, weights)
    if difference is not None:
        raise CheckpointError(
            f"The weights in {path} don't fit the model that its config describes{difference}."
        )


def _difference(
    tokenizer: Tokenizer, options: TrainOptions, weights: Mapping[str, Any]
) -> str | None:
    """How weights differ from the model of a config; None where they fit, "" by their shapes."""
    if layers(options.model) > len(weights):
        return f": it has {len(weights)} tensors for {layers(options.model)} layers"
    try:
        with torch.device("meta"):
            model = build_transducer(tokenizer.vocab_size, tokenizer.blank, options.model)
    except (
        RuntimeError,
        OverflowError,
        TypeError,
        ValueError,
    ):  # of torch, by the way it overflows
        return ": no tensor can be as large as its config says"
    if names := _differing(model, weights):
        return names
    own = model.state_dict()
    fits = all(own[name].shape == value.shape for name, value in weights.items())
    return None if fits else ""


def _differing(model: Transducer, weights: Mapping[str, Any]) -> str:
    """Names of weights that one side lacks, as another version may have them."""
    own = model.state_dict().keys()
    sides = (("it lacks", own - weights.keys()), ("it has unknown", weights.keys() - own))
    told = [
        f"{how} {sorted(names)[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
        for how, names in sides
        if names
    ]
    return f": {', '.join(told)}, as of another version" if told else ""
