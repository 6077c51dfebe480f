"""The memory floor: what one read, then one read and write of the logits take on this machine."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from benchmarks import machine

SOURCE = Path(__file__).with_name("floor.cpp")
FOLDER = machine.REPOSITORY / "build" / "benchmarks"
FLAGS = ("-std=c++17", "-O3", "-shared", "-fPIC", "-fopenmp", "-Wno-psabi", "-Wno-attributes")


def run(logits: Tensor, num_threads: int | None = None) -> float:
    """Reads float32 ``logits`` and sums exp, then overwrites each with exp; returns the sum.

    Raises:
        RuntimeError: no compiler, or it can't build floor.cpp.
    """
    if logits.dtype != torch.float32 or not logits.is_contiguous():
        raise ValueError("`logits` must be contiguous float32.")
    num_threads = torch.get_num_threads() if num_threads is None else num_threads
    return library().asr_ascend_memory_floor(logits.data_ptr(), logits.numel(), num_threads)


@functools.cache
def library() -> ctypes.CDLL:
    """Built by the machine's compiler for its own processor, and kept for the next time."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        raise RuntimeError("there is no C++ compiler for the memory floor; CXX names one.")
    # Two machines of one name may differ in their instruction sets, as clouds mask them.
    processor = (machine.processor(), machine.instruction_sets())
    made_of = (SOURCE.read_bytes(), compiler.encode(), *(part.encode() for part in processor))
    path = FOLDER / f"floor-{hashlib.sha256(b'|'.join(made_of)).hexdigest()[:16]}.so"
    if not path.is_file():
        build(compiler, path)
    loaded = ctypes.CDLL(str(path))
    loaded.asr_ascend_memory_floor.restype = ctypes.c_double
    loaded.asr_ascend_memory_floor.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32]
    return loaded


def build(compiler: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    native = ["-march=native"]
    if platform.machine() in ("x86_64", "AMD64"):
        native.append("-mprefer-vector-width=512")
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        command = [compiler, *FLAGS, *native, str(SOURCE), "-o", str(made)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except OSError as error:
            raise RuntimeError(f"the memory floor can't be built: {error}.") from error
        except subprocess.CalledProcessError as error:
            first = (error.stderr.strip() or "no message").splitlines()[0]
            raise RuntimeError(f"the memory floor can't be built: {first}") from error
        made.replace(path)
