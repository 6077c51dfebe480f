"""Mixed precision: the loss stays float32, an overflow leaves its step out and training recovers.

The plugin is that of an NPU but for its device: torch's own scaler on the CPU. That an NPU gets
torch_npu's, and autocast of its own type, is in tests/kernels/standin/test_npu_lightning.py.
"""

from dataclasses import replace
from itertools import pairwise
from unittest import mock

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.plugins.precision import MixedPrecision
from torch.utils.data import DataLoader

from asr_ascend.config.composing import compose_config
from asr_ascend.data.tokenizer import Tokenizer
from asr_ascend.losses.joiner.task import Task
from asr_ascend.models import build_transducer
from asr_ascend.training import module as module_file
from asr_ascend.training import objective
from asr_ascend.training.module import TransducerModule
from asr_ascend.training.nonfinite import DivergedError, NonfiniteSteps
from asr_ascend.training.objective import Objective
from asr_ascend.training.optimizer import build_optimizer
from asr_ascend.training.saved_batch import read_saved_batch
from tests.support.tiny_runs import TINY
from tests.training.test_training_step import make_batch


class Watch(Callback):
    """Keeps after each step whether it was left out, the scale, and a weight."""

    def __init__(self):
        self.left_out, self.scales, self.weights = [], [], []

    def on_train_start(self, trainer, pl_module):
        self._keep(trainer, pl_module)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.left_out.append(pl_module.last_step_metrics["left_out"])
        self._keep(trainer, pl_module)

    def _keep(self, trainer, pl_module):
        scaler = trainer.precision_plugin.scaler
        self.scales.append(None if scaler is None else scaler.get_scale())
        self.weights.append(pl_module.model.joiner.output.weight.detach().clone())


def train(folder, steps, *overrides, precision="16-mixed", scale=16.0):
    tokenizer = Tokenizer.train(["甲乙丙丁戊"], blank=0)
    settings = ("loss.ctc_first=0", f"trainer.max_steps={steps}", "optimizer.warmup_steps=0")
    options = compose_config("train", [*TINY, *settings, *overrides])
    torch.manual_seed(0)
    model = build_transducer(tokenizer.vocab_size, tokenizer.blank, options.model)
    module = TransducerModule(model, tokenizer, options)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale) if precision == "16-mixed" else None
    watch = Watch()
    trainer = Trainer(
        accelerator="cpu",
        plugins=[MixedPrecision(precision, "cpu", scaler)],
        max_steps=steps,
        callbacks=[NonfiniteSteps(folder, 50), watch],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    batches = [make_batch([0, 1, 2, 3]) for _ in range(steps)]
    with mock.patch.object(module_file, "build_optimizer", not_fused):
        trainer.fit(module, train_dataloaders=DataLoader(batches, batch_size=None))
    return watch


def not_fused(*arguments):
    """As on an NPU: a fused optimiser would divide by the scale itself, after the clipping."""
    return build_optimizer(*arguments[:3], False)


def times(factor, step):
    """Patches the RNN-T loss of a step: it is multiplied by a factor."""
    whole = Objective.losses

    def changed(self, *arguments):
        changed.steps += 1
        found = whole(self, *arguments)
        return replace(found, rnnt=found.rnnt * factor) if changed.steps == step else found

    changed.steps = 0
    return mock.patch.object(Objective, "losses", changed)


@pytest.mark.parametrize("factor", [1e34, torch.inf, torch.nan], ids=str)
def test_an_overflow_leaves_its_step_out_and_training_recovers(tmp_path, factor):
    with times(factor, step=2):
        watch = train(tmp_path, 4)
    assert watch.left_out == [0, 1, 0, 0]
    assert watch.scales == [16.0, 16.0, 8.0, 8.0, 8.0]
    changed = [not torch.equal(a, b) for a, b in pairwise(watch.weights)]
    assert changed == [True, False, True, True]
    assert not list(tmp_path.glob("*.pt"))


def test_a_loss_that_a_lower_scale_cannot_mend_ends_training(tmp_path):
    with times(torch.nan, step=2), pytest.raises(DivergedError, match="the loss of step 2 is nan"):
        train(tmp_path, 4, scale=1.0)
    saved = read_saved_batch(tmp_path / "nonfinite.step2.pt")
    assert saved.ids == ["0", "1", "2", "3"]
    assert saved.logits.isfinite().all()  # the loss was broken behind them


def test_without_a_scaler_it_ends_at_once(tmp_path):
    with times(torch.inf, step=3), pytest.raises(DivergedError, match="the loss of step 3 is inf"):
        train(tmp_path, 4, precision="bf16-mixed")
    assert (tmp_path / "nonfinite.step3.pt").is_file()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("precision", ["16-mixed", "bf16-mixed"])
def test_the_joiner_is_half_and_the_loss_float32(tmp_path, precision, dtype):
    """The product of the joiner runs in autocast's dtype, the loss takes what `loss.dtype` says."""
    half = torch.float16 if precision == "16-mixed" else torch.bfloat16
    seen = []
    whole_loss, whole_costs = objective.joiner_rnnt_loss, Task.costs_and_gradient

    def loss(encoder, predictor, weight, *arguments, **options):
        seen.append(("product", torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
        found = whole_loss(encoder, predictor, weight, *arguments, **options)
        seen.append(("loss", weight.dtype, found.dtype))
        return found

    def costs(task, logits, problem):
        found = whole_costs(task, logits, problem)
        seen.append(("operator", logits.dtype, found[0].dtype))
        return found

    with (
        mock.patch.object(objective, "joiner_rnnt_loss", loss),
        mock.patch.object(Task, "costs_and_gradient", costs),
    ):
        train(tmp_path, 1, f"loss.dtype={dtype}", precision=precision)
    assert seen[0] == ("product", True, half)
    assert set(seen[1:-1]) == {("operator", getattr(torch, dtype), torch.float32)}
    assert seen[-1] == ("loss", torch.float32, torch.float32)
