"""Finds and loads the NPU binding and hands it problems; the only place that imports torch_npu.

No value of a tensor comes to the host here unless the caller asks for it: lengths on the CPU are
checked where they are, everything else by the kernel, which leaves what it found on the device
until :func:`check_status` reads it.
"""

import functools
import importlib.resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from asr_ascend.losses import values
from asr_ascend.losses.backends import cpu
from asr_ascend.losses.layout import Problem

DEVICE_TYPE = "npu"

_PACKAGE_FOLDER = Path(__file__).resolve().parents[2]
_LIBRARY_NAME = "libasr_ascend_npu.so"
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_MAX_TARGET_COLUMNS = 1023  # kMaxTargetColumns of rnnt_loss_fused_check.h
_KEPT_CALLS = 64  # rnnt_loss_npu.cpp
_BUILD = "`kernels/build.sh` in a checkout of asr_ascend builds it"
_SLOW_WAY = 'until then, backend="reference" works, slowly.'

# rnnt_loss_fused_tiling_key.h
_STATUS_OK, _LOGIT_LENGTH, _TARGET_LENGTH, _LABEL, _ROW_TOTAL, _CROSS_CHECK = range(6)


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


@torch.compiler.assume_constant_result  # a compiled caller loads while it is traced
def _ensure_loaded() -> bool:
    load()
    return True


def is_available() -> bool:
    """Whether NPU tensors can exist here and the binding can be used now."""
    if not _has_npu():
        return False
    try:
        load()
    except RuntimeError:
        return False
    return True


def check_status(device: torch.device | str | None = None) -> None:
    """Raises for what the latest losses on an NPU found wrong with their arguments.

    Labels, and lengths that are on the device, are checked by the kernel alone. Where one is out of
    place, every cost of that call is NaN, every gradient zero, and nothing is raised, since that
    would stop the host for every call. This function waits for the device and asks. It looks back
    over 64 calls at most and forgets what it has looked at. Losses on other devices raise at once.

    Args:
        device: an NPU; the current one if None.

    Raises:
        ValueError: lengths or targets were out of place; names the samples.
        RuntimeError: the forward and backward scores of a sample disagreed.
    """
    if not _has_npu() or load.cache_info().currsize == 0:
        return
    device = torch.device(DEVICE_TYPE if device is None else device)
    if device.type != DEVICE_TYPE:
        return
    if device.index is None:
        device = torch.device(DEVICE_TYPE, torch.accelerator.current_device_index())
    _raise_for_statuses(device, _KEPT_CALLS)


def check_latest_status(device: torch.device) -> None:
    """:func:`check_status` of the latest call alone; earlier ones are not forgotten."""
    _raise_for_statuses(device, 1)


def _raise_for_statuses(device: torch.device, count: int) -> None:
    torch.accelerator.synchronize(device)
    statuses = torch.ops.asr_ascend.rnnt_loss_take_statuses(device, count)
    for calls_ago, status in enumerate(statuses):
        error = _status_error(status.cpu().tolist(), calls_ago)
        if error is not None:
            raise error


def prepare(logits: Tensor, problem: Problem, *, validate: bool) -> Problem:
    """Checks what the NPU operator restricts, and puts the problem's integers where it wants them.

    Returns:
        ``problem`` with int32 targets and lengths on the device of ``logits``.

    Raises:
        TypeError: float64 logits.
        ValueError: too many columns of ``targets``; lengths, where they are on the CPU, out of
            place; with ``validate`` also lengths and labels on the device.
    """
    _ensure_loaded()
    if logits.dtype not in _DTYPES:
        raise TypeError(
            "`logits` on an NPU must be float32, float16 or bfloat16, "
            f"but is {str(logits.dtype).removeprefix('torch.')}."
        )
    targets, logit_lengths, target_lengths = problem[:3]
    if targets.shape[1] > _MAX_TARGET_COLUMNS:
        raise ValueError(
            f"`targets` on an NPU must have at most {_MAX_TARGET_COLUMNS} columns, "
            f"but has {targets.shape[1]}."
        )
    if validate:
        values.check_values(logits, _on_cpu(problem))
    elif lengths_are_on_cpu(problem) and not torch.compiler.is_compiling():
        packed = logits.dim() == 2
        values.check_lengths(
            logit_lengths,
            target_lengths,
            max_frames=None if packed else logits.shape[1],
            max_labels=values.label_limit(logits, targets),
            num_rows=logits.shape[0] if packed else None,
        )
    return problem._replace(
        targets=targets.to(torch.int32),
        logit_lengths=_on_device(logit_lengths, logits),
        target_lengths=_on_device(target_lengths, logits),
    )


