"""The stand-in runtime's counters, read through its C functions."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import torch


class Counters(ctypes.Structure):
    """AsrAscendStandInCounters of kernels/cann_standin/standin_counters.h."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "host_to_device_copies",
            "host_to_device_bytes",
            "device_to_host_copies",
            "device_to_host_bytes",
            "device_to_device_copies",
            "device_to_device_bytes",
            "stream_synchronisations",
            "event_synchronisations",
            "device_synchronisations",
            "launches",
            "allocated_bytes",
        )
    ]


class Runtime:
    """The stand-in that torch_npu of this process runs on."""

    def __init__(self) -> None:
        folder = Path(os.environ["LD_LIBRARY_PATH"].split(":")[0])
        self.library = ctypes.CDLL(str(folder / "libascendcl.so"))

    def reset(self) -> None:
        """Waits for everything under way, then counts from zero."""
        self.synchronize()
        self.library.AsrAscendStandInResetCounters()

    def synchronize(self) -> None:
        torch.npu.synchronize()

    def counters(self) -> Counters:
        counters = Counters()
        self.library.AsrAscendStandInReadCounters(ctypes.byref(counters))
        return counters

    def launches(self) -> list[str]:
        """aclnn functions started since the last reset, in order."""
        function = self.library.AsrAscendStandInLaunches
        function.restype = ctypes.c_uint64
        text = ctypes.create_string_buffer(1 << 16)
        assert function(text, ctypes.c_uint64(len(text))) <= len(text)
        return text.value.decode().split()
