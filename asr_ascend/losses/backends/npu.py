"""Backend "npu": the AscendC kernels behind the operators, for tensors on an NPU.

No value of a tensor comes to the host here unless the caller asks for it, but for the lengths of
padded logits: how many rows there are follows from them. Lengths on the CPU are checked where they
are, everything else by the kernel, which leaves what it found on the device until ``check_status``
reads it.
"""

import torch
from torch import Tensor

from asr_ascend.losses import checks, layout, operators, values
from asr_ascend.losses.backends import npu_library, npu_status
from asr_ascend.losses.backends.npu_library import DEVICE_TYPE
from asr_ascend.losses.problem import Problem, on_device

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)

# Of rnnt_loss_fused_check.h, rnnt_loss_fused_tiling_data.h and rnnt_loss_fused_tiling_plan.h.
MAX_TARGET_COLUMNS = 1023
STATE_PLANES = 9
MAX_CORES = 64
BLOCK_BYTES = 32
CACHE_LINE_BYTES = 64

HAS_BANDS = True


def is_available() -> bool:
    """Returns whether NPU tensors can exist here and the binding can be used now."""
    if not npu_library.has_npu():
        return False
    try:
        npu_library.load()
    except RuntimeError:
        return False
    return True


def checks_on_host(index: Tensor, validate: bool) -> bool:
    """Returns whether the host checks ``index``; on the device only with ``validate``.

    See ``LossBackend``.
    """
    return validate or index.device.type == "cpu"


def costs(
    logits: Tensor,
    problem: Problem,
    *,
    reuse_logits: bool = False,
    validate: bool = False,
    values_checked: bool = False,
) -> Tensor:
    """Computes costs (B,) float32; see ``LossBackend``."""
    rows, prepared, _ = _prepare(logits, problem, reuse_logits, validate, values_checked)
    result = operators.costs(rows, prepared, reuse_logits)
    if validate:
        npu_status.check_latest_status(logits.device)
    return result


def costs_and_gradient(
    logits: Tensor,
    problem: Problem,
    *,
    reuse_logits: bool = False,
    validate: bool = False,
    values_checked: bool = False,
) -> tuple[Tensor, Tensor]:
    """Computes costs (B,) float32 and the gradient; see ``LossBackend``."""
    rows, prepared, places = _prepare(logits, problem, reuse_logits, validate, values_checked)
    # Rows that were picked out of padded logits are a copy, whose memory may be used.
    in_place = reuse_logits or places is not None
    if in_place or prepared.fastemit_lambda != 0.0:
        result, grad = operators.costs_and_gradient(rows, prepared, in_place)
    else:
        result, grad = operators.costs_and_gradient_fused(rows, prepared)
    if validate:
        npu_status.check_latest_status(logits.device)
    if places is not None:
        grad = _spread(grad, places, logits)
    if reuse_logits and grad.data_ptr() != logits.data_ptr():
        grad = logits.copy_(grad)
    return result, grad


