"""Lightning's accelerator and strategies for NPUs, over the real torch_npu and the stand-in.

Each test names the place where Lightning 2.6.6 hard-codes another device. The stand-in has one
device and no HCCL: where a test needs more, it fakes one call, and says which.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.accelerators import AcceleratorRegistry
from torch.utils.data import DataLoader

from asr_ascend.config.keys import ConfigError
from asr_ascend.config.train_options import TrainerOptions
from asr_ascend.losses import rnnt_loss
from asr_ascend.training import devices, npu, ranks

QUIET = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


def make_trainer(callbacks: tuple = (), max_steps: int = 3, **keys: object) -> Trainer:
    options = TrainerOptions(**{"accelerator": "npu", **keys})
    arguments = devices.trainer_arguments(options)
    return Trainer(**arguments, **QUIET, max_steps=max_steps, callbacks=list(callbacks))


def eight_npus() -> mock._patch:
    """The one call that is faked."""
    return mock.patch.object(torch.npu, "device_count", lambda: 8)


class TinyModule(LightningModule):
    """A joiner of one layer under the RNN-T loss; it keeps what each step gave."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.output = torch.nn.Linear(4, 7)
        self.seen: list[tuple[torch.device, torch.dtype, float]] = []

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        logits = self.output(batch)
        lengths = torch.tensor([4]), torch.tensor([1])
        targets = torch.tensor([[3]], device=batch.device)
        loss = rnnt_loss(logits, targets, *lengths, blank=0)
        self.seen.append((logits.device, logits.dtype, loss.item()))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, foreach=False)


def batches() -> DataLoader:
    draws = torch.Generator().manual_seed(1)
    data = [torch.randn(8, 4, generator=draws) for _ in range(3)]
    return DataLoader(data, batch_size=None)


def test_the_name_is_registered_and_auto_finds_it() -> None:
    """`_select_auto_accelerator` knows TPU, MPS and CUDA; ours is asked before it."""
    assert AcceleratorRegistry["npu"]["accelerator"] is npu.NpuAccelerator
    assert npu.NpuAccelerator.is_available()
    assert npu.NpuAccelerator.auto_device_count() == 1
    assert npu.missing_npu() is None
    assert devices.chosen_accelerator("auto") == "npu"
    assert devices.chosen_accelerator("cpu") == "cpu"
    trainer = make_trainer(accelerator="auto", devices="auto")
    assert isinstance(trainer.accelerator, npu.NpuAccelerator)
    assert trainer.strategy.root_device == torch.device("npu", 0)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *((1, [0]), (8, list(range(8))), (-1, list(range(8))), ("-1", list(range(8)))),
        *(("3", [0, 1, 2]), ("0,2", [0, 2]), ([7], [7]), ("5,", [5])),
    ],
)
def test_devices_are_parsed(given: object, expected: list[int]) -> None:
    """Fakes torch.npu.device_count."""
    with eight_npus():
        assert npu.NpuAccelerator.parse_devices(given) == expected
    found = npu.NpuAccelerator.get_parallel_devices(expected)
    assert found == [torch.device("npu", index) for index in expected]


@pytest.mark.parametrize("given", [0, "", "all", "0,0", [1.0], True, "0,-1"])
def test_devices_that_are_none(given: object) -> None:
    with pytest.raises(MisconfigurationException, match=r"^`devices` must be "):
        npu.NpuAccelerator.parse_devices(given)


def test_more_npus_than_there_are() -> None:
    with pytest.raises(ConfigError) as caught:
        devices.trainer_arguments(TrainerOptions(accelerator="npu", devices=8))
    assert str(caught.value) == (
        "`trainer.devices` must be among the NPUs here, which are 1, but 8 asks for the one of "
        "index 1."
    )


def test_one_device_gets_a_strategy_of_the_npu() -> None:
    """`_choose_strategy` gives an unknown accelerator with one device that of the CPU."""
    trainer = make_trainer()
    assert type(trainer.strategy) is npu.SingleNpuStrategy
    assert trainer.strategy.root_device == torch.device("npu:0")


def test_without_it_the_accelerator_refuses_the_cpu() -> None:
    trainer = Trainer(accelerator="npu", devices=1, max_steps=1, **QUIET)
    assert trainer.strategy.root_device == torch.device("cpu")  # what Lightning chose
    with pytest.raises(MisconfigurationException, match=r"must use an NPU .* but uses cpu"):
        trainer.fit(TinyModule(), batches())