def lengths_are_on_cpu(problem: Problem) -> bool:
    """Whether the host may read both lengths without waiting for the device."""
    return problem.logit_lengths.device.type == problem.target_lengths.device.type == "cpu"


def packed_rows(logits: Tensor, problem: Problem) -> Tensor:
    """Places (N,) int64 of the packed rows among the B * T * U1 rows of padded ``logits``.

    Raises:
        ValueError: lengths on the device: how many rows there are would have to come to the host.
    """
    if not lengths_are_on_cpu(problem):
        raise ValueError(
            "`logit_lengths` and `target_lengths` must be on the CPU for padded `logits` on an "
            "NPU, since N follows from them; packed `logits` take them on either."
        )
    _, T, U1, _ = logits.shape
    t, u = torch.arange(T), torch.arange(U1)
    in_lattice = (t < problem.logit_lengths[:, None])[:, :, None] & (
        u <= problem.target_lengths[:, None]
    )[:, None, :]
    return _pinned_copy(in_lattice.flatten().nonzero()[:, 0], logits.device)


def state_size(num_rows: int, batch: int, needs_grad: bool) -> int:
    """Float32 elements of the operator's state: StateShape of rnnt_loss_fused_tiling_plan.h."""
    planes = 9 if needs_grad else 4
    flags = _round_up(planes * _round_up(4 * num_rows, 64) + 32 * batch, 64)
    return _round_up(flags + 32 * 65, 64) // 4


def _round_up(value: int, multiple: int) -> int:
    return (value + multiple - 1) // multiple * multiple


def _has_npu() -> bool:
    # torch imports torch_npu by itself where that is installed.
    npu: Any = getattr(torch, DEVICE_TYPE, None)
    return npu is not None and npu.is_available()


def _on_device(lengths: Tensor, logits: Tensor) -> Tensor:
    # A graph can't pin memory: in a compiled caller the operator itself brings the lengths over.
    if lengths.device == logits.device or torch.compiler.is_compiling():
        return lengths.to(torch.int32)
    return _pinned_copy(lengths.to(torch.int32), logits.device)


def _pinned_copy(values: Tensor, device: torch.device) -> Tensor:
    # From memory that is not pinned the copy would wait for all that the stream still has to do.
    return values.pin_memory().to(device, non_blocking=True)


def _on_cpu(problem: Problem) -> Problem:
    return problem._replace(
        targets=problem.targets.cpu(),
        logit_lengths=problem.logit_lengths.cpu(),
        target_lengths=problem.target_lengths.cpu(),
    )


def _status_error(status: list[int], calls_ago: int) -> Exception | None:
    """What is wrong with a call, or None; a sample's own fault before the batch's."""
    call = "the latest call" if calls_ago == 0 else f"the call {calls_ago} before the latest"
    messages = {
        _LOGIT_LENGTH: "`logit_lengths` must be at least 1, but is not for {samples} of {call}.",
        _TARGET_LENGTH: (
            "`target_lengths` must be at least 0 and at most the columns of `targets`, "
            "but is not for {samples} of {call}."
        ),
        _LABEL: (
            "`targets` must be in [0, V - 1] and not contain `blank`, "
            "but do not for {samples} of {call}."
        ),
        _ROW_TOTAL: (
            "packed `logits` must have sum(logit_lengths * (target_lengths + 1)) rows, "
            "but do not in {call}."
        ),
        _CROSS_CHECK: (
            "the forward and backward scores of {samples} of {call} disagree: this is a fault in "
            'the NPU kernel, please report it; backend="reference" works, slowly.'
        ),
    }
    for code, message in messages.items():
        failing = [sample for sample, value in enumerate(status) if value == code]
        if failing:
            text = message.format(samples=_sample_list(failing), call=call)
            return RuntimeError(text) if code == _CROSS_CHECK else ValueError(text)
    return None


def _sample_list(samples: list[int]) -> str:
    *most, last = map(str, samples)
    return f"samples {', '.join(most)} and {last}" if most else f"sample {last}"


def _library_path() -> Path:
    override = cpu.overriding_path("ASR_ASCEND_NPU_LIBRARY", _LIBRARY_NAME)
    if override is not None:
        return override
    packaged = Path(str(importlib.resources.files("asr_ascend") / "lib" / _LIBRARY_NAME))
    for path in (packaged, _PACKAGE_FOLDER / "lib" / _LIBRARY_NAME):
        if path.is_file():
            return path
    raise RuntimeError(f"the NPU binding of asr_ascend is not built: {_BUILD}; {_SLOW_WAY}")
