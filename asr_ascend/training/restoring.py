"""Going on from a checkpoint: what Lightning and torch make of it, told in a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from asr_ascend.checkpoints.checkpoint import CheckpointError, read_checkpoint, read_tokenizer
from asr_ascend.config.keys import ConfigError
from asr_ascend.data.sampler import PositionError

_OWN = (CheckpointError, ConfigError, PositionError)
_FOREIGN = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)


class Restoring(Callback):
    """Knows whether training still takes up what a checkpoint holds.

    Args:
        path: of the checkpoint that training goes on from; None: it starts afresh.
    """

    def __init__(self, path: str | None) -> None:
        self.path = path

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forgets the checkpoint: training has taken up what it holds."""
        self.path = None

    @contextmanager
    def problems(self) -> Iterator[None]:
        """Turns errors of a checkpoint that doesn't fit the training into a `CheckpointError`.

        It is the context of a `with` block.
        """
        try:
            yield
        except _OWN:
            raise
        except _FOREIGN as error:
            if self.path is None:
                raise
            reason = " ".join(str(error).split())[:300]
            raise CheckpointError(
                f"Training can't go on from {self.path} ({type(error).__name__}: {reason}); "
                "init_from starts a new run from its weights."
            ) from error


def check_optimizer_states(saved: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> None:
    """Checks that the state of an optimiser is of the parameters that it is going to change.

    Args:
        saved: the contents of a checkpoint.
        groups: parameters as `parameter_groups` gives them.

    Raises:
        ValueError: another number of parameters, or a state of another shape.
    """
    states = saved["optimizer_states"]
    parameters = [parameter for group in groups for parameter in group["params"]]
    counts = [len(group["params"]) for group in groups]
    if len(states) != 1 or [len(group["params"]) for group in states[0]["param_groups"]] != counts:
        raise ValueError(f"its optimiser has other parameters than the {len(parameters)} here")
    for index, state in states[0]["state"].items():
        known = isinstance(index, int) and 0 <= index < len(parameters)
        for name, value in state.items():
            if not known or value.shape not in ((), parameters[index].shape):
                shape = tuple(value.shape)
                raise ValueError(f"its optimiser has {name} of shape {shape} for parameter {index}")


def check_vocabulary(ckpt_path: str, pieces: list[str]) -> None:
    """Checks that a checkpoint has the vocabulary of the training set.

    Raises:
        CheckpointError: as `read_checkpoint`.
        ConfigError: another vocabulary.
    """
    saved = read_tokenizer(ckpt_path, read_checkpoint(ckpt_path)).pieces
    if saved != pieces:
        raise ConfigError(
            f"{ckpt_path} has a vocabulary of {len(saved)} pieces that differs from the "
            f"{len(pieces)} of this training set, or blank stands elsewhere."
        )
