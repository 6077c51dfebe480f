"""Training steps on the CPU as they run on a device that is none."""

from __future__ import annotations

from unittest import mock

import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader

from asr_ascend.config.composing import compose_config
from asr_ascend.data.tokenizer import Tokenizer
from asr_ascend.models import build_transducer
from asr_ascend.training import module as module_file
from asr_ascend.training import objective
from asr_ascend.training.ctc_alignment import first_frames_on_device
from asr_ascend.training.module import TransducerModule
from asr_ascend.training.optimizer import build_optimizer
from tests.support.tiny_runs import TINY
from tests.training.test_training_step import make_batch

# What a run may be set to, as far as the operators of a step depend on it.
SETTINGS = (
    ("loss.ctc_first=0",),
    ("loss.ctc_first=0", "loss.joiner=packed"),
    ("loss.ctc_first=0", "loss.joiner=packed", "loss.fused_log_softmax=false"),
    ("loss.ctc_first=0", "loss.alignment_frames=null", "loss.normalize_by=tokens"),
    ("loss.ctc_first=0", "loss.reduction=mean", "trainer.gradient_clip_val=0.001"),
    ("loss.ctc_first=0", "model=conformer_lstm"),
    ("loss.ctc_first=0", "trainer.precision=bf16-mixed", "loss.dtype=bfloat16"),
    ("loss.ctc_first=1",),
)


def steps(count: int, *overrides: str) -> TransducerModule:
    """Steps of two batches each: the alignment for other devices, an optimiser that isn't fused."""
    tokenizer = Tokenizer.train(["甲乙丙丁戊"], blank=0)
    config = compose_config("train", [*TINY, f"trainer.max_steps={count}", *overrides])
    torch.manual_seed(0)
    model = build_transducer(tokenizer.vocab_size, tokenizer.blank, config.model)
    module = TransducerModule(model, tokenizer, config)
    trainer = Trainer(
        accelerator="cpu",
        precision=config.trainer.precision,
        max_steps=count,
        accumulate_grad_batches=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )

    def not_fused(*arguments):
        return build_optimizer(*arguments[:3], False)

    with (
        mock.patch.object(module_file, "build_optimizer", not_fused),
        mock.patch.object(objective, "first_frames", first_frames_on_device),
    ):
        batches = [make_batch([0, 1]), make_batch([2, 3])] * count
        trainer.fit(module, train_dataloaders=DataLoader(batches, batch_size=None))
    return module
