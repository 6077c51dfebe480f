"""Finds and loads the CPU library, and calls it through ctypes (which releases the GIL)."""

import ctypes
import functools
import importlib.metadata
import importlib.resources
import json
import os
from pathlib import Path

import torch
from torch import Tensor

from asr_ascend.losses.backends.library_files import PACKAGE_FOLDER, SLOW_WAY, overriding_path
from asr_ascend.losses.problem import Problem

ABI_VERSION = 5  # kernels/cpu/asr_ascend_cpu.h
STATE_PLANES = 5

OK = 0
BAD_LOGIT_LENGTH = 2
BAD_TARGET_LENGTH = 3
BAD_TARGET = 4
TARGET_IS_BLANK = 5
BAD_ROWS = 6
CROSS_CHECK_FAILED = 7
NO_MEMORY = 8
BAD_BAND = 10

_LIBRARY_NAME = "libasr_ascend_cpu.so"
_DISTRIBUTION = "asr-ascend"
_DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}


class Failure(ctypes.Structure):
    """struct asr_ascend_failure: where a status other than OK was found; -1 where unused."""

    _fields_ = [(name, ctypes.c_int64) for name in ("sample", "position", "value")]
    sample: int
    position: int
    value: int


class LayoutStruct(ctypes.Structure):
    """struct asr_ascend_rnnt_layout."""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in ("packed_rows", "padded_t", "padded_u1", "stride_b", "stride_t", "stride_u")
    ]

    @classmethod
    def of(cls, logits: Tensor) -> "LayoutStruct":
        """Describes packed (N, V) or padded (B, T, U1, V) logits, with their strides."""
        if logits.dim() == 2:
            return cls(logits.shape[0], 0, 0, 0, 0, logits.stride(0))
        _, num_frames, num_columns, _ = logits.shape
        return cls(-1, num_frames, num_columns, *logits.stride()[:3])


