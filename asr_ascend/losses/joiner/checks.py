"""Checks of the joiner's loss: shapes, dtypes, devices, options, and the values of its indices."""

import math
import numbers

import torch
from torch import Tensor

from asr_ascend.losses import checks, values
from asr_ascend.losses.checks import DTYPES, dtype_name, quoted, shape_of
from asr_ascend.losses.problem import Problem

_ACTIVATIONS = ("tanh", "relu")


def check_inputs(encoder: Tensor, predictor: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Checks that the joiner's inputs and its output layer fit each other.

    Raises:
        ValueError, TypeError: they don't.
    """
    named = {"encoder_out": encoder, "predictor_out": predictor, "weight": weight}
    if bias is not None:
        named["bias"] = bias
    for name, value in named.items():
        checks.check_tensor(name, value)
        if value.dtype not in DTYPES:
            raise TypeError(
                f"`{name}` must be float32, float64, float16 or bfloat16, "
                f"but is {dtype_name(value.dtype)}."
            )
        if value.device != encoder.device:
            raise ValueError(
                f"`{name}` must be on {encoder.device} as `encoder_out`, but is on {value.device}."
            )
        checks.check_has_values(name, value)
        if value.dtype != encoder.dtype and not torch.is_autocast_enabled(encoder.device.type):
            raise TypeError(
                f"`{name}` must be {dtype_name(encoder.dtype)} as `encoder_out` outside of "
                f"autocast, but is {dtype_name(value.dtype)}."
            )
    if encoder.dim() != 3 or encoder.shape[2] < 1:
        raise ValueError(
            f"`encoder_out` must be (B, T, H), H at least 1, but has shape {shape_of(encoder)}."
        )
    batch_size, _, width = encoder.shape
    if predictor.dim() != 3 or predictor.shape[::2] != encoder.shape[::2] or predictor.shape[1] < 1:
        raise ValueError(
            f"`predictor_out` must be ({batch_size}, U + 1, {width}), "
            f"but has shape {shape_of(predictor)}."
        )
    if weight.dim() != 2 or weight.shape[1] != width or weight.shape[0] < 1:
        raise ValueError(f"`weight` must be (V, {width}), but has shape {shape_of(weight)}.")
    if bias is not None and shape_of(bias) != (weight.shape[0],):
        raise ValueError(
            f"`bias` must have shape ({weight.shape[0]},), but has shape {shape_of(bias)}."
        )


def check_options(
    activation: str,
    max_dropped_mass: float,
    max_bytes: int | None,
    logits_dtype: torch.dtype | None,
) -> None:
    """Checks that each option has an allowed value.

    Raises:
        ValueError, TypeError: one has not.
    """
    if activation not in _ACTIVATIONS:
        raise ValueError(f'`activation` must be "tanh" or "relu", but is {quoted(activation)}.')
    is_number = isinstance(max_dropped_mass, numbers.Real)
    if not is_number or not 0 <= max_dropped_mass < math.inf:
        raise ValueError(
            "`max_dropped_mass` must be a finite number of at least 0, "
            f"but is {quoted(max_dropped_mass)}."
        )
    if max_bytes is not None and (not isinstance(max_bytes, int) or max_bytes < 1):
        raise ValueError(
            f"`max_bytes` must be None or an int of at least 1, but is {quoted(max_bytes)}."
        )
    if logits_dtype not in (None, *DTYPES):
        raise TypeError(
            "`logits_dtype` must be None, torch.float32, torch.float64, torch.float16 or "
            f"torch.bfloat16, but is {quoted(logits_dtype)}."
        )


def check_weights(weights: Tensor | None, batch_size: int) -> None:
    """Checks that ``weights`` is None or (B,) floats outside of autograd.

    Raises:
        ValueError, TypeError: it is not.
    """
    if weights is None:
        return
    checks.check_tensor("weights", weights)
    checks.check_has_values("weights", weights)
    if weights.dtype not in DTYPES:
        raise TypeError(
            "`weights` must be float32, float64, float16 or bfloat16, "
            f"but is {dtype_name(weights.dtype)}."
        )
    if shape_of(weights) != (batch_size,):
        raise ValueError(
            f"`weights` must have shape ({batch_size},), but has shape {shape_of(weights)}."
        )
    if weights.requires_grad:
        raise ValueError(
            "`weights` must not require grad, since it gets none: detach it, or multiply the costs "
            'of reduction="none" by it.'
        )


def check_batch_size(targets: Tensor, batch_size: int) -> None:
    """Checks that targets are of a batch of ``batch_size``; no logits exist to compare them with.

    Raises:
        ValueError: they are not.
    """
    if isinstance(targets, Tensor) and targets.dim() == 2 and len(targets) != batch_size:
        raise ValueError(f"`targets` must be ({batch_size}, U), but has shape {shape_of(targets)}.")


def checked_lengths(encoder: Tensor, predictor: Tensor, problem: Problem) -> Problem:
    """Returns the problem with int64 lengths and band on the CPU.

    Values are checked here, once for the whole batch, so that errors name the sample.
    """
    problem = problem._replace(
        logit_lengths=problem.logit_lengths.to("cpu", torch.int64),
        target_lengths=problem.target_lengths.to("cpu", torch.int64),
        band=None if problem.band is None else problem.band.to("cpu", torch.int64),
    )
    values.check_lengths(
        problem.logit_lengths,
        problem.target_lengths,
        max_frames=encoder.shape[1],
        max_labels=min(predictor.shape[1] - 1, problem.targets.shape[1]),
    )
    if problem.band is not None:
        values.check_band(problem.band, problem.logit_lengths, problem.target_lengths)
    return problem
