"""When checkpoints are written, which are kept, and when training has gone on long enough."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from asr_ascend.checkpoints.average import average_checkpoints
from asr_ascend.checkpoints.checkpoint import AtomicCheckpointIO
from asr_ascend.training.nonfinite import NonfiniteSteps


class Checkpoints(Callback):
    """Keeps last.ckpt and the k best by validation CER; their average.ckpt at the end.

    A step that ends with a validation is saved after it, so that a resumed run repeats neither the
    step nor the validation. The last step of a training is saved as it ends, like any other: as
    training ends, Lightning counts the epoch as finished, and a run that went on from such a
    checkpoint would not hear the rest of it.

    Args:
        folder: where the files are.
        every_steps: optimiser steps between two writes of last.ckpt.
        val_every_steps: optimiser steps between two validations.
        top_k: how many best checkpoints to keep.
        average_k: how many of them to average at the end, at most top_k; 0: none.
        nonfinite: ends the training where a checkpoint would hold weights that aren't finite.
    """

    def __init__(
        self,
        folder: Path,
        every_steps: int,
        val_every_steps: int,
        top_k: int,
        average_k: int,
        nonfinite: NonfiniteSteps,
    ) -> None:
        self.folder = folder
        self.every_steps = every_steps
        self.val_every_steps = val_every_steps
        self.top_k = top_k
        self.average_k = average_k
        self.nonfinite = nonfinite
        self.best: list[tuple[float, str]] = []
        self.saved_step = -1

    def state_dict(self) -> dict[str, Any]:
        """Returns CER and file name of the best checkpoints."""
        return {"best": [[cer, name] for cer, name in self.best]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores what `state_dict` returned."""
        self.best = [(float(cer), str(name)) for cer, name in state_dict["best"]]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Removes half-written files of a run that was killed."""
        self.saved_step = trainer.global_step
        if not trainer.is_global_zero:
            return
        # Half-written files of a run that was killed.
        for path in self.folder.glob(".*.ckpt.*"):
            path.unlink()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Writes last.ckpt where it is due, unless the step ends with a validation."""
        step = trainer.global_step
        due = step % self.every_steps == 0 or ends_training(trainer)
        if due and not self.validates(trainer):
            self.save_last(trainer, pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes a best checkpoint if the CER is among the best, then last.ckpt."""
        self.nonfinite.check_weights(trainer, pl_module)
        cer = float(trainer.callback_metrics["valid_cer"])
        entry = (cer, f"best-step{trainer.global_step:06d}-cer{100 * cer:.2f}.ckpt")
        measured = [] if math.isnan(cer) else [entry]
        ranked = sorted([*self.best, *measured])[: self.top_k]
        dropped = [name for _, name in self.best if name not in {name for _, name in ranked}]
        self.best = ranked
        if entry in ranked:
            trainer.save_checkpoint(self.folder / entry[1])
        # Only after the better one is on the disk.
        for name in dropped:
            trainer.strategy.remove_checkpoint(self.folder / name)
        self.saved_step = -1  # what was saved of this step didn't know its validation
        self.save_last(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes average.ckpt, the mean of the best checkpoints."""
        if trainer.is_global_zero and self.averaged:
            contents = average_checkpoints(self.averaged)
            AtomicCheckpointIO().save_checkpoint(contents, self.folder / "average.ckpt")

    @property
    def averaged(self) -> list[Path]:
        """The checkpoints that go into average.ckpt, the best first; not those taken away."""
        paths = [self.folder / name for _, name in self.best[: self.average_k]]
        return [path for path in paths if path.is_file()]

    def validates(self, trainer: Trainer) -> bool:
        """Returns whether the current step ends with a validation."""
        return trainer.enable_validation and trainer.global_step % self.val_every_steps == 0

    def save_last(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes last.ckpt, unless it is of this step already."""
        if self.saved_step == trainer.global_step:
            return
        self.nonfinite.check_weights(trainer, pl_module)
        self.saved_step = trainer.global_step
        trainer.save_checkpoint(self.folder / "last.ckpt")


def ends_training(trainer: Trainer) -> bool:
    """Returns whether no batch comes after this one."""
    last_epoch = trainer.is_last_batch and trainer.current_epoch + 1 == trainer.max_epochs
    return last_epoch or trainer.global_step == trainer.max_steps


class ValidationSteps(Callback):
    """Validates every so many optimiser steps where gradients are accumulated.

    Lightning counts batches. The last batch of an epoch ends a step, too, even if fewer than
    `accumulate_grad_batches` came since the last step; so batches are no multiple of steps, and a
    count of them would drift away, and validate (and save) amid an accumulation.

    Args:
        every_steps: optimiser steps between two validations.
    """

    def __init__(self, every_steps: int) -> None:
        self.every_steps = every_steps
        self.last_step = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Sets whether the first step is due for a validation."""
        self.last_step = 0  # where a run resumes after a validation, it counts as due, and as done
        self._set_due(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Sets whether the next step is due for a validation."""
        self._set_due(trainer)

    def _set_due(self, trainer: Trainer) -> None:
        step = trainer.global_step
        due = step != self.last_step and step % self.every_steps == 0
        self.last_step = step
        # Lightning validates where the batches so far are a multiple of this.
        trainer.val_check_batch = 1 if due else sys.maxsize


class EarlyStopping(Callback):
    """Ends training where the validation CER hasn't fallen for some validations.

    Validations that decode nothing, while CTC trains alone, don't count. The state is part of every
    checkpoint, so a resumed run stops where an unbroken one does. It must stand before
    `Checkpoints`, which saves it.

    Args:
        patience: validations in a row without a new best.
        min_delta: how much lower than the best so far a CER must be to count, as a share: 0.001 is
            0.1 points.
    """

    def __init__(self, patience: int, min_delta: float = 0.0) -> None:
        self.patience = patience
        self.min_delta = min_delta
        self.best = math.inf
        self.waited = 0

    @property
    def stopped(self) -> bool:
        """Whether there has been no new best for `patience` validations."""
        return self.waited >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """Returns the best CER and the validations since then."""
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores what `state_dict` returned."""
        self.best, self.waited = float(state_dict["best"]), int(state_dict["waited"])

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Ends a resumed training that had already been stopped."""
        # Killed between the last validation's checkpoint and the end.
        trainer.should_stop = trainer.should_stop or self.stopped

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compares the CER with the best, and ends the training after too many worse ones."""
        cer = float(trainer.callback_metrics["valid_cer"])
        if math.isnan(cer):
            return
        if cer < self.best - self.min_delta:
            self.best, self.waited = cer, 0
        else:
            self.waited += 1
        trainer.should_stop = trainer.should_stop or self.stopped

    def describe(self) -> str:
        """Returns a sentence that says why training ended."""
        return (
            f"The validation CER has not fallen below {100 * self.best:.2f}% for {self.waited} "
            "validations: training ends early."
        )
