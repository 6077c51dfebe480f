"""Joiner: encoder frame and predictor output to logits, only for cells of the lattice."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn


def packed_cells(
    frame_lengths: Tensor,
    context_lengths: Tensor,
    device: torch.device,
    band: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns sample, frame and column of every packed row.

    The rows go by sample, then frame, then column, as `rnnt_loss` expects.

    Args:
        frame_lengths: (B,) int64, T_b. Nothing waits for the device if both are on the CPU.
        context_lengths: (B,) int64, U1_b = U_b + 1.
        device: of the result.
        band: (B, T, 2) int64, first and last column of each frame; None: every column.

    Returns:
        Three (N,) int64 tensors, N = sum of T_b * U1_b or the cells of the band: b, t and u of
        each row.
    """
    if band is not None:
        return _band_cells(frame_lengths, device, band)
    rows = frame_lengths * context_lengths
    num_rows = int(rows.sum()) if rows.device.type == "cpu" else None
    rows, context_lengths = rows.to(device), context_lengths.to(device)
    sample = torch.repeat_interleave(rows, output_size=num_rows)
    row_offset = rows.cumsum(0) - rows
    row = torch.arange(sample.shape[0], device=rows.device) - row_offset[sample]
    columns = context_lengths[sample]
    frame = torch.div(row, columns, rounding_mode="floor")
    return sample, frame, row - frame * columns


def _band_cells(
    frame_lengths: Tensor, device: torch.device, band: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    T = band.shape[1]
    is_frame = torch.arange(T, device=band.device) < frame_lengths.to(band.device)[:, None]
    columns = (band[..., 1] - band[..., 0] + 1).where(is_frame, 0).flatten()  # (B * T,)
    num_rows = int(columns.sum()) if columns.device.type == "cpu" else None
    columns, band = columns.to(device), band.to(device)
    frame = torch.repeat_interleave(columns, output_size=num_rows)
    first_row = columns.cumsum(0) - columns
    row = torch.arange(frame.shape[0], device=device)
    sample = torch.div(frame, T, rounding_mode="floor")
    return sample, frame - sample * T, band[..., 0].flatten()[frame] + row - first_row[frame]


class Joiner(nn.Module):
    """tanh(encoder projection + predictor projection), then the output layer.

    Args:
        encoder_dim, predictor_dim: widths of the inputs.
        joiner_dim: H, width of both projections.
        vocab_size: V, blank included.
    """

    def __init__(
        self, encoder_dim: int, predictor_dim: int, joiner_dim: int, vocab_size: int
    ) -> None:
        super().__init__()
        self.encoder_projection = nn.Linear(encoder_dim, joiner_dim)
        self.predictor_projection = nn.Linear(predictor_dim, joiner_dim)
        self.output = nn.Linear(joiner_dim, vocab_size)

    def forward(self, encoder_projected: Tensor, predictor_projected: Tensor) -> Tensor:
        """Computes logits (..., V) of projected inputs, (..., H) each, broadcast together."""
        return self.output(torch.tanh(encoder_projected + predictor_projected))

    def packed(
        self,
        encoder_projected: Tensor,
        predictor_projected: Tensor,
        frame_lengths: Tensor,
        context_lengths: Tensor,
        band: Tensor | None = None,
    ) -> Tensor:
        """Computes the logits of the lattices' real cells, without a (B, T, U1, ...) tensor.

        All rows come at once; `packed_blocks` gives them a few at a time.

        Args:
            encoder_projected: (B, T, H).
            predictor_projected: (B, U1, H).
            frame_lengths: (B,) int64, at most T.
            context_lengths: (B,) int64, at most U1.
            band: (B, T, 2) int64, first and last column of each frame; None: every column.

        Returns:
            (N, V), N = sum of frame_lengths * context_lengths, or the cells of the band.
        """
        device = encoder_projected.device
        cells = packed_cells(frame_lengths, context_lengths, device, band)
        return self._rows(encoder_projected, predictor_projected, cells)

    def packed_blocks(
        self,
        encoder_projected: Tensor,
        predictor_projected: Tensor,
        frame_lengths: Tensor,
        context_lengths: Tensor,
        block_rows: int,
        band: Tensor | None = None,
    ) -> Iterator[Tensor]:
        """Yields the rows of `packed`, at most ``block_rows`` (at least 1) at a time.

        Arguments are those of `packed`.
        """
        device = encoder_projected.device
        cells = packed_cells(frame_lengths, context_lengths, device, band)
        for block in zip(*(part.split(block_rows) for part in cells), strict=True):
            yield self._rows(encoder_projected, predictor_projected, block)

    def _rows(
        self,
        encoder_projected: Tensor,
        predictor_projected: Tensor,
        cells: tuple[Tensor, ...],
    ) -> Tensor:
        sample, frame, column = cells
        frame_row = sample * encoder_projected.shape[1] + frame
        context_row = sample * predictor_projected.shape[1] + column
        hidden = encoder_projected.flatten(0, 1).index_select(0, frame_row)
        # In place: the sum and its tanh need no copy of the gathered rows for their gradients.
        hidden += predictor_projected.flatten(0, 1).index_select(0, context_row)
        return self.output(hidden.tanh_())
