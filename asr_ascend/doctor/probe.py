"""What runs in a process of the doctor: each function is a step and returns what it found.

The libraries under test are imported inside of the functions.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from asr_ascend.doctor.machine import is_stand_in
from asr_ascend.doctor.probing import MARK


def main() -> None:
    """Runs the steps of the command line, and prints a line of JSON after each."""
    # What libraries print must not get between the lines.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as lines:
        os.dup2(2, 1)
        for step in sys.argv[1:]:
            name, *arguments = step.split(":", 1)
            result: dict[str, Any] = {"step": step, "values": None, "failure": None}
            try:
                result["values"] = STEPS[name](*arguments)
            except Exception as error:
                result["failure"] = _described(error)
            lines.write(MARK + json.dumps(result) + "\n")
            lines.flush()
    os._exit(0)  # what the libraries do at exit may crash, and is not asked for


def torch() -> dict[str, Any]:
    """Version, folder and C++ ABI of torch."""
    import torch

    return {
        "version": torch.__version__,
        "file": torch.__file__,
        "abi": bool(torch._C._GLIBCXX_USE_CXX11_ABI),
    }


def cpu_library() -> dict[str, Any]:
    """The CPU library, its ABI version and instruction sets."""
    from asr_ascend.losses.backends import cpu_library

    loaded = cpu_library.library()
    return {
        "path": loaded._name,
        "abi": cpu_library.ABI_VERSION,
        "isa": loaded.asr_ascend_isa().decode(),
        "isas": loaded.asr_ascend_isas().decode().split(","),
    }


def loss(backend: str) -> dict[str, Any]:
    """The loss forward and backward on a backend, against exact values."""
    from asr_ascend.doctor import loss_check

    return loss_check.check(backend)


def replay(text: str) -> dict[str, Any]:
    """A saved batch on a backend: `backend:path`."""
    from asr_ascend.doctor import replay

    backend, path = text.split(":", 1)
    return replay.compare(path, backend)


def batch(path: str) -> dict[str, Any]:
    """What is in a saved batch."""
    from asr_ascend.doctor import replay

    return replay.describe(path)


def autoload() -> dict[str, Any]:
    """Plain ``import torch``, which imports torch_npu where that is installed."""
    import torch

    return {"version": torch.__version__}


def torch_npu() -> dict[str, Any]:
    """torch_npu, its devices, and whether CANN's runtime is the tests' stand-in."""
    import torch

    torch_npu = importlib.import_module("torch_npu")
    npu: Any = torch.npu  # type: ignore[attr-defined]
    available = bool(npu.is_available())
    return {
        "version": metadata.version("torch_npu"),
        "torch": torch.__version__,
        "includes": str(Path(str(torch_npu.__file__)).parent / "include"),
        "available": available,
        "count": int(npu.device_count()) if available else 0,
        "name": str(npu.get_device_name()) if available else None,
        "stand_in": is_stand_in(),
    }


def binding() -> dict[str, Any]:
    """Loads the binding; names operators that it lacks."""
    import torch

    from asr_ascend.losses.backends import npu_library

    path = str(npu_library._library_path())
    npu_library.load()
    needed = ("rnnt_loss_forward", "rnnt_loss_backward", "rnnt_loss_backward_", "rnnt_loss_fused")
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    lacks = [name for name in needed if not has_kernel(f"asr_ascend::{name}", "PrivateUse1")]
    return {"path": path, "lacks": lacks}


def operator_library(path: str) -> dict[str, Any]:
    """Loads an operator package; names the functions that it lacks."""
    from asr_ascend.doctor import versions

    loaded = ctypes.CDLL(path, mode=os.RTLD_NOW)
    return {"lacks": [name for name in versions.aclnn_symbols() if not hasattr(loaded, name)]}


def torchaudio() -> dict[str, Any]:
    """torchaudio, with the features that training takes from it."""
    import torch
    import torchaudio

    torchaudio.transforms.MelSpectrogram(16000, 400, n_mels=8)(torch.zeros(800))
    return {"version": torchaudio.__version__}


def package(name: str) -> dict[str, Any]:
    """Imports a module."""
    return {"version": getattr(importlib.import_module(name), "__version__", None)}


def _described(error: Exception) -> str:
    """An error's first line; our own sentences as they are."""
    line = (str(error).strip().splitlines() or [""])[0].rstrip(". ")
    own = type(error).__module__.startswith("asr_ascend.") or _comes_from_us(error)
    from_a_library = type(error) is OSError  # the loader's words
    return line if own or from_a_library else f"{type(error).__name__}: {line}".rstrip(": ")


def _comes_from_us(error: Exception) -> bool:
    """Whether the package raised it, with a sentence of its own."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith(
        ("asr_ascend.losses", "asr_ascend.training")
    )


STEPS = {
    function.__name__: function
    for function in (
        *(torch, cpu_library, loss, replay, batch, autoload, torch_npu),
        *(binding, operator_library, torchaudio, package),
    )
}