def new_outputs(
    logits: Tensor, batch_size: int, needs_grad: bool, band: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Returns costs (B,) and state of ``rnnt_loss_forward``, float32 and uninitialised."""
    band_frames = 0 if band is None else band.shape[1]
    size = state_size(logits.shape[0], batch_size, band_frames) if needs_grad else 0
    costs = logits.new_empty(batch_size, dtype=torch.float32)
    return costs, logits.new_empty(size, dtype=torch.float32)


def state_size(num_rows: int, batch_size: int, band_frames: int = 0) -> int:
    """Returns the float32 elements of the state that a gradient needs.

    It is StateShape of the operator's tiling.
    """
    planes = STATE_PLANES * _round_up(4 * num_rows, CACHE_LINE_BYTES)
    flags = _round_up(planes + BLOCK_BYTES * batch_size, CACHE_LINE_BYTES)
    size = _round_up(flags + BLOCK_BYTES * (MAX_CORES + 1), CACHE_LINE_BYTES)
    if band_frames > 0:
        size += _round_up(8 * batch_size * (2 + band_frames), CACHE_LINE_BYTES)
    return size // 4


def _round_up(value: int, multiple: int) -> int:
    return (value + multiple - 1) // multiple * multiple


@torch.compiler.assume_constant_result  # a compiled caller loads while it is traced
def _ensure_loaded() -> bool:
    npu_library.load()
    return True


def _prepare(
    logits: Tensor, problem: Problem, reuse_logits: bool, validate: bool, values_checked: bool
) -> tuple[Tensor, Problem, Tensor | None]:
    """Packed rows and problem as the operator takes them: int32 targets and lengths on the device.

    The last is the rows' places in padded logits, None for packed ones.

    Raises:
        TypeError: float64 logits.
        ValueError: too many columns of ``targets``; lengths, where they are on the CPU, out of
            place; with ``validate`` also lengths and labels on the device.
    """
    _ensure_loaded()
    _check_limits(logits, problem)
    prepared = problem._replace(
        targets=problem.targets.to(torch.int32),
        logit_lengths=on_device(problem.logit_lengths.to(torch.int32), logits.device),
        target_lengths=on_device(problem.target_lengths.to(torch.int32), logits.device),
        emission_windows=_int32_on_device(problem.emission_windows, logits.device),
        band=_int32_on_device(problem.band, logits.device),
    )
    if logits.dim() == 4:
        problem = _with_lengths_on_host(problem)
    if not values_checked:
        _check_values(logits, problem, validate)
    if logits.dim() == 4:
        places = _packed_rows(logits, problem)
        return logits.flatten(0, 2).index_select(0, places), prepared, places
    # aclnn would copy rows that are not contiguous in forward and again in backward.
    return logits if reuse_logits else logits.contiguous(), prepared, None


def _int32_on_device(index: Tensor | None, device: torch.device) -> Tensor | None:
    return None if index is None else on_device(index.to(torch.int32), device)


def _check_limits(logits: Tensor, problem: Problem) -> None:
    if logits.dtype not in _DTYPES:
        raise TypeError(
            "`logits` on an NPU must be float32, float16 or bfloat16, "
            f"but is {checks.dtype_name(logits.dtype)}."
        )
    if problem.targets.shape[1] > MAX_TARGET_COLUMNS and problem.band is None:
        raise ValueError(
            f"`targets` on an NPU must have at most {MAX_TARGET_COLUMNS} columns, "
            f"but has {problem.targets.shape[1]}."
        )
    if problem.delay_penalty != 0.0:
        raise ValueError(
            "`delay_penalty` must be 0 on an NPU, whose operator has none yet, "
            f"but is {problem.delay_penalty}."
        )


def _check_values(logits: Tensor, problem: Problem, validate: bool) -> None:
    """All of them with ``validate``; else what the host has, outside of a compiled graph."""
    if validate:
        on_host = problem._replace(emission_windows=None).with_indices(Tensor.cpu)
        values.check_values(logits, on_host)
    elif _lengths_are_on_cpu(problem) and not torch.compiler.is_compiling():
        values.check_sizes(logits, problem, with_band=_is_on_cpu(problem.band))


def _is_on_cpu(index: Tensor | None) -> bool:
    return index is not None and index.device.type == "cpu"


def _lengths_are_on_cpu(problem: Problem) -> bool:
    """Whether the host may read both lengths without waiting for the device."""
    return problem.logit_lengths.device.type == problem.target_lengths.device.type == "cpu"


def _with_lengths_on_host(problem: Problem) -> Problem:
    """The problem with its lengths on the CPU; one wait for the device if they are on it."""
    if _lengths_are_on_cpu(problem):
        return problem
    both = problem.logit_lengths, problem.target_lengths
    if all(lengths.device.type != "cpu" for lengths in both):
        # One copy of both instead of two.
        together = torch.cat([lengths.to(torch.int32) for lengths in both]).cpu()
        logit_lengths, target_lengths = together.chunk(2)
    else:
        logit_lengths, target_lengths = (lengths.cpu() for lengths in both)
    return problem._replace(logit_lengths=logit_lengths, target_lengths=target_lengths)


def _packed_rows(logits: Tensor, problem: Problem) -> Tensor:
    """Places (N,) int64 of the packed rows among the B * T * U1 rows of padded ``logits``.

    The lengths are on the CPU.
    """
    _, T, U1, _ = logits.shape
    in_lattice = layout.lattice_mask(problem.logit_lengths, problem.target_lengths, T, U1)
    return on_device(in_lattice.flatten().nonzero()[:, 0], logits.device)


def _spread(rows: Tensor, places: Tensor, padded: Tensor) -> Tensor:
    """``rows`` (N, V) at their places in zeros of the shape of ``padded``."""
    spread = torch.zeros(padded.shape, dtype=padded.dtype, device=padded.device)
    spread.view(-1, padded.shape[-1]).index_add_(0, places, rows)
    return spread


operators.register_outputs(DEVICE_TYPE, new_outputs)
