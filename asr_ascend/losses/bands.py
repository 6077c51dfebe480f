"""Bands: which columns of each frame an alignment can use, so that no other cell is computed."""

from __future__ import annotations

import torch
from torch import Tensor

from asr_ascend.losses import checks, values

_ON_EMPTY = ("error", "widen", "full")


def lattice_band(
    emission_windows: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    *,
    on_empty: str = "error",
) -> Tensor:
    """Returns the smallest band that holds every alignment inside of emission windows.

    ``rnnt_loss`` with the same windows gives the same value with and without this band. Every cell
    outside of the band is on no alignment that the windows allow.

    Args:
        emission_windows: (B, U, 2) int32/int64, first and last frame of each label, inclusive, as
            for ``rnnt_loss``; rows past ``target_lengths`` are never read.
        logit_lengths: (B,) int32/int64, T_b >= 1, on the device of ``emission_windows``.
        target_lengths: (B,) int32/int64 in [0, U], on the device of ``emission_windows``.
        on_empty: what an utterance gets whose windows allow no alignment. "error": a ValueError.
            "widen": the band of windows whose last frames were moved back as far as it takes.
            "full": every column of every frame.

    Returns:
        (B, max T_b, 2) int64: first and last column of each frame, on the device of the windows.
        Frames past ``logit_lengths`` hold the last column.

    Raises:
        ValueError: a shape, device or length is not allowed; with "error", also no alignment.
        TypeError: wrong type or dtype.
    """
    _check(emission_windows, logit_lengths, target_lengths)
    if on_empty not in _ON_EMPTY:
        raise ValueError(
            f'`on_empty` must be "error", "widen" or "full", but is {checks.quoted(on_empty)}.'
        )
    B, U, _ = emission_windows.shape
    T = int(logit_lengths.max()) if B else 0
    num_frames = logit_lengths.to(torch.int64)[:, None]  # (B, 1)
    num_labels = target_lengths.to(torch.int64)[:, None]
    first, last = emission_windows.to(torch.int64).unbind(-1)  # (B, U)
    is_label = torch.arange(U, device=first.device) < num_labels
    # Labels come in order: none before an earlier label can, none after a later one must.
    earliest = first.clamp(min=0).where(is_label, T).cummax(1).values if U else first
    latest = _cummin_from_end(last.minimum(num_frames - 1).where(is_label, T)) if U else last
    empty = (is_label & (earliest > latest)).any(1)
    if on_empty == "error" and bool(empty.any()):
        sample = int(empty.nonzero()[0])
        raise ValueError(
            f"`emission_windows` must allow an alignment, but allow none for sample {sample}."
        )
    if on_empty == "widen" and U:
        possible = earliest.minimum(num_frames - 1)
        earliest = possible.where(is_label, T)
        latest = _cummin_from_end(latest.maximum(possible).where(is_label, T))
    t = torch.arange(T, device=first.device).expand(B, T).contiguous()
    # Column u begins with label u and ends where label u + 1 must have come.
    low = torch.searchsorted(latest.contiguous(), t)
    high = torch.searchsorted(earliest.contiguous(), t, right=True)
    band = torch.stack([low, high], dim=-1)
    if on_empty == "full":
        everything = torch.stack([torch.zeros_like(num_labels), num_labels], dim=-1)
        band = band.where(~empty[:, None, None], everything)
    past_the_end = (t >= num_frames)[..., None]
    return band.where(~past_the_end, num_labels[..., None])


def band_around(
    frames: Tensor, logit_lengths: Tensor, target_lengths: Tensor, *, radius: int
) -> Tensor:
    """Returns the band of some frames before and after an alignment.

    Args:
        frames: (B, U) int32/int64, the frame of each label, never falling, as ``rnnt_alignment``
            gives them; values past ``target_lengths`` are never read.
        logit_lengths: (B,) int32/int64, T_b >= 1, on the device of ``frames``.
        target_lengths: (B,) int32/int64 in [0, U], on the device of ``frames``.
        radius: frames by which each label may come sooner or later, at least 0.

    Returns:
        (B, max T_b, 2) int64, as :func:`lattice_band` with the windows frames +- radius.

    Raises:
        ValueError, TypeError: as :func:`lattice_band`.
    """
    checks.check_tensor("frames", frames)
    if frames.dim() != 2:
        raise ValueError(f"`frames` must be (B, U), but has shape {checks.shape_of(frames)}.")
    if not isinstance(radius, int) or isinstance(radius, bool) or radius < 0:
        raise ValueError(f"`radius` must be an int of at least 0, but is {checks.quoted(radius)}.")
    windows = torch.stack([frames - radius, frames + radius], dim=-1)
    return lattice_band(windows, logit_lengths, target_lengths)


def _cummin_from_end(values: Tensor) -> Tensor:
    return values.flip(1).cummin(1).values.flip(1)


def _check(emission_windows: Tensor, logit_lengths: Tensor, target_lengths: Tensor) -> None:
    checks.check_index("emission_windows", emission_windows)
    if emission_windows.dim() != 3 or emission_windows.shape[2] != 2:
        raise ValueError(
            "`emission_windows` must be (B, U, 2), "
            f"but has shape {checks.shape_of(emission_windows)}."
        )
    B, U, _ = emission_windows.shape
    checks.check_lengths(emission_windows, logit_lengths, target_lengths, B)
    values.check_lengths(logit_lengths, target_lengths, max_labels=U)