def test_a_training_runs_on_the_npu_and_learns_what_the_cpu_learns() -> None:
    on_npu, on_cpu = TinyModule(), TinyModule()
    make_trainer().fit(on_npu, batches())
    make_trainer(accelerator="cpu").fit(on_cpu, batches())
    assert [device for device, _, _ in on_npu.seen] == [torch.device("npu:0")] * 3
    losses, expected = ([loss for _, _, loss in module.seen] for module in (on_npu, on_cpu))
    assert losses == pytest.approx(expected, rel=1e-5)
    assert "GiB" in npu.memory_line()
    stats = npu.NpuAccelerator().get_device_stats(torch.device("npu:0"))
    assert stats["memory.total"] >= stats["memory.free"] > 0
    assert stats["allocated_bytes.all.peak"] > 0


@pytest.mark.parametrize(
    ("precision", "dtype"), [("bf16-mixed", torch.bfloat16), ("16-mixed", torch.float16)]
)
def test_mixed_precision_is_the_npus(precision: str, dtype: torch.dtype) -> None:
    """`_check_and_init_precision` gives any other accelerator than cpu and mps that of CUDA."""
    plugin = make_trainer(precision=precision).precision_plugin
    assert (plugin.precision, plugin.device) == (precision, "npu")
    if dtype == torch.float16:
        assert type(plugin.scaler) is torch.npu.amp.GradScaler
        assert plugin.scaler.is_enabled()
    else:
        assert plugin.scaler is None
    with plugin.forward_context():
        assert torch.is_autocast_enabled("npu")
        assert not torch.is_autocast_enabled("cpu")
        assert (torch.randn(3, 4).npu() @ torch.randn(4, 2).npu()).dtype == dtype
    module = TinyModule()
    if dtype == torch.bfloat16:  # the stand-in has no operator that the scaler needs
        make_trainer(precision=precision).fit(module, batches())
        assert {(device.type, seen) for device, seen, _ in module.seen} == {("npu", dtype)}


def test_other_precisions() -> None:
    assert make_trainer(precision="32-true").precision_plugin.precision == "32-true"
    assert make_trainer(precision="bf16-true").precision_plugin.precision == "bf16-true"
    with pytest.raises(ConfigError, match=r"^`trainer\.precision` on NPUs must not be 64-true"):
        make_trainer(precision="64-true")


def test_random_states_are_kept(tmp_path: Path) -> None:
    """`_collect_rng_states` keeps those of CUDA alone."""
    torch.npu.manual_seed(5)
    trainer = make_trainer(callbacks=(npu.NpuRandomStates(),))
    trainer.fit(TinyModule(), batches())
    before = torch.npu.get_rng_state()
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    torch.npu.manual_seed(6)
    assert not torch.equal(torch.npu.get_rng_state(), before)
    states = []

    class Watch(TinyModule):
        def on_train_start(self) -> None:
            states.append(torch.npu.get_rng_state())

    resumed = make_trainer(callbacks=(npu.NpuRandomStates(),), max_steps=4)
    resumed.fit(Watch(), batches(), ckpt_path=tmp_path / "a.ckpt", weights_only=True)
    assert torch.equal(states[0], before)


def test_eight_devices_are_ddp_over_hccl() -> None:
    """Fakes torch.npu.device_count; no process starts before a fit."""
    with eight_npus():
        for strategy in ("auto", "ddp"):
            trainer = make_trainer(devices=8, strategy=strategy)
            assert type(trainer.strategy) is ranks.NpuRanksStrategy
            found = trainer.strategy.parallel_devices
            assert found == [torch.device("npu", index) for index in range(8)]
            assert trainer.world_size == 8
        trainer = make_trainer(devices=8, num_nodes=2)
        assert trainer.world_size == 16
        with pytest.raises(ConfigError, match="on NPUs must be auto or ddp, but is fsdp"):
            make_trainer(devices=8, strategy="fsdp")


