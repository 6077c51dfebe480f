"""Where a sample's lattice lies among the rows of the logits, packed or padded.

A batch holds one lattice of ``T_b * (U_b + 1)`` cells per sample, and each cell (t, u) is a row of
V logits. Packed logits (N, V) hold the rows of all samples one after the other, t-major; padded
logits (B, T, U1, V) hold them with gaps.
"""

from collections.abc import Iterator

import torch
from torch import Tensor


def band_columns(band: Tensor, logit_lengths: Tensor) -> Tensor:
    """Returns how many columns of each frame are in a band, (B, T) int64.

    It is 0 past the sample's frames.
    """
    t = torch.arange(band.shape[1], device=band.device)
    columns = band[..., 1].to(torch.int64) - band[..., 0] + 1
    return columns.where(t < logit_lengths.to(band.device)[:, None], 0)


def row_offsets(
    logit_lengths: Tensor, target_lengths: Tensor, band: Tensor | None = None
) -> Tensor:
    """Returns the first packed row of each sample, and the number of rows N at the end.

    Args:
        logit_lengths: (B,) int32/int64, T_b.
        target_lengths: (B,) int32/int64, U_b.
        band: (B, T, 2), whose cells are the rows; None: all cells.

    Returns:
        (B + 1,) int64, on the device of the lengths, or of the band.
    """
    if band is not None:
        rows = band_columns(band, logit_lengths).sum(1)
        return torch.nn.functional.pad(rows.cumsum(0), (1, 0))
    # In int64 from the first product on: N can pass 2**31 where no length does.
    rows = logit_lengths.to(torch.int64) * (target_lengths.to(torch.int64) + 1)
    return torch.nn.functional.pad(rows.cumsum(0), (1, 0))


def lattice_mask(
    logit_lengths: Tensor, target_lengths: Tensor, num_frames: int, num_columns: int
) -> Tensor:
    """Returns True at the cells of a lattice; ``padded[mask]`` is the packed layout.

    Args:
        logit_lengths: (B,) int32/int64, T_b.
        target_lengths: (B,) int32/int64, U_b.
        num_frames: T of the padded tensor.
        num_columns: U1 of the padded tensor.

    Returns:
        (B, T, U1) bool, on the device of the lengths.
    """
    t = torch.arange(num_frames, device=logit_lengths.device)
    u = torch.arange(num_columns, device=target_lengths.device)
    in_frames = t < logit_lengths[:, None]  # (B, T)
    in_columns = u <= target_lengths[:, None]  # (B, U1)
    return in_frames[:, :, None] & in_columns[:, None, :]


def padded_size(logit_lengths: Tensor, target_lengths: Tensor) -> tuple[int, int]:
    """Returns (T, U1) of the smallest padded tensor that holds every lattice."""
    if logit_lengths.numel() == 0:
        return 0, 1
    return int(logit_lengths.max()), int(target_lengths.max()) + 1


def sample_lattices(
    logits: Tensor, logit_lengths: Tensor, target_lengths: Tensor
) -> Iterator[Tensor]:
    """Yields a view (T_b, U_b + 1, V) of each sample's rows in packed or padded logits."""
    starts = row_offsets(logit_lengths, target_lengths).tolist()
    sizes = zip(logit_lengths.tolist(), target_lengths.tolist(), strict=True)
    for b, (num_frames, num_labels) in enumerate(sizes):
        if logits.dim() == 2:
            rows = logits[starts[b] : starts[b + 1]]
            yield rows.unflatten(0, (num_frames, num_labels + 1))
        else:
            yield logits[b, :num_frames, : num_labels + 1]


def packed_cells(
    num_rows: int,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    device: torch.device,
    band: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns sample, frame and column of each packed row; no value goes to the host.

    Args:
        num_rows: N.
        logit_lengths: (B,) int32/int64, T_b.
        target_lengths: (B,) int32/int64, U_b.
        device: of the result.
        band: (B, T, 2), whose cells are the rows; None: all cells.

    Returns:
        Three (N,) int64. From lengths that don't add up to N, the sample is one of the batch all
        the same, if there is any, and nothing else is promised.
    """
    row = torch.arange(num_rows, device=device)
    if len(logit_lengths) == 0:
        nothing = torch.zeros_like(row)
        return nothing, nothing, nothing
    if band is not None:
        return _band_cells(row, logit_lengths, band.to(device))
    starts = row_offsets(logit_lengths, target_lengths).to(device)
    sample = (torch.searchsorted(starts, row, right=True) - 1).clamp(0, len(starts) - 2)
    columns = target_lengths.to(device, torch.int64)[sample].clamp(min=0) + 1
    within = row - starts[sample]
    return sample, torch.div(within, columns, rounding_mode="floor"), within % columns


def _band_cells(row: Tensor, logit_lengths: Tensor, band: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same for the rows of a band."""
    columns = band_columns(band, logit_lengths).flatten()  # (B * T,)
    starts = torch.nn.functional.pad(columns.cumsum(0), (1, 0))
    frame = (torch.searchsorted(starts, row, right=True) - 1).clamp(0, len(columns) - 1)
    first = band[..., 0].flatten().to(torch.int64)[frame]
    T = band.shape[1]
    sample = torch.div(frame, T, rounding_mode="floor")
    return sample, frame - sample * T, first + row - starts[frame]


def row_blocks(count: int, step: int) -> Iterator[slice]:
    """Yields slices of [0, count), ``step`` rows each and what is left."""
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))
