"""Finds and loads the NPU binding; the only place that imports torch_npu."""

import functools
import importlib.resources
from pathlib import Path
from typing import Any

import torch

from asr_ascend.losses.backends.library_files import PACKAGE_FOLDER, SLOW_WAY, overriding_path

DEVICE_TYPE = "npu"

_LIBRARY_NAME = "libasr_ascend_npu.so"
_BUILD = "`kernels/build.sh` in a checkout of asr_ascend builds it"


@functools.cache  # a failure is not cached, so a build in between is found by the next call
def load() -> None:
    """Registers the binding's operators for NPU tensors.

    Raises:
        RuntimeError: torch_npu or the binding is missing or can't be loaded.
    """
    path = _library_path()
    try:
        import torch_npu  # noqa: F401
    except ImportError as error:
        raise RuntimeError(f"torch_npu can't be imported: {error}.") from error
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        raise RuntimeError(
            f"the NPU binding at {path} can't be loaded: {error}; {_BUILD} again."
        ) from error


def is_loaded() -> bool:
    """Returns whether :func:`load` has succeeded."""
    return load.cache_info().currsize > 0


def has_npu() -> bool:
    """Returns whether NPU tensors can exist here."""
    # torch imports torch_npu by itself where that is installed.
    npu: Any = getattr(torch, DEVICE_TYPE, None)
    return npu is not None and npu.is_available()


def _library_path() -> Path:
    override = overriding_path("ASR_ASCEND_NPU_LIBRARY", _LIBRARY_NAME)
    if override is not None:
        return override
    packaged = Path(str(importlib.resources.files("asr_ascend") / "lib" / _LIBRARY_NAME))
    for path in (packaged, PACKAGE_FOLDER / "lib" / _LIBRARY_NAME):
        if path.is_file():
            return path
    raise RuntimeError(f"the NPU binding of asr_ascend is not built: {_BUILD}; {SLOW_WAY}")
