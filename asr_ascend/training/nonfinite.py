"""Steps that are not finite: a loss ends the training, gradients do where they are many."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from asr_ascend.data.dataset import Batch
from asr_ascend.system.atomic import json_line
from asr_ascend.training.callbacks import seed_step
from asr_ascend.training.saved_batch import SavedBatch, statistics_of, write_saved_batch
from asr_ascend.training.step_sums import StepBatch

WINDOW = 100
_RECORDED = 100
_NAMED = 5


class DivergedError(Exception):
    """A training that learns nothing more; the message is for the user."""


class NonfiniteSteps(Callback):
    """Follows the steps that were left out, and ends a training in which they are many.

    A loss that is NaN or infinite ends it at once, and the batch is saved for replay, as
    `nonfinite.step<n>.pt` (see `saved_batch`; on rank r > 0 `nonfinite.step<n>.rank<r>.pt`). But
    with a loss scaler such a step is left out, as long as the scale can still fall: in half
    precision an overflow may be of one batch.

    Each of the first hundred of them is a line of JSON in `nonfinite.jsonl` (on rank r > 0 in
    `nonfinite.rank<r>.jsonl`): the utterances of the step's last batch with their lengths, the
    losses, and what the model makes of this batch. Before the first of them the weights are saved
    in `checkpoints/nonfinite.ckpt`, unless they aren't finite themselves.

    Args:
        folder: of the run.
        limit: so many of the last hundred steps may be left out.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        self.recent: list[int] = []
        self.count = 0
        self.last_step = -1

    def state_dict(self) -> dict[str, Any]:
        """Returns the recent steps that were left out, and the number of all."""
        return {"recent": list(self.recent), "count": self.count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores what `state_dict` returned."""
        self.recent = [int(step) for step in state_dict["recent"]]
        self.count = int(state_dict["count"])

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Sets the step from which steps are counted."""
        self.last_step = trainer.global_step

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Counts and records a step that was left out.

        Raises:
            DivergedError: more of the recent steps were left out than the limit allows.
        """
        step, metrics = trainer.global_step, pl_module.last_step_metrics
        if step == self.last_step:
            return
        self.last_step = step
        if not math.isfinite(metrics["loss"]) and not _scale_can_fall(trainer):  # type: ignore
            self._stop(trainer, pl_module)
        self.recent = [left_out for left_out in self.recent if left_out > step - WINDOW]
        if not metrics["left_out"]:  # type: ignore[index]
            return
        self.recent.append(step)
        self.count += 1
        self._record(trainer, pl_module, batch)
        if len(self.recent) > self.limit:
            raise DivergedError(
                f"Training diverged: {len(self.recent)} of the last {min(step, WINDOW)} steps had "
                f"a gradient that is not finite, and were left out; "
                f"`trainer.max_nonfinite_steps` allows {self.limit}. {self._what_to_do()}"
            )

    def _stop(self, trainer: Trainer, module: Any) -> None:
        """Saves this rank's batches of the step whose loss is not finite, and ends the training."""
        step, rank = trainer.global_step, trainer.global_rank
        bad = [item for item in module.step_batches if _is_bad(item)]
        loss = module.last_step_metrics["loss"]
        told = f"Training diverged: the loss of step {step} is {loss:g}"
        if not bad:
            raise DivergedError(f"{told} by the batch of another rank. {self._what_to_do()}")
        own = "" if rank == 0 else f".rank{rank}"
        path = self.folder / f"nonfinite.step{step}{own}.pt"
        self.folder.mkdir(parents=True, exist_ok=True)
        write_saved_batch(path, _saved(trainer, module, bad[0]))
        raise DivergedError(
            f"{told}; {path} holds its batch, and python -m asr_ascend.doctor --replay {path} "
            f"computes its loss again. {self._what_to_do()}"
        )

    def check_weights(self, trainer: Trainer, model: nn.Module) -> None:
        """Ends the training where weights aren't finite, so that no checkpoint holds them.

        Raises:
            DivergedError: weights aren't finite; the message names the first of them.
        """
        if names := nonfinite_names(model):
            named = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
            raise DivergedError(
                f"Training diverged: by step {trainer.global_step} weights are not finite "
                f"({named}). {self._what_to_do()}"
            )

    def _what_to_do(self) -> str:
        last = self.folder / "checkpoints" / "last.ckpt"
        kept = f"{last} is of a step before. " if last.is_file() else ""
        seen = self.folder / "nonfinite.jsonl"
        shown = f"{seen} lists these steps. " if seen.is_file() else ""
        return (
            f"{shown}{kept}A lower optimizer.lr or trainer.gradient_clip_val, or "
            "trainer.precision=32-true, may help."
        )

    def _record(self, trainer: Trainer, pl_module: LightningModule, batch: Batch) -> None:
        if self.count == 1 and not nonfinite_names(pl_module):
            trainer.save_checkpoint(self.folder / "checkpoints" / "nonfinite.ckpt")
        rank = trainer.global_rank
        path = self.folder / ("nonfinite.jsonl" if rank == 0 else f"nonfinite.rank{rank}.jsonl")
        if self.count <= _RECORDED:
            self.folder.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as stream:
                stream.write(json_line(_describe_step(trainer, pl_module, batch)))
        if rank == 0 and self.count in (1, 10, 100, 1000, 10000):
            left_out = "is left out" if self.count == 1 else f"is the {self.count}th left out"
            print(
                f"Step {trainer.global_step} {left_out}, since its gradient is not finite; {path} "
                "has its utterances.",
                file=sys.stderr,
            )


def nonfinite_names(model: nn.Module) -> list[str]:
    """Returns the names of the parameters that hold a NaN or an infinity.

    It waits for the device once.
    """
    named = dict(model.named_parameters())
    if not named:
        return []
    finite = torch.stack([value.isfinite().all() for value in named.values()]).tolist()
    return [name for name, is_finite in zip(named, finite, strict=True) if not is_finite]


def _scale_can_fall(trainer: Trainer) -> bool:
    """Whether a loss scaler has a scale above 1, which the next steps lower."""
    scaler = getattr(trainer.precision_plugin, "scaler", None)
    return scaler is not None and scaler.get_scale() > 1


def _is_bad(item: StepBatch) -> bool:
    return item.losses is not None and not bool(item.losses.isfinite().all())


def _saved(trainer: Trainer, module: Any, item: StepBatch) -> SavedBatch:
    """The call of the loss as training made it: the weights are the same if the step was left out.

    The seeds of the batch are set again, so that dropout is the same.
    """
    step, rank, epoch = trainer.global_step, trainer.global_rank, trainer.current_epoch
    seed_step(module.options.seed, rank, epoch, item.batch_idx)
    with trainer.precision_plugin.forward_context():
        batch = module.objective.saved_batch(item.batch, module.draw_chunk(step - 1))
    assert item.losses is not None
    names = ("rnnt_loss", "ctc_loss", "distillation_loss", "simple_loss")
    losses = dict(zip(names, item.losses.tolist(), strict=True))
    place = {"step": step, "epoch": epoch, "rank": rank, "batch": item.batch_idx}
    return replace(
        batch,
        about={
            **batch.about,
            **place,
            **losses,
            "left_out": module.last_step_metrics["left_out"],
        },
    )


def _describe_step(trainer: Trainer, pl_module: Any, batch: Batch) -> dict[str, Any]:
    metrics = pl_module.last_step_metrics
    utterances = [
        {"id": utterance, "feature_frames": frames, "tokens": tokens}
        for utterance, frames, tokens in zip(
            batch.ids, batch.feature_lengths.tolist(), batch.target_lengths.tolist(), strict=True
        )
    ]
    return {
        "step": trainer.global_step,
        "epoch": trainer.current_epoch,
        # JSON has no NaN.
        **{key: str(value) for key, value in metrics.items() if key not in ("left_out", "skipped")},
        "utterances": utterances,
        "values": _values(pl_module, batch),
        "weights_not_finite": nonfinite_names(pl_module),
    }


@torch.no_grad()
def _values(pl_module: Any, batch: Batch) -> dict[str, Any]:
    """Statistics of what the model, as it is, makes of a batch."""
    if batch.features.shape[0] == 0:
        return {}
    model = pl_module.model
    encoded, lengths = model.encode(batch.features, batch.feature_lengths)
    found = {
        "features": batch.features,
        "encoder": encoded,
        "ctc_log_probs": model.ctc_log_probs(encoded),
        "logits": model.join_packed(encoded, lengths, batch.targets, batch.target_lengths),
    }
    return {name: statistics_of(value) for name, value in found.items()}
