"""Checks of type, dtype, shape, device and options: all that needs no value of a tensor."""

import contextlib
import numbers
import operator

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_INDEX_DTYPES = (torch.int32, torch.int64)
_REDUCTIONS = ("none", "mean", "sum")


def check_logits(logits: Tensor) -> None:
    """Checks that logits are floats, packed or padded, with a vocabulary.

    Raises:
        ValueError, TypeError: they are not.
    """
    check_tensor("logits", logits)
    check_has_values("logits", logits)
    if logits.dtype not in DTYPES:
        raise TypeError(
            "`logits` must be float32, float64, float16 or bfloat16, "
            f"but is {dtype_name(logits.dtype)}."
        )
    if logits.dim() not in (2, 4):
        raise ValueError(
            f"`logits` must be (N, V) or (B, T, U + 1, V), but has shape {shape_of(logits)}."
        )
    if logits.shape[-1] < 1 or (logits.dim() == 4 and logits.shape[2] < 1):
        raise ValueError(
            "`logits` must not be empty in its label and vocabulary dimensions, "
            f"but has shape {shape_of(logits)}."
        )


def check_targets(targets: Tensor, logits: Tensor, may_be_on_cpu: bool = False) -> None:
    """Checks that targets are (B, U) integers on the device of ``logits``.

    With ``may_be_on_cpu`` they may be on the CPU too.

    Raises:
        ValueError, TypeError: they are not.
    """
    check_index("targets", targets)
    if targets.dim() != 2 or (logits.dim() == 4 and targets.shape[0] != logits.shape[0]):
        expected = "(B, U)" if logits.dim() == 2 else f"({logits.shape[0]}, U)"
        raise ValueError(f"`targets` must be {expected}, but has shape {shape_of(targets)}.")
    if may_be_on_cpu:
        _check_device("targets", targets, logits)
    elif targets.device != logits.device:
        raise ValueError(
            f"`targets` must be on {logits.device} as `logits`, but is on {targets.device}."
        )


def check_tensor(name: str, value: Tensor) -> None:
    """Checks that a value is a dense tensor.

    Raises:
        TypeError: it is no tensor, such as a list of lengths.
        ValueError: it is sparse or nested.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"`{name}` must be a Tensor, but is a {type(value).__name__}.")
    if value.is_nested or value.layout != torch.strided:
        layout = "nested" if value.is_nested else str(value.layout).removeprefix("torch.")
        raise ValueError(f"`{name}` must be a dense tensor, but is {layout.lstrip('_')}.")


def check_has_values(name: str, value: Tensor) -> None:
    """Checks that a tensor has values.

    Raises:
        ValueError: it is on the device "meta", which has only shapes.
    """
    if value.device.type == "meta":
        raise ValueError(f"`{name}` must have values, but is on meta.")


def check_flag(name: str, value: bool) -> None:
    """Checks that a value is True or False.

    Raises:
        TypeError: it is neither.
    """
    if not isinstance(value, bool):
        raise TypeError(f"`{name}` must be a bool, but is {quoted(value)}.")


def as_int(name: str, value: object) -> int:
    """Returns an int for an integer of Python or NumPy or a 0-d integer tensor.

    Raises:
        TypeError: it is none of these. A bool is refused: a positional True is another library's
            flag.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, Tensor):
        is_integer = value.dim() == 0 and value.dtype != torch.bool
    else:
        is_integer = not isinstance(value, bool)
    if is_integer:
        with contextlib.suppress(TypeError):
            return operator.index(value)  # type: ignore[arg-type]
    raise TypeError(f"`{name}` must be an int, but is {quoted(value)}.")


