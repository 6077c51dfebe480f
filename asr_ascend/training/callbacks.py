"""What surrounds a training step: seeds, noise that rises, the log, progress."""

from __future__ import annotations

import csv
import math
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from asr_ascend.data.dataset import SpeechDataset
from asr_ascend.data.seeding import stable_seed
from asr_ascend.system.atomic import naming_errors, replaced_file
from asr_ascend.system.progress import duration

COLUMNS = (
    "step",
    "epoch",
    "loss",
    "rnnt_loss",
    "ctc_loss",
    "distillation_loss",
    "simple_loss",
    "lr",
    "grad_norm",
    "chunk_frames",
    "utterances",
    "tokens",
    "skipped",
    "left_out",
    "valid_cer",
)


class StepSeeds(Callback):
    """Seeds Python, NumPy and torch before every batch from (seed, rank, batches so far).

    Random states are thus a function of the position in the run. Saved states would not do: making
    a loader's iterator draws from torch's generator, at another moment in a resumed run.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Seeds Python, NumPy and torch for the batch."""
        seed_step(self.seed, trainer.global_rank, trainer.current_epoch, batch_idx)


def seed_step(seed: int, rank: int, epoch: int, batch_idx: int) -> None:
    """Seeds Python, NumPy and torch, on all devices, for the batch of a rank at a place.

    Args:
        seed: of the run.
        rank, epoch, batch_idx: the place.
    """
    drawn = stable_seed("step", seed, rank, epoch, batch_idx)
    random.seed(drawn)
    np.random.seed(drawn % 2**32)  # noqa: NPY002 - users' code may draw from the global state
    torch.manual_seed(drawn)


class NoiseRamp(Callback):
    """Begins with nearly clean speech and lets the noise rise epoch by epoch.

    Heard in full noise from the start, the encoder takes thousands of steps to find the syllables;
    in clean speech it finds them in hundreds, and then learns to hear them through noise. All SNRs
    are raised by `raise_db`, falling linearly to 0 over `epochs`; SpecAugment comes after them.

    Args:
        dataset: the training set, whose `noise` and `spec_augment` are set before each epoch.
        epochs: how long the noise rises; 0: all of it from the start.
        raise_db: what is added to every SNR in the first epoch.
    """

    def __init__(self, dataset: SpeechDataset, epochs: int, raise_db: float) -> None:
        self.dataset = dataset
        self.epochs = epochs
        self.raise_db = raise_db
        self.noise, self.spec_augment = dataset.noise, dataset.spec_augment

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Sets the noise of the epoch in which a run resumes."""
        self.set_epoch(trainer.current_epoch)  # a run that resumes within an epoch starts none

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Sets the noise of the epoch that starts."""
        self.set_epoch(trainer.current_epoch)

    def set_epoch(self, epoch: int) -> None:
        """Sets the noise and SpecAugment of an epoch, which depend only on its number."""
        rest = max(0.0, 1 - epoch / self.epochs) if self.epochs else 0.0
        self.dataset.spec_augment = None if rest else self.spec_augment
        if self.noise is not None:
            low, high = self.noise.snr_db
            added = rest * self.raise_db
            self.dataset.noise = replace(self.noise, snr_db=(low + added, high + added))


