"""Devices of a training on a machine without an NPU: an error where one is asked for, never a CPU.

What needs an NPU is in tests/kernels/standin/test_npu_lightning.py.
"""

import types
from unittest import mock

import pytest
import torch

from asr_ascend.config.keys import ConfigError
from asr_ascend.config.train_options import TrainerOptions
from asr_ascend.training import devices, npu
from asr_ascend.training.callbacks import StepProgress
from asr_ascend.training.ranks import RanksStrategy
from tests.support.tiny_runs import TINY, run, write_corpus

no_npu = pytest.mark.skipif(npu.missing_npu() is None, reason="there is an NPU")


@no_npu
def test_an_npu_that_is_not_there_is_one_sentence(tmp_path):
    manifest = write_corpus(tmp_path / "corpus")
    settings = (*TINY, f"data.train_manifest={manifest}", "trainer.accelerator=npu")
    for more in ((), ("trainer.devices=8",), ("trainer.precision=16-mixed",)):
        done = run("train", *settings, *more, folder=tmp_path)
        assert done.returncode == 2
        assert done.stderr == (
            "Error: `trainer.accelerator` is npu, but there is no NPU here: torch_npu is not "
            "installed. Nothing is trained on the CPU unless trainer.accelerator=cpu says so.\n"
        )
        assert not (tmp_path / "outputs").exists()


@no_npu
def test_auto_takes_what_lightning_finds_then():
    assert devices.chosen_accelerator("auto") == "auto"
    assert devices.trainer_arguments(TrainerOptions(accelerator="auto"))["accelerator"] == "auto"


def test_a_torch_npu_without_an_npu_is_told_apart():
    """Fakes torch.npu."""
    fake = types.SimpleNamespace(is_available=lambda: False, device_count=lambda: 0)
    with mock.patch.object(torch, "npu", fake, create=True):
        assert npu.missing_npu() == (
            "torch_npu is installed, but finds no NPU (npu-smi info lists what the driver sees)"
        )
        assert npu.NpuAccelerator.auto_device_count() == 0
        with pytest.raises(ConfigError, match="there is no NPU here: torch_npu is installed, but"):
            devices.chosen_accelerator("npu")


def test_several_processes_on_the_cpu_get_the_strategy_with_sentences():
    def strategy(**keys):
        options = TrainerOptions(accelerator="cpu", timeout_seconds=9, **keys)
        return devices.trainer_arguments(options)["strategy"]

    assert strategy() == "auto"
    assert strategy(strategy="ddp_spawn", devices=2) == "ddp_spawn"
    for keys in ({"devices": 2}, {"devices": "2"}, {"num_nodes": 2}, {"strategy": "ddp"}):
        found = strategy(**keys)
        assert type(found) is RanksStrategy
        assert found._timeout.total_seconds() == 9


def test_memory_stands_in_the_line_of_progress():
    progress = StepProgress(memory=lambda: "1.5/64 GiB")
    line = progress._state({"rnnt_loss": 2.5}, 3)
    assert line.startswith("RNN-T 2.50 nats  ")
    assert line.endswith(" steps/s  1.5/64 GiB")