def test_the_process_group_is_hccls_and_is_destroyed() -> None:
    """`_init_dist_connection` destroys NCCL's alone. Fakes torch.distributed.init_process_group."""
    strategy = make_trainer(strategy="ddp", timeout_seconds=77).strategy
    calls: list[tuple] = []
    fakes = (
        mock.patch("torch.distributed.init_process_group", lambda *a, **k: calls.append((a, k))),
        mock.patch.object(ranks.atexit, "register", lambda function: calls.append(function)),
        mock.patch.dict(os.environ),
    )
    os.environ.pop("HCCL_EXEC_TIMEOUT", None)
    with fakes[0], fakes[1], fakes[2]:
        strategy.setup_distributed()
        assert os.environ["HCCL_EXEC_TIMEOUT"] == "77"
    (backend,), options = calls[0]
    assert backend == "hccl"
    assert options["device_id"] == torch.device("npu", 0)
    assert options["timeout"].total_seconds() == 77
    assert calls[1:] == [ranks._destroy_dist_connection]
    assert torch.distributed.Backend.default_device_backend_map["npu"] == "hccl"


def test_the_module_is_wrapped_without_a_stream_of_cuda() -> None:
    """`DDPStrategy._setup_model` opens one for any ids. Fakes the wrapper, which needs HCCL."""
    strategy = make_trainer(strategy="ddp").strategy
    wrapped: list[object] = []
    module = TinyModule().to("npu")
    with (
        mock.patch(
            "lightning.pytorch.strategies.ddp.DistributedDataParallel",
            lambda module, device_ids: wrapped.append(device_ids),
        ),
        mock.patch("torch.cuda.Stream", side_effect=AssertionError("a stream of CUDA")),
    ):
        strategy._setup_model(module)
    assert wrapped == [None]


def test_the_barrier_and_sums_of_ranks_do_not_name_nccl() -> None:
    """Fakes torch.distributed's collectives: a sum over ranks is one of them, and no barrier."""
    strategy = make_trainer(strategy="ddp").strategy
    strategy.cluster_environment.set_world_size(2)
    calls: list[str] = []
    with (
        mock.patch("torch.distributed.all_reduce", lambda *_: calls.append("all_reduce")),
        mock.patch("torch.distributed.barrier", lambda **given: calls.append(f"barrier {given}")),
        mock.patch("torch.distributed.get_backend", lambda: "hccl"),
        mock.patch("lightning.pytorch.strategies.ddp._distributed_is_initialized", lambda: True),
    ):
        given = torch.tensor([1.0, 2.0])
        assert strategy.reduce(given, reduce_op="sum") is given
        strategy.barrier()
    assert calls == ["all_reduce", "barrier {}"]


def test_torchrun_with_another_number_of_processes() -> None:
    torchrun = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "16"}
    with mock.patch.dict(os.environ, torchrun), eight_npus():
        with pytest.raises(ConfigError) as caught:
            devices.trainer_arguments(TrainerOptions(accelerator="npu", devices=8))
        arguments = devices.trainer_arguments(
            TrainerOptions(accelerator="npu", devices=8, num_nodes=2)
        )
    assert type(arguments["strategy"]) is ranks.NpuRanksStrategy
    assert str(caught.value) == (
        "`trainer.devices` times `trainer.num_nodes` must be the number of processes that torchrun "
        "started, 16, but is 8 times 1."
    )


def test_an_operator_that_the_npu_lacks_is_an_error_that_names_it() -> None:
    """By default torch_npu computes it on the CPU; `asr_ascend.train` sets the variable."""
    program = "import torch; torch.lgamma(torch.rand(3).npu())"
    default = {k: v for k, v in os.environ.items() if k != "TORCH_NPU_FALLBACK_CPU_DISABLE"}
    strict = {**default, "TORCH_NPU_FALLBACK_CPU_DISABLE": "1"}
    silent, error = (
        subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
        for env in (default, strict)
    )
    assert silent.returncode == 0
    assert "'aten::lgamma.out' is not currently supported on the NPU backend" in silent.stderr
    assert error.returncode == 1
    assert (
        "The operator 'aten::lgamma.out' would execute its main computation on CPU" in error.stderr
    )
    source = Path("asr_ascend/train.py").read_text(encoding="utf-8")
    setting = 'os.environ.setdefault("TORCH_NPU_FALLBACK_CPU_DISABLE", "1")'
    assert source.index(setting) < source.index("import torch\n")
