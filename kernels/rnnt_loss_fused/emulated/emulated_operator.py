"""RnntLossFused on the emulator: builds the C entry and calls it through ctypes."""

from __future__ import annotations

import ctypes
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from kernels.verify import tolerances
from kernels.verify.oracles import Case

HERE = Path(__file__).resolve().parent
EMULATOR = HERE.parents[1] / "emulator"
FLAGS = ["-std=c++17", "-O2", "-ffp-contract=off", "-fPIC", "-shared", "-Wall", "-Wextra"]

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
STATUS_OK, LOGIT_LENGTH, TARGET_LENGTH, LABEL, ROW_TOTAL, CROSS_CHECK, BAND, BAND_WIDTH = range(8)
DROP_NAN, SECOND_OPERAND, PROPAGATE_NAN = range(3)


class _Call(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("num_rows", "vocab", "batch", "target_columns")),
        *((name, ctypes.c_int64) for name in ("band_frames", "blank")),
        ("clamp", ctypes.c_float),
        ("fastemit_lambda", ctypes.c_float),
        *(
            (name, ctypes.c_int32)
            for name in (
                "fused_log_softmax",
                "type",
                "entry",
                "cores",
                "backward_cores",
                "nan_rule",
                "blank_in_targets",
                "in_place",
            )
        ),
        ("seed", ctypes.c_uint64),
        ("ub_bytes", ctypes.c_int64),
        ("offset", ctypes.c_int64),
    ]


class _Traffic(ctypes.Structure):
    _fields_ = [
        *(
            (name, ctypes.c_uint64)
            for name in (
                "logits_read",
                "grad_written",
                "state_bytes",
                "state_charged",
                "total_charged",
                "descriptors",
            )
        ),
        *(
            (name, ctypes.c_uint64 * 4)
            for name in (
                "vector_instructions",
                "vector_repeats",
                "phase_bytes_least",
                "phase_bytes_most",
            )
        ),
    ]


@dataclass(frozen=True)
class Result:
    """What the operator wrote, and what the emulator counted."""

    costs: Tensor  # (B,)
    gradient: Tensor  # (N, V); NaN from "forward"
    status: Tensor | None  # (B,)
    traffic: _Traffic


class Violation(AssertionError):
    """The kernel broke a rule of the hardware."""


def build(folder: Path) -> ctypes.CDLL:
    """Compiles the kernels and their C entry against the emulator.

    Raises:
        RuntimeError: the compiler refuses; the text is what it said.
    """
    library = folder / "libemulated_rnnt_loss.so"
    sources = [str(source) for source in sorted(HERE.glob("*.cpp"))]
    command = [os.environ.get("CXX", "g++"), *FLAGS, f"-I{EMULATOR}", *sources, "-o", str(library)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(result.stderr)
    return ctypes.CDLL(str(library))


def _address(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def call(
    library: ctypes.CDLL,
    case: Case,
    *,
    band: Tensor | None = None,
    backward_band: Tensor | None = None,
    clamp: float = -1.0,
    fastemit_lambda: float = 0.0,
    fused_log_softmax: bool = True,
    blank_in_targets: bool = False,
    upstream: Tensor | None = None,
    entry: str = "fused",
    cores: int = 4,
    backward_cores: int | None = None,
    nan_rule: int = DROP_NAN,
    in_place: bool = False,
    seed: int = 0,
    ub_bytes: int = 0,
    offset: int = 0,
    with_status: bool = True,
) -> Result:
    """entry: "fused" (upstream 1), "split": forward, then backward with `upstream` (B,), or
    "forward": the costs alone. band: (B, T, 2), whose cells are the rows of `case`; the backward
    entry may be given another one, as it should not."""
    logits = case.logits.detach().contiguous()
    targets = case.targets.int().contiguous()
    logit_lengths, target_lengths = case.logit_lengths.int(), case.target_lengths.int()
    batch = len(logit_lengths)
    if entry == "split":
        upstream = torch.ones(batch) if upstream is None else upstream.float().contiguous()
    else:
        assert upstream is None, "the other entries have no upstream gradient"
    costs, gradient = torch.empty(batch), torch.empty_like(logits)
    status = torch.empty(batch, dtype=torch.int32) if with_status else None
    windows = case.emission_windows
    limits, backward_limits, windows = (
        None if tensor is None else tensor.int().contiguous()
        for tensor in (band, backward_band, windows)
    )
    arguments = _Call(
        num_rows=logits.shape[0],
        vocab=logits.shape[1],
        batch=batch,
        target_columns=targets.shape[1],
        band_frames=0 if limits is None else limits.shape[1],
        blank=case.blank,
        clamp=clamp,
        fastemit_lambda=fastemit_lambda,
        fused_log_softmax=fused_log_softmax,
        type=DTYPES.index(logits.dtype),
        entry=1 + ("fused", "split", "forward").index(entry),
        cores=cores,
        backward_cores=cores if backward_cores is None else backward_cores,
        nan_rule=nan_rule,
        blank_in_targets=blank_in_targets,
        in_place=in_place,
        seed=seed,
        ub_bytes=ub_bytes,
        offset=offset,
    )
    traffic, message = _Traffic(), ctypes.create_string_buffer(1024)
    inputs = (logits, targets, logit_lengths, target_lengths, limits, backward_limits, windows)
    failed = library.EmulatedRnntLoss(
        ctypes.byref(arguments),
        *map(_address, (*inputs, upstream, costs, gradient, status)),
        ctypes.byref(traffic),
        message,
        ctypes.c_int64(len(message)),
    )
    if failed:
        raise Violation(message.value.decode())
    return Result(costs, gradient, status, traffic)


def cost_tolerance(costs: Tensor) -> Tensor:
    """1 ulp of float32, or where that is less than 1e-4, which DESIGN section 7 allows, 2 ulp.

    Every norm is a float32 logarithm, so equal rows make equal roundings, which add up.
    """
    ulp = tolerances.cost_tolerance(costs, torch.float32)
    return torch.maximum(ulp, (2 * ulp).clamp(5e-6, 1e-4))
