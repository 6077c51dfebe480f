"""The training step: dynamic chunks, CTC first, then RNN-T with CTC beside it."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from asr_ascend.checkpoints import checkpoint
from asr_ascend.checkpoints.fields import KEY
from asr_ascend.config.frames import chunk_frames
from asr_ascend.config.train_options import TrainOptions
from asr_ascend.data.datamodule import Batch
from asr_ascend.data.seeding import stable_seed
from asr_ascend.data.tokenizer import Tokenizer
from asr_ascend.decoding import greedy_decode
from asr_ascend.decoding.metrics import ErrorCounts, character_errors
from asr_ascend.training.objective import Losses, Objective
from asr_ascend.training.optimizer import build_optimizer, frozen_modules, parameter_groups
from asr_ascend.training.position import set_position
from asr_ascend.training.restoring import check_optimizer_states
from asr_ascend.training.step_sums import StepBatch, StepSums, StepTotals, totals
from asr_ascend.training.teacher import Teacher


class TransducerModule(LightningModule):
    """Trains a transducer with the fused RNN-T loss and an auxiliary CTC loss.

    The first `loss.ctc_first` of the optimiser steps train with CTC alone, the others with
    RNN-T + `loss.ctc_weight` CTC + `distillation.weight` divergence from the teacher, if there is
    one. Each step draws a chunk size, so that one model serves several latencies. Losses (see
    `Objective`) are summed over utterances; the gradients are divided once, before the
    optimiser, by the utterances (or tokens) of the whole step over accumulation and ranks.

    Args:
        model: from `build_transducer`.
        tokenizer: whose blank the model was built with.
        options: of the training.
        teacher: as `distillation.teacher` says.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Tokenizer,
        options: TrainOptions,
        teacher: Teacher | None = None,
    ) -> None:
        super().__init__()
        self.model: Any = model
        self.tokenizer = tokenizer
        self.teacher = teacher
        self.options = options
        self.last_step_metrics: dict[str, Any] = {}
        self.asked_to_end = False  # of this rank, by a signal
        self.ranks_asked_to_end = False  # of any rank, when the last step ended
        self.ctc_only_steps = 0
        self.objective = Objective(
            model, tokenizer.blank, options.loss, options.distillation, teacher
        )
        self.frozen = frozen_modules(model, options.trainer.freeze)
        self.train()
        self._valid_errors = ErrorCounts()
        self._has_simple_loss = options.loss.band == "simple"
        self.step_sums = StepSums()
        self.step_batches: list[StepBatch] = []  # of the last step
        self._step_values = torch.zeros(0)

    def train(self, mode: bool = True) -> TransducerModule:
        """Sets the mode; frozen modules stay in evaluation mode, without dropout."""
        super().train(mode)
        for module in self.frozen:
            module.eval()
        return self

    def on_fit_start(self) -> None:
        """Sets the number of steps that train only CTC, and moves the teacher to the device."""
        total = int(self.trainer.estimated_stepping_batches)
        self.ctc_only_steps = int(self.options.loss.ctc_first * total)
        if self.teacher is not None:
            self.teacher.to(self.device)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Computes the loss of one batch, not yet divided by the step's weight.

        An empty batch gives a zero that depends on every parameter.
        """
        if batch.features.shape[0] == 0:
            loss = self._zero_loss(self)
            self.step_sums.add(batch_idx, batch, 0, None)
        else:
            ctc_only = self.global_step < self.ctc_only_steps
            chunks = self.draw_chunk(self.global_step)
            losses = self.objective.losses(batch, chunks, ctc_only)
            loss = self.objective.total(losses, self._rnnt_steps())
            if ctc_only:
                simple = [] if self.model.simple_heads is None else [self.model.simple_heads]
                unused = self.model.predictor, self.model.joiner, *simple
                loss = loss + self._zero_loss(*unused)
            elif self.options.loss.ctc_weight == 0:
                loss = loss + self._zero_loss(self.model.ctc_head)
            self.step_sums.add(batch_idx, batch, self._weight(batch), losses)
        # Lightning divides by the accumulation; the division by `weight` is ours.
        return loss * self.trainer.accumulate_grad_batches

    def draw_chunk(self, step: int) -> tuple[int | None, int | None]:
        """Draws chunk (encoder frames) and left context (chunks) of an optimiser step; None: all.

        The same seed and step give the same draw.
        """
        trainer = self.options.trainer
        draws = random.Random(stable_seed("chunk", self.options.seed, step))
        chunk = draws.choice(trainer.chunk_frames)
        return (chunk, draws.choice(trainer.left_chunks)) if chunk else (None, None)

    def _zero_loss(self, *unused: nn.Module) -> Tensor:
        """Returns a zero that depends on the parameters of modules that the loss doesn't use.

        So they get a zero gradient, and all ranks reduce the same set.
        """
        parameters = [p for module in unused for p in module.parameters() if p.requires_grad]
        zero: Tensor = _Zero.apply(self.device, *parameters)
        return zero

    def _rnnt_steps(self) -> int:
        """Optimiser steps with the transducer's loss before this one."""
        return self.global_step - self.ctc_only_steps

    def _weight(self, batch: Batch) -> int:
        """What a batch counts in the division of the step's gradient."""
        if self.options.loss.reduction == "mean":
            return 1
        if self.options.loss.normalize_by == "tokens":
            return int(batch.target_lengths.sum())
        return int(batch.features.shape[0])

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Divides the gradients by the weight of the whole step, over accumulation and ranks."""
        sums, world = self.step_sums, self.trainer.world_size
        values = sums.on_device(self.device, self.asked_to_end)
        scale: float | Tensor = 1 / max(sums.counts[0], 1.0)
        if world > 1:
            values = self.trainer.strategy.reduce(values, reduce_op="sum")
            scale = world / values[0].clamp(min=1)  # stays on the device
        for parameter in self.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(scale)
        self._step_values = values
        self.step_batches, self.step_sums = sums.batches, StepSums()

    def configure_gradient_clipping(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        """Clips the norm of all gradients; a step whose gradient is not finite is left out.

        Here the step's numbers come to the host, once, for the log and for this decision.
        """
        limit = self.options.trainer.gradient_clip_val
        parameters = [p for p in self.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        step = totals(self._step_values, norm)
        # Most steps are within the limit; torch's own clipping multiplies all gradients by 1 then.
        if limit and not step.grad_norm < limit:
            nn.utils.clip_grads_with_norm_(parameters, limit, norm)
        self._set_metrics(step, optimizer.param_groups[0]["lr"])
        if self.last_step_metrics["left_out"]:
            optimizer.zero_grad(set_to_none=True)

    def _set_metrics(self, step: StepTotals, lr: float) -> None:
        ctc_only = self.global_step < self.ctc_only_steps
        divisor = max(step.weight, 1.0)
        means = Losses(step.ctc / divisor)
        if not ctc_only:
            taught = None if self.teacher is None else step.distillation / divisor
            simple = step.simple / divisor if self._has_simple_loss else None
            means = Losses(means.ctc, step.rnnt / divisor, taught, simple)
        self.ranks_asked_to_end = step.asked_to_end > 0
        self.last_step_metrics = {
            "loss": self.objective.total(means, self._rnnt_steps()),
            "rnnt_loss": "" if means.rnnt is None else means.rnnt,
            "ctc_loss": means.ctc,
            "distillation_loss": "" if means.distillation is None else means.distillation,
            "simple_loss": "" if means.simple is None else means.simple,
            "lr": lr,
            "chunk_frames": self.draw_chunk(self.global_step)[0] or 0,
            "utterances": int(step.utterances),
            "tokens": int(step.tokens),
            "skipped": int(step.skipped),
            "grad_norm": step.grad_norm,
            "left_out": int(not math.isfinite(step.grad_norm)),
        }

    def on_validation_epoch_start(self) -> None:
        """Sets the counts of errors to zero."""
        self._valid_errors = ErrorCounts()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Decodes greedily in chunks, as a stream would.

        Nothing is decoded while only CTC is trained.
        """
        if batch.features.shape[0] == 0 or self.global_step <= self.ctc_only_steps:
            return
        chunk = chunk_frames(self.options.trainer.val_chunk_ms)
        left = None if chunk is None else self.options.trainer.left_chunks[0]
        encoded, lengths = self.model.encode(batch.features, batch.feature_lengths, chunk, left)
        for index, hypothesis in enumerate(greedy_decode(self.model, encoded, lengths)):
            reference = batch.targets[index, : int(batch.target_lengths[index])].tolist()
            texts = self.tokenizer.decode(reference), self.tokenizer.decode(hypothesis.tokens)
            self._valid_errors += character_errors(*texts)

    def on_validation_epoch_end(self) -> None:
        """Logs the CER over all ranks as `valid_cer`, NaN where nothing was decoded."""
        errors = self._valid_errors
        counts = torch.tensor([errors.errors, errors.reference_length], dtype=torch.float64)
        if self.trainer.world_size > 1:
            counts = self.trainer.strategy.reduce(counts.to(self.device), reduce_op="sum").cpu()
        self.log(
            "valid_cer", counts[0] / counts[1], sync_dist=True
        )  # NaN where nothing was decoded

    def configure_optimizers(self) -> Any:
        """Builds the optimiser, and the schedule that is advanced at every step."""
        total = int(self.trainer.estimated_stepping_batches)
        fused = self.device.type == "cpu"  # saves 6% of a small model's step
        optimizer, schedule = build_optimizer(self.model, self.options.optimizer, total, fused)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    def on_load_checkpoint(self, saved: dict[str, Any]) -> None:
        """Makes Lightning's saved progress agree with the loader's; see `set_position`."""
        check_optimizer_states(saved, parameter_groups(self.model, self.options.optimizer))
        set_position(saved["loops"]["fit_loop"])

    def on_save_checkpoint(self, saved: dict[str, Any]) -> None:
        """Adds tokenizer and config to the checkpoint."""
        saved[KEY] = checkpoint.describe(self.tokenizer, self.options.plain())


class _Zero(torch.autograd.Function):
    """Zero, whose gradient is zero for every tensor that it is given."""

    @staticmethod
    def forward(ctx: Any, device: torch.device, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        return torch.zeros((), device=device)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        return None, *(torch.zeros_like(tensor) for tensor in ctx.saved_tensors)