def as_float(name: str, value: object) -> float:
    """Returns a float for a number of Python or NumPy or a 0-d tensor.

    Raises:
        TypeError: it is none of these, or a bool.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    if isinstance(value, Tensor):
        is_number = value.dim() == 0 and value.dtype != torch.bool and not value.is_complex()
    else:
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number:
        raise TypeError(f"`{name}` must be a float, but is {quoted(value)}.")
    return float(value)  # type: ignore[arg-type]


def checked_reduction(reduction: str | None) -> str:
    """Returns the reduction, "none" for None.

    Raises:
        ValueError: it is not "none", "mean" or "sum".
    """
    if reduction is None:
        return "none"
    if reduction not in _REDUCTIONS:
        raise ValueError(
            f'`reduction` must be "none", "mean" or "sum", but is {quoted(reduction)}.'
        )
    return reduction


def is_one_symbol(topology: str) -> bool:
    """Returns whether a label takes a frame.

    Raises:
        ValueError: `topology` is not one that the losses know.
    """
    if topology not in ("regular", "one_symbol_per_frame"):
        raise ValueError(
            f'`topology` must be "regular" or "one_symbol_per_frame", but is {quoted(topology)}.'
        )
    return topology == "one_symbol_per_frame"


def check_index(name: str, value: Tensor) -> None:
    """Checks that a value is an int32 or int64 tensor.

    Raises:
        TypeError: it is not.
    """
    check_tensor(name, value)
    if value.dtype not in _INDEX_DTYPES:
        raise TypeError(f"`{name}` must be int32 or int64, but is {dtype_name(value.dtype)}.")


def check_lengths(
    logits: Tensor, logit_lengths: Tensor, target_lengths: Tensor, batch_size: int
) -> None:
    """Checks that both lengths are (B,) integers on the CPU or the device of ``logits``.

    Raises:
        ValueError, TypeError: they are not.
    """
    for name, lengths in (("logit_lengths", logit_lengths), ("target_lengths", target_lengths)):
        check_index(name, lengths)
        if lengths.dim() != 1 or lengths.shape[0] != batch_size:
            raise ValueError(
                f"`{name}` must have shape ({batch_size},), but has shape {shape_of(lengths)}."
            )
        _check_device(name, lengths, logits)


def _check_device(name: str, value: Tensor, logits: Tensor) -> None:
    if value.device.type != "cpu" and value.device != logits.device:
        expected = "the CPU" if logits.device.type == "cpu" else f"the CPU or {logits.device}"
        raise ValueError(f"`{name}` must be on {expected}, but is on {value.device}.")


def check_windows(logits: Tensor, targets: Tensor, windows: Tensor) -> None:
    """Checks that windows are (B, columns of ``targets``, 2) integers.

    They may be where lengths may be: on the CPU or the device of ``logits``.

    Raises:
        ValueError, TypeError: they are not.
    """
    check_index("emission_windows", windows)
    expected = (*shape_of(targets), 2)
    if shape_of(windows) != expected:
        raise ValueError(
            f"`emission_windows` must have shape {expected}, a first and a last frame for each of "
            f"`targets`, but has shape {shape_of(windows)}."
        )
    _check_device("emission_windows", windows, logits)


def check_band(logits: Tensor, targets: Tensor, band: Tensor) -> None:
    """Checks that a band is (B, T, 2) integers, and that the logits are packed.

    It may be where lengths may be: on the CPU or the device of ``logits``.

    Raises:
        ValueError, TypeError: it is not.
    """
    check_index("band", band)
    if band.dim() != 3 or band.shape[0] != targets.shape[0] or band.shape[2] != 2:
        raise ValueError(
            f"`band` must have shape ({targets.shape[0]}, T, 2), a first and a last column for "
            f"each frame, but has shape {shape_of(band)}."
        )
    _check_device("band", band, logits)
    if logits.dim() != 2:
        raise ValueError(
            "`logits` must be packed (N, V) where `band` is given, "
            f"but has shape {shape_of(logits)}."
        )


def check_reuse(logits: Tensor, reuse_logits: bool) -> None:
    """Checks that ``reuse_logits`` is a bool and, if True, that ``logits`` may be overwritten.

    Raises:
        ValueError, TypeError: it is not.
    """
    check_flag("reuse_logits", reuse_logits)
    if not reuse_logits:
        return
    if logits.requires_grad and logits.is_leaf:
        raise ValueError(
            "`logits` must not be a leaf that requires grad if `reuse_logits` is True, "
            "since the gradient would overwrite it."
        )
    if not is_row_contiguous(logits):
        raise ValueError(
            "`logits` must be contiguous in its last dimension if `reuse_logits` is True, "
            f"but has strides {logits.stride()}."
        )
    # Sorted by stride, each dimension must step over all that the smaller ones reach.
    reach = 1
    for stride, size in sorted(zip(logits.stride(), logits.shape, strict=True)):
        if size > 1:
            if stride < reach:
                raise ValueError(
                    "`logits` must not overlap itself in memory if `reuse_logits` is True, "
                    f"but has shape {shape_of(logits)} and strides {logits.stride()}."
                )
            reach = stride * size


def is_row_contiguous(logits: Tensor) -> bool:
    """Returns whether the V values of each row are neighbours in memory."""
    return logits.stride(-1) == 1 or logits.shape[-1] == 1


def shape_of(value: Tensor) -> tuple[int, ...]:
    """Returns the shape as a tuple, which prints without torch.Size."""
    return tuple(value.shape)


def quoted(value: object) -> str:
    """Returns a string in double quotes, anything else as its repr."""
    return f'"{value}"' if isinstance(value, str) else repr(value)


def dtype_name(dtype: torch.dtype) -> str:
    """Returns the name of a dtype as in messages: "int32", not "torch.int32"."""
    return str(dtype).removeprefix("torch.")


def check_not_overwritten(function: str, overwritten: bool) -> None:
    """Checks that no backward pass has put the gradient in the place of the logits.

    Raises:
        RuntimeError: it has.
    """
    if overwritten:
        raise RuntimeError(
            f"`{function}` with `reuse_logits=True` can run backward only once: the first backward "
            "pass has put the gradient in the place of the logits."
        )