class StepLog(Callback):
    """Writes a row per optimiser step, and one per validation, to metrics.csv and TensorBoard.

    On resume, rows after the checkpoint's step are dropped, so that the file is an unbroken run's.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last_step = -1

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts metrics.csv, keeping the rows up to the step that a run resumes from."""
        if not trainer.is_global_zero:
            return
        self.last_step = trainer.global_step
        kept = self._rows_until(trainer.global_step) if trainer.global_step > 0 else []
        with (
            replaced_file(self.path) as temporary,
            temporary.open("w", newline="", encoding="utf-8") as stream,
        ):
            writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(kept)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Writes the row of an optimiser step once it is done."""
        if trainer.global_step != self.last_step:
            self.last_step = trainer.global_step
            self._write(trainer, pl_module.last_step_metrics)  # type: ignore[arg-type]

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the row of a validation, unless nothing was decoded."""
        cer = float(trainer.callback_metrics["valid_cer"])
        if not math.isnan(cer):
            self._write(trainer, {"valid_cer": cer})

    def total(self, column: str) -> int:
        """Sums a column over all steps.

        Args:
            column: "skipped": utterances of all ranks that could not be used when their batch came;
                "left_out": steps whose gradient was not finite.
        """
        with self.path.open(newline="", encoding="utf-8") as stream:
            return sum(int(row[column] or 0) for row in csv.DictReader(stream))

    def _write(self, trainer: Trainer, values: dict[str, Any]) -> None:
        if not trainer.is_global_zero:
            return
        row = {"step": trainer.global_step, "epoch": trainer.current_epoch, **values}
        with (
            naming_errors(self.path),
            self.path.open("a", newline="", encoding="utf-8") as stream,
        ):
            csv.DictWriter(stream, COLUMNS, lineterminator="\n").writerow(row)
        if trainer.logger is not None:
            numbers = {k: v for k, v in values.items() if isinstance(v, int | float)}
            with naming_errors(Path(trainer.logger.log_dir or self.path.parent)):
                trainer.logger.log_metrics(numbers, step=trainer.global_step)

    def _rows_until(self, step: int) -> list[dict[str, str]]:
        if not self.path.is_file():
            return []
        with self.path.open(newline="", encoding="utf-8") as stream:
            # A line cut off by a kill has no number in its first columns, or too few of them.
            return [
                {column: row.get(column) or "" for column in COLUMNS}
                for row in csv.DictReader(stream)
                if (row.get("step") or "").isdigit() and int(row["step"]) <= step
            ]


class StepProgress(Callback):
    """A bar on stderr over all optimiser steps; plain lines where stderr is no terminal.

    Args:
        lines_every_steps: optimiser steps between two plain lines.
        memory: gives what the device's memory is at, for the line; None: nothing of it is shown.
    """

    def __init__(
        self, lines_every_steps: int = 100, memory: Callable[[], str] | None = None
    ) -> None:
        self.memory = memory
        self.console = Console(stderr=True, soft_wrap=True)
        self.lines_every_steps = lines_every_steps
        self.bar: Progress | None = None
        self.task: Any = None
        self.first_step = self.last_step = 0
        self.started = 0.0
        self.valid_cer = math.nan

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the bar, or the clock of the plain lines."""
        if not trainer.is_global_zero:
            return
        self.total = int(trainer.estimated_stepping_batches)
        self.first_step = self.last_step = trainer.global_step
        self.started = time.monotonic()
        if self.console.is_terminal:
            self.bar = Progress(
                TextColumn("training"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[state]}"),
                console=self.console,
            )
            self.task = self.bar.add_task("", total=self.total, state="")
            self.bar.start()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Moves the bar on, or prints a line every `lines_every_steps` steps."""
        step = trainer.global_step
        if not trainer.is_global_zero or step == self.last_step:
            return
        self.last_step = step
        state = self._state(pl_module.last_step_metrics, step)  # type: ignore[arg-type]
        if self.bar is not None:
            self.bar.update(self.task, completed=step, state=state)
        elif step % self.lines_every_steps == 0 or step == self.total:
            self.console.print(f"step {step}/{self.total}  {state}{self._left(step)}")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Prints the CER of the validation."""
        self.valid_cer = float(trainer.callback_metrics["valid_cer"])
        if trainer.is_global_zero and not math.isnan(self.valid_cer):
            self.console.print(
                f"step {trainer.global_step}/{self.total}  "
                f"streaming CER on the validation set {100 * self.valid_cer:.2f}%"
            )

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stops the bar."""
        self._stop()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Stops the bar, so that the error's message stands alone."""
        self._stop()

    def _stop(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def _state(self, metrics: dict[str, Any], step: int) -> str:
        speed = (step - self.first_step) / max(time.monotonic() - self.started, 1e-9)
        loss = metrics.get("rnnt_loss")
        name, nats = ("RNN-T", loss) if isinstance(loss, float) else ("CTC", metrics["ctc_loss"])
        cer = "" if math.isnan(self.valid_cer) else f"  CER {100 * self.valid_cer:.1f}%"
        memory = "" if self.memory is None else f"  {self.memory()}"
        return f"{name} {nats:.2f} nats{cer}  {speed:.1f} steps/s{memory}"

    def _left(self, step: int) -> str:
        """Time that the steps to come will take, if they take as long as those before."""
        if step == self.total or step == self.first_step:
            return ""
        seconds = (time.monotonic() - self.started) / (step - self.first_step)
        return f", about {duration(seconds * (self.total - step))} left"
