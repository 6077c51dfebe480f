"""SIGTERM, with which a cluster announces that it needs the machine: training saves and ends."""

from __future__ import annotations

import signal
import threading
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from asr_ascend.training.saving import Checkpoints, ends_training

# What a shell gives a program that SIGTERM ended.
TERMINATED = 128 + signal.SIGTERM


class Terminated(Exception):
    """Training was asked to end, and has saved."""


class Termination(Callback):
    """Saves last.ckpt at the end of the step in which SIGTERM came, and ends the training.

    Where the step ends with a validation, it is saved after it. It must stand after `Checkpoints`.

    Args:
        checkpoints: writes last.ckpt.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self.checkpoints = checkpoints
        self.asked = False
        self.last_step = -1

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts to listen for SIGTERM."""
        self.last_step = trainer.global_step
        self.module: Any = pl_module
        # Lightning's own answer, which it takes away at the end, saves nothing and ends with 0.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._hear)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Ends the training after the step, if SIGTERM came and no validation follows."""
        if trainer.global_step != self.last_step and not self.checkpoints.validates(trainer):
            # The sums of a step hold who was asked when it began to end: no wait of its own.
            several: Any = trainer.world_size > 1
            asked = pl_module.ranks_asked_to_end if several else self.asked
            self._end(trainer, pl_module, bool(asked))
        self.last_step = trainer.global_step

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Ends the training after the validation, if SIGTERM came."""
        asked = trainer.strategy.reduce_boolean_decision(self.asked, all=False)
        self._end(trainer, pl_module, asked)

    def _end(self, trainer: Trainer, pl_module: LightningModule, asked: bool) -> None:
        # All ranks end at the same step, whichever was asked.
        if asked and not ends_training(trainer):
            self.checkpoints.save_last(trainer, pl_module)
            raise Terminated(f"Ended by SIGTERM after step {trainer.global_step}")

    def _hear(self, *_: Any) -> None:
        self.asked = True
        self.module.asked_to_end = True
