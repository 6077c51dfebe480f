"""Lightning on Ascend NPUs: accelerator, strategy, mixed precision, random states.

Lightning 2.6 knows no NPU. Importing this module registers its accelerator under the name `npu`.
`trainer_arguments` (of `devices.py`) gives what else a `Trainer` needs: an unknown accelerator with
one device would get a strategy of the CPU, and mixed precision would be CUDA's.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.accelerators import Accelerator, AcceleratorRegistry
from lightning.pytorch.plugins.precision import MixedPrecision
from lightning.pytorch.strategies import SingleDeviceStrategy

from asr_ascend.losses.backends.npu_library import DEVICE_TYPE, has_npu


def missing_npu() -> str | None:
    """Returns why there is no NPU here, as a part of a sentence; None where there is one."""
    if has_npu():
        return None
    if getattr(torch, DEVICE_TYPE, None) is not None:
        return "torch_npu is installed, but finds no NPU (npu-smi info lists what the driver sees)"
    if importlib.util.find_spec("torch_npu") is None:
        return "torch_npu is not installed"
    return "torch_npu is installed, but torch did not load it"


class NpuAccelerator(Accelerator):
    """Ascend NPUs, as Lightning's accelerator `npu`."""

    def setup_device(self, device: torch.device) -> None:
        """Makes `device` the current NPU.

        Raises:
            MisconfigurationException: `device` is not an NPU.
        """
        if device.type != DEVICE_TYPE:
            raise MisconfigurationException(
                f"The strategy must use an NPU where accelerator is npu, but uses {device}: pass "
                "the arguments of asr_ascend.training.devices.trainer_arguments to the Trainer."
            )
        _npu().set_device(device)

    def setup(self, trainer: Trainer) -> None:
        """Frees cached memory, so that the run's figures are its own."""
        _npu().empty_cache()

    def teardown(self) -> None:
        """Frees cached memory."""
        _npu().empty_cache()

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        """Returns numbers of torch_npu's allocator, and the device's free and total bytes."""
        free, total = _npu().mem_get_info(device)
        return {**_npu().memory_stats(device), "memory.free": free, "memory.total": total}

    @staticmethod
    def parse_devices(devices: int | str | list[int] | tuple[int, ...]) -> list[int]:
        """Parses indices of NPUs.

        Args:
            devices: a number of NPUs; -1 for all; indices, also as text such as "0,2".

        Raises:
            MisconfigurationException: `devices` is none of these, or names an NPU that isn't there.
        """
        count = NpuAccelerator.auto_device_count()
        indices = _indices(devices, count)
        if not indices or len(set(indices)) < len(indices):
            raise MisconfigurationException(
                "`devices` must be a number of NPUs, -1, or indices that differ, "
                f"but is {devices!r}."
            )
        if absent := [index for index in indices if not 0 <= index < count]:
            raise MisconfigurationException(
                f"`devices` must be among the NPUs here, which are {count}, but {devices!r} asks "
                f"for the one of index {absent[0]}."
            )
        return indices

    @staticmethod
    def get_parallel_devices(devices: list[int]) -> list[torch.device]:
        """Returns the NPUs of these indices."""
        return [torch.device(DEVICE_TYPE, index) for index in devices]

    @staticmethod
    def auto_device_count() -> int:
        """Returns how many NPUs there are; 0 without torch_npu."""
        return int(_npu().device_count()) if has_npu() else 0

    @staticmethod
    def is_available() -> bool:
        """Returns whether there is an NPU, and a torch_npu that finds it."""
        return has_npu()

    @staticmethod
    def name() -> str:
        """Returns "npu"."""
        return DEVICE_TYPE


class SingleNpuStrategy(SingleDeviceStrategy):
    """Trains on one NPU.

    Args:
        device: e.g. "npu:0".
    """

    strategy_name = "single_npu"

    def __init__(self, device: Any = f"{DEVICE_TYPE}:0", **kwargs: Any) -> None:
        super().__init__(device=device, **kwargs)


def mixed_precision(precision: str) -> MixedPrecision:
    """Makes the plugin for mixed precision on NPUs.

    It has autocast of device type `npu`, and torch_npu's own loss scaler.

    Args:
        precision: "16-mixed" or "bf16-mixed", which needs no scaler.
    """
    scaler = _npu().amp.GradScaler() if precision == "16-mixed" else None
    return MixedPrecision(precision, DEVICE_TYPE, scaler)  # type: ignore[arg-type]


class NpuRandomStates(Callback):
    """Keeps the random state of this process's NPU in checkpoints; Lightning keeps none.

    A checkpoint holds that of rank 0. `StepSeeds` draws the seeds of every batch anew, by rank, so
    this counts for what draws between batches.
    """

    def state_dict(self) -> dict[str, Any]:
        """Returns the random state of this process's NPU."""
        return {DEVICE_TYPE: _npu().get_rng_state()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores the random state of this process's NPU."""
        _npu().set_rng_state(state_dict[DEVICE_TYPE].cpu())


def memory_line() -> str:
    """Returns the most memory that tensors have taken on this process's NPU, and its size: GiB."""
    used, (_, total) = _npu().max_memory_allocated(), _npu().mem_get_info()
    return f"{used / 2**30:.1f}/{total / 2**30:.0f} GiB"


def _npu() -> Any:
    """torch.npu, which torch_npu adds."""
    return getattr(torch, DEVICE_TYPE)


def _indices(devices: Any, count: int) -> list[int]:
    """What `parse_devices` reads; empty for what it can't."""
    if isinstance(devices, str):
        parts = [part.strip() for part in devices.split(",") if part.strip()]
        if not all(part.removeprefix("-").isdigit() for part in parts):
            return []
        if "," not in devices and parts:
            return _indices(int(parts[0]), count)
        return [int(part) for part in parts]
    if isinstance(devices, bool):
        return []
    if isinstance(devices, int):
        return list(range(count if devices == -1 else devices))
    if isinstance(devices, (list, tuple)) and all(type(index) is int for index in devices):
        return list(devices)
    return []


# Lightning finds the name from here on; it has no entry points for accelerators.
AcceleratorRegistry.register(DEVICE_TYPE, NpuAccelerator, description="Ascend NPUs", override=True)
