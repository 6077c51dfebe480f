"""The doctor over the stand-in: the whole way to the kernel, and no claim about a chip."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from asr_ascend.doctor import command, loss_check, replay
from asr_ascend.doctor.machine import Machine
from asr_ascend.training.saved_batch import SavedBatch, write_saved_batch


def test_the_loss_is_right() -> None:
    assert loss_check.check("npu") == {"wrong": [], "dtypes": ["float32", "float16", "bfloat16"]}


def test_a_saved_batch_runs(tmp_path: Path) -> None:
    batch = SavedBatch(
        ids=["a", "b"],
        targets=torch.tensor([[1, 2], [3, 0]]),
        logit_lengths=torch.tensor([4, 3]),
        target_lengths=torch.tensor([2, 1]),
        blank=0,
        logits=torch.randn(18, 5, generator=torch.Generator().manual_seed(1)).half(),
    )
    write_saved_batch(tmp_path / "batch.pt", batch)
    found = replay.compare(str(tmp_path / "batch.pt"), "npu")
    assert (found["refused"], found["fault"]) == (None, None)


def test_the_table() -> None:
    sections = command.examine(Machine(variables=dict(os.environ)))
    lines = {line.subject: line for section in sections for line in section.lines}
    assert lines["torch_npu"].found == (
        "2.13.0 (released with CANN 9.2.0) sees 1 device(s): the stand-in for CANN, no chip"
    )
    assert lines["operator package"].status == "ok"
    assert lines["operator package"].found.endswith("; its 6 functions load")
    assert lines["CANN libraries"].status == "ok"
    assert (lines["loss on npu"].status, lines["loss on npu"].found) == (
        "ok",
        "right in float32, float16 and bfloat16, by the reference in float64 (over the stand-in "
        "for CANN, no chip)",
    )