class ProblemStruct(ctypes.Structure):
    """struct asr_ascend_rnnt_problem. It points into the index tensors, which must outlive it."""

    _fields_ = [
        ("batch", ctypes.c_int64),
        ("vocab", ctypes.c_int64),
        ("blank", ctypes.c_int64),
        ("logit_lengths", ctypes.c_void_p),
        ("target_lengths", ctypes.c_void_p),
        ("targets", ctypes.c_void_p),
        ("target_columns", ctypes.c_int64),
        ("emission_windows", ctypes.c_void_p),
        ("band", ctypes.c_void_p),
        ("band_frames", ctypes.c_int64),
        ("clamp", ctypes.c_double),
        ("fastemit_lambda", ctypes.c_double),
        ("delay_penalty", ctypes.c_double),
        ("fused_log_softmax", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("blank_in_targets", ctypes.c_int32),
        ("num_threads", ctypes.c_int64),
        ("logits_layout", LayoutStruct),
    ]

    @classmethod
    def of(cls, logits: Tensor, problem: Problem) -> "ProblemStruct":
        """Describes a problem whose index tensors are contiguous int64.

        The last dimension of ``logits`` must be contiguous.
        """
        windows, band = problem.emission_windows, problem.band
        return cls(
            problem.targets.shape[0],
            logits.shape[-1],
            problem.blank,
            problem.logit_lengths.data_ptr(),
            problem.target_lengths.data_ptr(),
            problem.targets.data_ptr(),
            problem.targets.shape[1],
            None if windows is None else windows.data_ptr(),
            None if band is None else band.data_ptr(),
            0 if band is None else band.shape[1],
            problem.clamp,
            problem.fastemit_lambda,
            problem.delay_penalty,
            problem.fused_log_softmax,
            _DTYPES[logits.dtype],
            problem.blank_in_targets,
            torch.get_num_threads(),
            LayoutStruct.of(logits),
        )


def forward(
    logits: Tensor, problem: Problem, costs: Tensor, state: Tensor | None
) -> tuple[int, Failure]:
    """Calls asr_ascend_rnnt_forward, which writes float64 ``costs`` and ``state``.

    Returns the status, and where it was found.
    """
    failure = Failure()
    status = library().asr_ascend_rnnt_forward(
        ctypes.byref(ProblemStruct.of(logits, problem)),
        logits.data_ptr(),
        costs.data_ptr(),
        None if state is None else state.data_ptr(),
        ctypes.byref(failure),
    )
    return status, failure


def backward(
    logits: Tensor, problem: Problem, state: Tensor, grad_costs: Tensor, grad: Tensor
) -> tuple[int, Failure]:
    """Calls asr_ascend_rnnt_backward, which writes ``grad``; it may be ``logits``.

    Returns the status, and where it was found.
    """
    failure = Failure()
    status = library().asr_ascend_rnnt_backward(
        ctypes.byref(ProblemStruct.of(logits, problem)),
        logits.data_ptr(),
        state.data_ptr(),
        grad_costs.data_ptr(),
        grad.data_ptr(),
        ctypes.byref(LayoutStruct.of(grad)),
        ctypes.byref(failure),
    )
    return status, failure


def alignment(
    logits: Tensor, problem: Problem, frames: Tensor, log_probs: Tensor
) -> tuple[int, Failure]:
    """Calls asr_ascend_rnnt_alignment, which writes int64 ``frames`` and float64 ``log_probs``.

    Returns the status, and where it was found.
    """
    failure = Failure()
    status = library().asr_ascend_rnnt_alignment(
        ctypes.byref(ProblemStruct.of(logits, problem)),
        logits.data_ptr(),
        frames.data_ptr(),
        log_probs.data_ptr(),
        ctypes.byref(failure),
    )
    return status, failure


@functools.cache  # a failure is not cached, so a build in between is found by the next call
def library() -> ctypes.CDLL:
    """Finds, loads and checks the CPU library.

    Raises:
        RuntimeError: it is not built, can't be loaded, has another ABI version, or
            ``ASR_ASCEND_ISA`` names a kernel version that can't run here.
    """
    path = _library_path()
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise RuntimeError(
            f"the CPU library at {path} can't be loaded: {error}; "
            f"{_build_command()} builds it again."
        ) from error
    try:
        version = loaded.asr_ascend_abi_version()
    except AttributeError as error:
        raise RuntimeError(
            f"{path} is not {_LIBRARY_NAME}: it has no asr_ascend_abi_version."
        ) from error
    if version != ABI_VERSION:
        raise RuntimeError(
            f"the CPU library at {path} must have ABI version {ABI_VERSION}, but has {version}; "
            f"{_build_command()} builds it again."
        )
    for function in (loaded.asr_ascend_isa, loaded.asr_ascend_isas):
        function.restype = ctypes.c_char_p
    if loaded.asr_ascend_isa() is None:
        raise RuntimeError(
            "`ASR_ASCEND_ISA` must be one of "
            f"{loaded.asr_ascend_isas().decode().replace(',', ', ')} here, "
            f"but is {os.environ.get('ASR_ASCEND_ISA')}."
        )
    pointer = ctypes.c_void_p
    loaded.asr_ascend_rnnt_forward.argtypes = [pointer] * 5
    loaded.asr_ascend_rnnt_backward.argtypes = [pointer] * 7
    loaded.asr_ascend_rnnt_alignment.argtypes = [pointer] * 5
    return loaded


def is_available() -> bool:
    """Returns whether the CPU library can be used now."""
    try:
        library()
    except RuntimeError:
        return False
    return True


def describe() -> str:
    """Returns a line about the CPU library: its ABI version and its instruction set."""
    try:
        loaded = library()
    except RuntimeError as error:
        return f"CPU kernel: none, since {error}"
    name, names = loaded.asr_ascend_isa().decode(), loaded.asr_ascend_isas().decode()
    return f"CPU kernel: ABI {ABI_VERSION}, instruction set {name} (of {names.replace(',', ', ')})"


def _library_path() -> Path:
    override = overriding_path("ASR_ASCEND_LIBRARY", _LIBRARY_NAME)
    if override is not None:
        return override
    packaged = importlib.resources.files("asr_ascend") / "lib" / _LIBRARY_NAME
    if packaged.is_file():
        return Path(str(packaged))
    # An editable install keeps the library in site-packages, away from the sources; its import hook
    # joins the two, but is absent where the sources were found without it.
    installed, editable = _installed_library()
    if installed is None:
        raise RuntimeError(
            f"the CPU library of asr_ascend is not built: {_build_command()} builds it; {SLOW_WAY}"
        )
    if not editable:
        raise RuntimeError(
            f"{PACKAGE_FOLDER} hides the installed asr_ascend but holds no CPU library: "
            f"run `pip install -e .` in {PACKAGE_FOLDER.parent}, or Python from another folder; "
            f"{SLOW_WAY}"
        )
    return installed


def _installed_library() -> tuple[Path | None, bool]:
    """Returns the library that pip installed, or None, and whether the install is editable."""
    try:
        distribution = importlib.metadata.distribution(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None, False
    path = Path(str(distribution.locate_file(f"asr_ascend/lib/{_LIBRARY_NAME}")))
    if not path.is_file():
        return None, False
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    return path, bool(origin.get("dir_info", {}).get("editable", False))


def _build_command() -> str:
    checkout = PACKAGE_FOLDER.parent
    if (checkout / "pyproject.toml").is_file():
        return f"`pip install -e .` in {checkout}"
    return "`pip install .` in a checkout of asr_ascend"
