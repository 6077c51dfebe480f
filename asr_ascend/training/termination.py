"""SIGTERM, with which a cluster announces that it needs the machine, and Ctrl-C: training saves.

A second Ctrl-C ends the program at once.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from asr_ascend.training.saving import Checkpoints, ends_training

_SAVING = b"Saving after this step; Ctrl-C again ends at once.\n"
_AT_ONCE = b"Interrupted; what came after the last checkpoint is lost.\n"


class Terminated(Exception):
    """Training was asked to end, and has saved.

    Args:
        by: the signal that asked.
        step: after which training ended.
    """

    def __init__(self, by: signal.Signals, step: int) -> None:
        how = "Interrupted" if by == signal.SIGINT else f"Ended by {by.name}"
        super().__init__(f"{how} after step {step}")
        self.status = 128 + by  # what a shell gives a program that a signal ended


class Termination(Callback):
    """Saves last.ckpt at the end of the step in which a signal came, and ends the training.

    Where the step ends with a validation, it is saved after it. It must stand after `Checkpoints`.

    Args:
        checkpoints: writes last.ckpt.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self.checkpoints = checkpoints
        self.asked: signal.Signals | None = None
        self.last_step = -1
        self.tells = True
        self._interrupt: Any = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Takes over SIGTERM and Ctrl-C."""
        self.last_step = trainer.global_step
        self.module: Any = pl_module
        self.tells = trainer.is_global_zero
        # Lightning's own answer, which it takes away at the end, saves nothing and ends with 0.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._hear)
            self._interrupt = signal.signal(signal.SIGINT, self._hear)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Gives the signals back."""
        self._give_back()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Gives the signals back."""
        self._give_back()

    def _give_back(self) -> None:
        if self._interrupt is not None:
            signal.signal(signal.SIGINT, self._interrupt)
            self._interrupt = None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Ends training after the step if a signal asked for it."""
        if trainer.global_step != self.last_step and not self.checkpoints.validates(trainer):
            # The sums of a step hold who was asked when it began to end: no wait of its own.
            several: Any = trainer.world_size > 1
            asked = pl_module.ranks_asked_to_end if several else self.asked is not None
            self._end(trainer, pl_module, bool(asked))
        self.last_step = trainer.global_step

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Ends training after the validation if a signal asked for it."""
        asked = trainer.strategy.reduce_boolean_decision(self.asked is not None, all=False)
        self._end(trainer, pl_module, asked)

    def _end(self, trainer: Trainer, pl_module: LightningModule, asked: bool) -> None:
        # All ranks end at the same step, whichever was asked.
        if asked and not ends_training(trainer):
            self.checkpoints.save_last(trainer, pl_module)
            raise Terminated(self.asked or signal.SIGTERM, trainer.global_step)

    def _hear(self, number: int, _: Any) -> None:
        # Nothing is printed through sys.stderr here: it may be in the middle of a line.
        again = number == self.asked == signal.SIGINT
        if number == signal.SIGINT and self.tells:
            os.write(2, _AT_ONCE if again else _SAVING)
        if again:
            os._exit(128 + signal.SIGINT)
        self.asked = signal.Signals(number)
        self.module.asked_to_end = True
