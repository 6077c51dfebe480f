"""A training step reads values on the host once, for the log: elsewhere an NPU would be waited for.

The step runs on the CPU as it would on an NPU: the alignment for devices without torchaudio's
kernel, an optimiser that isn't fused. The loss itself is counted over the stand-in for CANN
(tests/kernels/standin/test_npu_traffic.py, test_npu_joiner.py).
"""

from unittest import mock

import pytest
import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader

import asr_ascend.losses
from asr_ascend.config.composing import compose_config
from asr_ascend.data.tokenizer import Tokenizer
from asr_ascend.models import build_transducer
from asr_ascend.training import module as module_file
from asr_ascend.training import objective
from asr_ascend.training.ctc_alignment import first_frames_on_device
from asr_ascend.training.module import TransducerModule
from asr_ascend.training.optimizer import build_optimizer
from tests.support.host_reads import host_reads
from tests.support.tiny_runs import TINY
from tests.training.test_training_step import make_batch

# Place: why it waits for no device.
ON_THE_HOST = {
    ("step_sums.py", "add"): "lengths, which are on the CPU",
    ("module.py", "_weight"): "lengths, which are on the CPU",
    ("joiner.py", "packed_cells"): "lengths, which are on the CPU",
    ("objective.py", "_encode"): "lengths, which are on the CPU",
    ("adam.py", "_multi_tensor_adam"): "AdamW's count of steps, which is on the CPU",
    ("optimizer.py", "_get_value"): "AdamW's count of steps, which is on the CPU",
}
THE_LOG = ("step_sums.py", "totals")


def steps(count: int, *overrides: str) -> TransducerModule:
    """Steps of two batches each, as on a device that is no CPU."""
    tokenizer = Tokenizer.train(["甲乙丙丁戊"], blank=0)
    config = compose_config("train", [*TINY, f"trainer.max_steps={count}", *overrides])
    torch.manual_seed(0)
    model = build_transducer(tokenizer.vocab_size, tokenizer.blank, config.model)
    module = TransducerModule(model, tokenizer, config)
    trainer = Trainer(
        accelerator="cpu",
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


@pytest.mark.parametrize(
    "overrides",
    [
        ("loss.ctc_first=0",),
        ("loss.ctc_first=0", "loss.joiner=packed"),
        ("loss.ctc_first=0", "loss.joiner=packed", "loss.fused_log_softmax=false"),
        ("loss.ctc_first=0", "loss.alignment_frames=null", "loss.normalize_by=tokens"),
        ("loss.ctc_first=0", "loss.reduction=mean", "trainer.gradient_clip_val=0.001"),
        ("loss.ctc_first=0", "model=conformer_lstm"),
        ("loss.ctc_first=1",),
    ],
    ids=" ".join,
)
def test_a_step_reads_values_once(overrides):
    def counted(count):
        with host_reads(asr_ascend.losses) as found:
            module = steps(count, *overrides)
        assert module.global_step == count
        return found

    one, three = counted(1), counted(3)
    three.subtract(one)  # what two more steps add
    per_step = {place: times for place, times in three.items() if times}
    assert per_step.pop(THE_LOG) == 2
    assert set(per_step) <= set(ON_THE_HOST), per_step


def test_the_count_sees_a_read():
    """As the step's loss was read before, for every batch."""
    whole = objective.Objective.total

    def reading(self, losses):
        total = whole(self, losses)
        if isinstance(total, torch.Tensor):
            losses.ctc.isfinite().item()
        return total

    with (
        mock.patch.object(objective.Objective, "total", reading),
        host_reads(asr_ascend.losses) as found,
    ):
        steps(1, "loss.ctc_first=0")
    assert found[("module.py", "training_step")] == 2
