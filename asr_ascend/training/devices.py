"""From the keys of `trainer` to what Lightning's Trainer needs for devices and precision."""

from __future__ import annotations

import os
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.plugins.precision import Precision

from asr_ascend.config.keys import ConfigError
from asr_ascend.config.train_options import TrainerOptions
from asr_ascend.losses.backends.npu_library import DEVICE_TYPE
from asr_ascend.training.npu import (
    NpuAccelerator,
    SingleNpuStrategy,
    missing_npu,
    mixed_precision,
)
from asr_ascend.training.ranks import NpuRanksStrategy, RanksStrategy

_STRATEGIES = ("auto", "ddp")


def chosen_accelerator(accelerator: str) -> str:
    """Returns the accelerator that a run takes: `auto` is an NPU where there is one.

    Args:
        accelerator: `trainer.accelerator`.

    Raises:
        ConfigError: an NPU is asked for, but there is none.
    """
    reason = missing_npu() if accelerator in (DEVICE_TYPE, "auto") else None
    if accelerator == DEVICE_TYPE and reason is not None:
        raise ConfigError(
            f"`trainer.accelerator` is {DEVICE_TYPE}, but there is no NPU here: {reason}. "
            "Nothing is trained on the CPU unless trainer.accelerator=cpu says so."
        )
    return DEVICE_TYPE if accelerator == "auto" and reason is None else accelerator


def trainer_arguments(options: TrainerOptions) -> dict[str, Any]:
    """Returns arguments of Lightning's Trainer: devices, strategy, precision.

    Args:
        options: `accelerator`, `devices`, `num_nodes`, `strategy`, `precision`,
            `timeout_seconds` count.

    Returns:
        `accelerator`, `devices`, `num_nodes`, `strategy`, `plugins`, and `precision` unless a
        plugin says it.

    Raises:
        ConfigError: no NPU where one is asked for; devices, strategy or precision that an NPU
            can't have; another number of processes than torchrun started.
    """
    accelerator = chosen_accelerator(options.accelerator)
    arguments: dict[str, Any] = {
        "accelerator": accelerator,
        "devices": options.devices,
        "num_nodes": options.num_nodes,
        "strategy": options.strategy,
        "precision": options.precision,
        "plugins": [],
    }
    if accelerator == DEVICE_TYPE:
        return {**arguments, **_of_npus(options), **_npu_precision(options.precision)}
    count = _whole_number(options.devices)
    if count is not None:
        _check_torchrun(count, options)
    several = options.num_nodes > 1 or (count or 1) > 1 or "TORCHELASTIC_RUN_ID" in os.environ
    if options.strategy == "ddp" or (options.strategy == "auto" and several):
        arguments["strategy"] = RanksStrategy(options.timeout_seconds)
    return arguments


def _of_npus(options: TrainerOptions) -> dict[str, Any]:
    """Devices and strategy: one NPU, or DDP over HCCL."""
    if options.strategy not in _STRATEGIES:
        raise ConfigError(
            f"`trainer.strategy` on NPUs must be auto or ddp, but is {options.strategy}."
        )
    given = NpuAccelerator.auto_device_count() if options.devices == "auto" else options.devices
    try:
        devices = NpuAccelerator.parse_devices(given)
    except MisconfigurationException as error:
        raise ConfigError(str(error).replace("`devices`", "`trainer.devices`")) from error
    _check_torchrun(len(devices), options)
    one = len(devices) * options.num_nodes == 1
    strategy: Any = NpuRanksStrategy(options.timeout_seconds)
    if one and options.strategy == "auto":
        strategy = SingleNpuStrategy(f"{DEVICE_TYPE}:{devices[0]}")
    return {"devices": devices, "strategy": strategy}


def _npu_precision(precision: str) -> dict[str, Any]:
    if precision == "64-true":
        raise ConfigError(
            "`trainer.precision` on NPUs must not be 64-true: their loss takes float32, float16 "
            "and bfloat16."
        )
    plugins: list[Precision] = []
    if precision in ("16-mixed", "bf16-mixed"):
        plugins.append(mixed_precision(precision))
    return {"precision": None if plugins else precision, "plugins": plugins}


def _check_torchrun(devices: int, options: TrainerOptions) -> None:
    """Each process of torchrun trains on one device; others would train the same run twice."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if devices * options.num_nodes != started:
        raise ConfigError(
            "`trainer.devices` times `trainer.num_nodes` must be the number of processes that "
            f"torchrun started, {started}, but is {devices} times {options.num_nodes}."
        )


def _whole_number(devices: int | str) -> int | None:
    """A number of devices; None where Lightning has to say how many."""
    if isinstance(devices, str):
        return int(devices) if devices.isdigit() else None
    return devices
