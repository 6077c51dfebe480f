"""Training whose recordings have gone, as when a disk is taken away: it ends with a sentence."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

_LIMIT = 5


class UnheardError(Exception):
    """A training that hears nothing any more; the message is for the user."""


class UnheardSteps(Callback):
    """Ends a training in which no utterance of some steps in a row could be used.

    Such steps have no gradient; training would go on to its end without learning anything. It must
    stand before `Checkpoints`, so that the step that ends the training isn't saved.
    """

    def __init__(self) -> None:
        self.last_step = -1
        self.in_a_row = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Sets the step from which steps are counted."""
        self.last_step = trainer.global_step

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Counts steps in a row in which no utterance could be used.

        Raises:
            UnheardError: there were too many.
        """
        if trainer.global_step == self.last_step:
            return
        self.last_step = trainer.global_step
        metrics: Any = pl_module.last_step_metrics
        unheard = metrics["utterances"] == 0 and metrics["skipped"] > 0
        self.in_a_row = self.in_a_row + 1 if unheard else 0
        if self.in_a_row == _LIMIT:
            raise UnheardError(
                f"Training hears nothing any more: of steps {self.last_step - _LIMIT + 1} to "
                f"{self.last_step} no utterance could be used. The warnings above say why; are the "
                "recordings still where the manifest says? resume=true goes on from the run's last "
                "checkpoint."
            )
