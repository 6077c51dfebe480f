"""A batch of the loss in a file, for replay: lengths, targets, options, statistics, small logits.

Needs torch alone, so that it is read where Lightning is not installed. ``docs/training.md`` says
what is in the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from asr_ascend.losses import layout
from asr_ascend.system.atomic import replaced_file
from asr_ascend.system.paths import user_path

FORMAT = "asr_ascend.saved_batch"
FORMAT_VERSION = 1
# Larger logits are described by their statistics alone.
MAX_LOGITS_BYTES = 64 * 2**20

_INTEGERS = (torch.int32, torch.int64)
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class SavedBatchError(ValueError):
    """A file that holds no batch, or a batch that doesn't fit itself; the message is a sentence."""


@dataclass(frozen=True)
class SavedBatch:
    """The arguments of one call of `rnnt_loss`, on the CPU, and what is known of it.

    Args:
        ids: names of the B utterances.
        targets: (B, U) int32/int64 labels, padded with anything.
        logit_lengths: (B,) int32/int64, T_b.
        target_lengths: (B,) int32/int64, U_b.
        blank: id of blank in [0, V - 1].
        clamp, fused_log_softmax, fastemit_lambda, delay_penalty: as for `rnnt_loss`.
        emission_windows: (B, U, 2) int32/int64, or None.
        band: (B, T, 2) int32/int64, or None.
        logits: (N, V) packed, in the dtype that the loss took; None where they were too large.
        statistics: by name of a tensor: `least`, `greatest`, `mean` of its finite values (absent
            where there are none), `not_finite` and `of`, the numbers of elements.
        about: where the batch comes from: `step`, `epoch`, `rank`, losses; plain Python.
    """

    ids: list[str]
    targets: Tensor
    logit_lengths: Tensor
    target_lengths: Tensor
    blank: int
    clamp: float = -1.0
    fused_log_softmax: bool = True
    fastemit_lambda: float = 0.0
    delay_penalty: float = 0.0
    emission_windows: Tensor | None = None
    band: Tensor | None = None
    logits: Tensor | None = None
    statistics: dict[str, dict[str, float | int]] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    def loss_arguments(self) -> dict[str, Any]:
        """Returns the arguments of `rnnt_loss` and `rnnt_loss_and_grad`, except the logits."""
        names = ("targets", "logit_lengths", "target_lengths", "blank", "clamp")
        more = ("fused_log_softmax", "fastemit_lambda", "delay_penalty")
        limits = ("emission_windows", "band")
        return {name: getattr(self, name) for name in (*names, *more, *limits)}


def write_saved_batch(path: str | os.PathLike[str], batch: SavedBatch) -> None:
    """Writes a batch in one step; tensors go to the CPU, and large logits are left out.

    Raises:
        OSError: it can't be written; the error names `path`.
        SavedBatchError: parts that don't fit each other.
    """
    contents = {item.name: _plain(getattr(batch, item.name)) for item in fields(batch)}
    logits = contents["logits"]
    if logits is not None and logits.numel() * logits.element_size() > MAX_LOGITS_BYTES:
        contents["logits"] = None
    _checked(Path(path), contents)
    with replaced_file(Path(path)) as temporary:
        torch.save({"format": FORMAT, "format_version": FORMAT_VERSION, **contents}, temporary)


def read_saved_batch(path: str | os.PathLike[str]) -> SavedBatch:
    """Reads a batch; no code in the file runs (`weights_only=True`).

    Raises:
        SavedBatchError: no such file, not a saved batch, another version, or parts that don't fit
            each other; one sentence that names the file and the part.
    """
    file = user_path(path)
    if not file.is_file():
        raise SavedBatchError(f"The saved batch {file} is not a file.")
    try:
        contents = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises many kinds on foreign bytes
        raise SavedBatchError(f"{file} is not a saved batch of asr_ascend.") from error
    if not isinstance(contents, dict) or contents.pop("format", None) != FORMAT:
        raise SavedBatchError(f"{file} is not a saved batch of asr_ascend.")
    version = contents.pop("format_version", None)
    if version != FORMAT_VERSION:
        raise SavedBatchError(
            f"{file} has format version {version}, but this asr_ascend reads {FORMAT_VERSION}."
        )
    return _checked(file, contents)


