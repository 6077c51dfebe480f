"""The band of a pruned RNN-T loss, from where the alignments of a simple joiner pass."""

from __future__ import annotations

import torch
from torch import Tensor

from asr_ascend.losses import checks, values
from asr_ascend.losses.problem import on_device


def pruned_band(
    occupancies: tuple[Tensor, Tensor],
    logit_lengths: Tensor,
    target_lengths: Tensor,
    *,
    symbols_per_frame: int,
) -> Tensor:
    """Returns the band of pruned RNN-T: in each frame the S columns that alignments use most.

    A frame's window of columns [s, s + S - 1] is the one with the largest sum of blank's
    occupancies, less the occupancy of label s - 1, which leads into it from below. Of equal windows
    it is the lowest. The first columns are then lowered until they never fall. Last they are raised
    until neighbouring frames overlap in at least one column.

    Args:
        occupancies: of blank and of label, (B, T, U + 1) each, float32 or float64, as
            :func:`simple_rnnt_loss` gives them. Padding is never read.
        logit_lengths: (B,) int32/int64 in [1, T], on the CPU or the device of the occupancies.
        target_lengths: (B,) int32/int64 in [0, U], the same.
        symbols_per_frame: S, at least 1; columns of a frame, ``s_range`` in k2 and
            ``prune_range`` in icefall. A sample with fewer columns has them all.

    Returns:
        (B, max T_b, 2) int64: first and last column of each frame, on the device of the
        occupancies. Frames past ``logit_lengths`` hold the last column.

    Raises:
        ValueError: shape, device or length out of place, or S columns a frame that can't cover
            all labels of a sample: T_b * (S - 1) below U_b.
        TypeError: wrong type or dtype.

    Source:
        Kuang et al. 2022, "Pruned RNN-T for fast, memory-efficient ASR training"
        (https://arxiv.org/abs/2206.13236), section 3.2; fast_rnnt 1.3, `get_rnnt_prune_ranges`,
        gives the same columns for each sample by itself.
    """
    blank, label = _checked_occupancies(occupancies)
    S = checks.as_int("symbols_per_frame", symbols_per_frame)
    if S < 1:
        raise ValueError(f"`symbols_per_frame` must be at least 1, but is {S}.")
    B, T, U1 = blank.shape
    checks.check_lengths(blank, logit_lengths, target_lengths, B)
    values.check_lengths(logit_lengths, target_lengths, max_frames=T, max_labels=U1 - 1)
    _check_covers(logit_lengths, target_lengths, S)
    T = int(logit_lengths.max()) if B else 0
    num_frames = on_device(logit_lengths.to(torch.int64), blank.device)[:, None]  # (B, 1)
    num_labels = on_device(target_lengths.to(torch.int64), blank.device)[:, None]
    highest = (num_labels - S + 1).clamp(min=0)
    first = _fullest_windows(blank[:, :T], label[:, :T], num_labels, highest, S)
    t = torch.arange(T, device=blank.device)
    # The last column is in the last frame, and so in every later one.
    first = torch.where(t < num_frames - 1, first, highest)
    first = _cummin_from_end(first)
    # first[t + 1] - first[t] <= S - 1 where (S - 1) t - first[t] never falls.
    behind = _cummin_from_end((S - 1) * t - first).clamp(min=0)
    first = (S - 1) * t - behind
    last = (first + S - 1).minimum(num_labels)
    band = torch.stack([first, last], dim=-1)
    return band.where((t < num_frames)[..., None], num_labels[..., None])


def _fullest_windows(
    blank: Tensor, label: Tensor, num_labels: Tensor, highest: Tensor, S: int
) -> Tensor:
    """(B, T) first column of each frame's fullest window, at most ``highest`` (B, 1)."""
    column = torch.arange(blank.shape[2], device=blank.device)
    inside = (column <= num_labels)[:, None]
    blank, label = blank.where(inside, 0.0), label.where(inside, 0.0)
    width = min(S, blank.shape[2])
    held = blank.unfold(2, width, 1).sum(-1)  # (B, T, U1 - width + 1)
    from_below = torch.nn.functional.pad(label, (1, 0))[..., : held.shape[2]]
    allowed = column[: held.shape[2]] <= highest
    score = (held - from_below).masked_fill(~allowed[:, None], -torch.inf)
    # NaN is the largest of all for argmax.
    return score.argmax(-1).minimum(highest)


def _cummin_from_end(values: Tensor) -> Tensor:
    return values.flip(1).cummin(1).values.flip(1)


def _checked_occupancies(occupancies: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    if not isinstance(occupancies, (tuple, list)) or len(occupancies) != 2:
        raise TypeError(
            "`occupancies` must be two tensors, of blank and of label, "
            f"but is {type(occupancies).__name__}."
        )
    for value in occupancies:
        checks.check_tensor("occupancies", value)
        checks.check_has_values("occupancies", value)
        if value.dtype not in (torch.float32, torch.float64):
            raise TypeError(
                "`occupancies` must be float32 or float64, "
                f"but is {checks.dtype_name(value.dtype)}."
            )
    blank, label = occupancies
    if blank.dim() != 3 or blank.shape != label.shape or blank.shape[2] < 1:
        raise ValueError(
            "`occupancies` must be (B, T, U + 1) both, but have shapes "
            f"{checks.shape_of(blank)} and {checks.shape_of(label)}."
        )
    if label.device != blank.device:
        raise ValueError(
            f"`occupancies` must be on one device, but are on {blank.device} and {label.device}."
        )
    return blank.detach(), label.detach()


def _check_covers(logit_lengths: Tensor, target_lengths: Tensor, S: int) -> None:
    """Neighbouring windows share a column, so that T of them cover T (S - 1) + 1."""
    sizes = zip(logit_lengths.tolist(), target_lengths.tolist(), strict=True)
    for sample, (frames, labels) in enumerate(sizes):
        if frames * (S - 1) < labels:
            needed = -(-labels // frames) + 1
            raise ValueError(
                f"`symbols_per_frame` must be at least {needed} for the {labels} labels in "
                f"{frames} frames of sample {sample}, but is {S}."
            )
