"""Finds the places that read a tensor's value on the host, while a training step runs on a CPU.

On a CPU such a read costs nothing, on an NPU it waits for all that is under way.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from unittest import mock

import lightning
import torch
import torch.optim
from torch.utils._python_dispatch import TorchDispatchMode

import asr_ascend

# Operators whose result, or its size, is a value: the host has to know it.
_READING = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "equal"}
_COPYING = ("tolist", "cpu", "numpy")


class HostReads(TorchDispatchMode):
    """Counts reads by the place in the code: file, function."""

    def __init__(self, skipped: tuple[ModuleType, ...]) -> None:
        super().__init__()
        self.skipped = tuple(folder_of(package) for package in skipped)
        self.own = tuple(folder_of(package) for package in (asr_ascend, lightning, torch.optim))
        self.found: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        sized = name == "repeat_interleave" and kwargs.get("output_size") is not None
        if name in _READING or (name == "repeat_interleave" and not sized):
            self.count()
        return func(*args, **kwargs)

    def count(self) -> None:
        """Of the innermost function that is neither torch's own plumbing nor a test's."""
        frame = sys._getframe(1)
        while frame is not None:
            path = frame.f_code.co_filename
            if path.startswith(self.skipped):
                return
            if path.startswith(self.own):
                self.found[(Path(path).name, frame.f_code.co_name)] += 1
                return
            frame = frame.f_back


def folder_of(package: ModuleType) -> str:
    """Its folder, with a slash at the end."""
    return f"{Path(package.__file__).parent}/"


@contextlib.contextmanager
def host_reads(*skipped: ModuleType) -> Iterator[Counter[tuple[str, str]]]:
    """Context whose value counts the reads within it.

    Args:
        skipped: packages; what they read is counted elsewhere.
    """
    mode = HostReads(skipped)

    def counting(name: str):
        whole = getattr(torch.Tensor, name)

        def method(tensor, *args, **kwargs):
            mode.count()
            return whole(tensor, *args, **kwargs)

        return mock.patch.object(torch.Tensor, name, method)

    with contextlib.ExitStack() as stack:
        for name in _COPYING:
            stack.enter_context(counting(name))
        stack.enter_context(mode)
        yield mode.found