def statistics_of(value: Tensor) -> dict[str, float | int]:
    """Computes least, greatest and mean of the finite elements, and counts the others.

    Args:
        value: floats of any shape.

    Returns:
        `least`, `greatest`, `mean`, absent without a finite element; `not_finite` and `of`.
    """
    wide = value.detach().to("cpu").double()
    finite = wide[wide.isfinite()]
    found: dict[str, float | int] = {}
    if len(finite):
        least, greatest = finite.aminmax()
        found = {"least": float(least), "greatest": float(greatest), "mean": float(finite.mean())}
    return {**found, "not_finite": wide.numel() - len(finite), "of": wide.numel()}


def joined_statistics(parts: Sequence[dict[str, float | int]]) -> dict[str, float | int]:
    """Joins the statistics of a tensor's parts into those of the tensor.

    Args:
        parts: from `statistics_of`.
    """
    finite = [part for part in parts if "mean" in part]
    counts = [part["of"] - part["not_finite"] for part in finite]
    found: dict[str, float | int] = {}
    if finite:
        weighted = (part["mean"] * count for part, count in zip(finite, counts, strict=True))
        found = {
            "least": min(part["least"] for part in finite),
            "greatest": max(part["greatest"] for part in finite),
            "mean": sum(weighted) / sum(counts),
        }
    return {**found, **{key: sum(part[key] for part in parts) for key in ("not_finite", "of")}}


def _plain(value: Any) -> Any:
    """A tensor on the CPU with memory of its own; plain Python as it is."""
    return value.detach().cpu().clone() if isinstance(value, Tensor) else value


def _checked(file: Path, contents: Mapping[str, Any]) -> SavedBatch:
    """The batch of a file's contents."""
    known = {item.name for item in fields(SavedBatch)}
    needed = {"ids", "targets", "logit_lengths", "target_lengths", "blank"}
    if missing := sorted(needed - contents.keys()):
        raise SavedBatchError(f"{file} is not complete: it lacks {', '.join(missing)}.")
    if unknown := sorted(contents.keys() - known):
        raise SavedBatchError(f"{file} has parts that are not known: {', '.join(unknown)}.")
    batch = SavedBatch(**contents)
    for name, wanted, fits in _rules(batch):
        if not fits:
            given = _described(getattr(batch, name))
            raise SavedBatchError(f"`{name}` in {file} must be {wanted}, but is {given}.")
    return batch


def _rules(batch: SavedBatch) -> list[tuple[str, str, bool]]:
    """Name of each part, what it must be, and whether it is."""
    ids, targets = batch.ids, batch.targets
    rules = [("ids", "a list of names", _is_names(ids))]
    B = len(ids) if _is_names(ids) else 0
    rules.append(("targets", f"({B}, U) integers", _is(targets, _INTEGERS, (B, None))))
    U = targets.shape[1] if _is(targets, _INTEGERS, (B, None)) else None
    for name in ("logit_lengths", "target_lengths"):
        rules.append((name, f"({B},) integers", _is(getattr(batch, name), _INTEGERS, (B,))))
    rules.append(("blank", "an int of at least 0", type(batch.blank) is int and batch.blank >= 0))
    for name in ("clamp", "fastemit_lambda", "delay_penalty"):
        value = getattr(batch, name)
        rules.append((name, "a number", isinstance(value, int | float)))
    rules.append(("fused_log_softmax", "a bool", isinstance(batch.fused_log_softmax, bool)))
    for name, middle, shown in (("emission_windows", U, U), ("band", None, "T")):
        value = getattr(batch, name)
        fits = value is None or _is(value, _INTEGERS, (B, middle, 2))
        rules.append((name, f"None or ({B}, {shown}, 2) integers", fits))
    for name in ("statistics", "about"):
        rules.append((name, "a dict", isinstance(getattr(batch, name), dict)))
    if all(fits for _, _, fits in rules):
        rules.append(_rule_of_logits(batch))
    return rules


def _rule_of_logits(batch: SavedBatch) -> tuple[str, str, bool]:
    lengths = batch.logit_lengths, batch.target_lengths
    N = int(layout.row_offsets(*lengths, batch.band)[-1])
    value = batch.logits
    fits = value is None or (_is(value, _FLOATS, (N, None)) and value.shape[1] > batch.blank)
    return "logits", f"None or ({N}, V) floats with V above {batch.blank}", fits


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is(value: Any, dtypes: tuple[torch.dtype, ...], shape: tuple[int | None, ...]) -> bool:
    """Whether it is a tensor of one of the dtypes and of a shape, where None is any size."""
    if not isinstance(value, Tensor) or value.dtype not in dtypes or value.dim() != len(shape):
        return False
    sizes = zip(value.shape, shape, strict=True)
    return all(wanted is None or size == wanted for size, wanted in sizes)


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
    return repr(value) if len(repr(value)) < 50 else f"a {type(value).__name__}"
