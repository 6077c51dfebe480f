"""A training step reads values on the host once, for the log: elsewhere an NPU would be waited for.

The step runs on the CPU as it would on an NPU: the alignment for devices without torchaudio's
kernel, an optimiser that isn't fused. The loss itself is counted over the stand-in for CANN
(tests/kernels/standin/test_npu_traffic.py, test_npu_joiner.py).
"""

from unittest import mock

import pytest
import torch

import asr_ascend.losses
from asr_ascend.training import objective
from tests.support.device_steps import SETTINGS, steps
from tests.support.host_reads import host_reads

# Place: why it waits for no device.
ON_THE_HOST = {
    ("step_sums.py", "add"): "lengths, which are on the CPU",
    ("module.py", "_weight"): "lengths, which are on the CPU",
    ("joiner.py", "packed_cells"): "lengths, which are on the CPU",
    ("objective.py", "_encode"): "lengths, which are on the CPU",
    ("objective.py", "losses"): "lengths, which are on the CPU",
    ("joiner.py", "_band_cells"): "a band on the CPU, where its rows were counted",
    (
        "lattice_bands.py",
        "cells",
    ): "lengths, and each batch's windows: how many rows their band has",
    ("adam.py", "_multi_tensor_adam"): "AdamW's count of steps, which is on the CPU",
    ("optimizer.py", "_get_value"): "AdamW's count of steps, which is on the CPU",
}
THE_LOG = ("step_sums.py", "totals")


@pytest.mark.parametrize(
    "overrides",
    SETTINGS,
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

    def reading(self, losses, rnnt_steps):
        total = whole(self, losses, rnnt_steps)
        if isinstance(total, torch.Tensor):
            losses.ctc.isfinite().item()
        return total

    with (
        mock.patch.object(objective.Objective, "total", reading),
        host_reads(asr_ascend.losses) as found,
    ):
        steps(1, "loss.ctc_first=0")
    assert found[("module.py", "training_step")] == 2
