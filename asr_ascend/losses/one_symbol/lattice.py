"""One symbol per frame as a regular lattice: the substitution t' = t - u.

A label leads from (t, u) to (t + 1, u + 1) here and a blank from (t, u) to (t + 1, u). So a label
keeps t' and a blank raises it by one. That is a regular lattice of T' = T - U + 1 frames and U + 1
columns, whose cell (t', u) is row (t' + u, u). Its last cell (T - U, U) lies at t = T: it has no
row, and the blank that ends the path there is certain.

The delay penalty needs no change: of one path its sum over all labels is the same in t and in t'.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from asr_ascend.losses.layout import packed_cells, row_offsets
from asr_ascend.losses.problem import Problem, on_device
from asr_ascend.losses.row_statistics import two_column_problem


class Skewed(NamedTuple):
    """A batch of lattices after the substitution, and where its cells come from."""

    problem: Problem  # of two columns, blank and label, without windows and band
    sample: Tensor  # (N,) int64, of each row of the logits
    frame: Tensor  # (N,) int64
    column: Tensor  # (N,) int64
    place: Tensor  # (N,) int64: the skewed row of each row; the number of these for none
    ends: Tensor  # (B,) int64: the skewed row of each sample's last cell
    reachable: Tensor  # (B,) bool: U_b <= T_b
    closed: Tensor | None  # (N,) bool: the label is outside of its window
    num_rows: int  # of the skewed lattices

    def log_probs(self, rows: Tensor) -> Tensor:
        """Returns the skewed lattices' log-probabilities (N', 2) from those (N, 2) of the rows."""
        if self.closed is not None:
            blank, label = rows.unbind(1)
            rows = torch.stack([blank, label.masked_fill(self.closed, -math.inf)], dim=1)
        # Cells that no path reaches share one row more, which is thrown away.
        skewed = rows.new_full((self.num_rows + 1, 2), -math.inf)
        skewed[self.place] = rows
        skewed = skewed[:-1]
        skewed[self.ends, 0] = torch.where(self.reachable, 0.0, -math.inf).to(rows.dtype)
        return skewed

    def of_rows(self, skewed: Tensor, costs: Tensor) -> Tensor:
        """Returns shares (N, 2) of the rows, from those of the skewed lattices.

        They are NaN where the cost is NaN.
        """
        shares = pad(skewed, (0, 0, 0, 1))[self.place]
        return shares.masked_fill(costs.isnan()[self.sample, None], math.nan)

    def spoiled(self, costs: Tensor, log_norm: Tensor) -> Tensor:
        """Returns costs (B,), NaN also where a row without a softmax is on no path."""
        count = torch.zeros(len(costs), dtype=torch.float32, device=costs.device)
        count.index_add_(0, self.sample, log_norm.isnan().to(torch.float32))
        return costs.masked_fill(count > 0, math.nan)

    def frames(self, skewed: Tensor) -> Tensor:
        """Returns the frames t (B, U) of the labels from t', -1 where there is none."""
        u = torch.arange(skewed.shape[1], device=skewed.device)
        return torch.where(skewed >= 0, skewed + u, -1)


def skew(problem: Problem, num_rows: int, device: torch.device) -> Skewed:
    """Makes the substitution for a batch.

    Args:
        problem: its lengths and band on the CPU, in range.
        num_rows: N, of packed logits.
        device: of the logits.
    """
    frames = problem.logit_lengths.to(torch.int64)
    labels = problem.target_lengths.to(torch.int64)
    reachable = labels <= frames
    # Without a path: one cell that can't be left.
    new_labels = labels.where(reachable, 0)
    new_frames = (frames - labels + 1).where(reachable, 1)
    starts = row_offsets(new_frames, new_labels)
    count = int(starts[-1])

    band = None if problem.band is None else on_device(problem.band, device)
    lengths = on_device(frames, device), on_device(labels, device)
    b, t, u = packed_cells(num_rows, *lengths, device, band)
    if len(frames) == 0:
        place = torch.zeros_like(b)
    else:
        T, U = lengths[0][b], lengths[1][b]
        on_path = (t >= u) & (t - u <= T - U) & (U <= T)
        place = on_device(starts, device)[b] + (t - u) * (U + 1) + u
        place = place.where(on_path, count)
    new_problem = two_column_problem(problem)._replace(
        logit_lengths=new_frames, target_lengths=new_labels, emission_windows=None, band=None
    )
    ends = on_device(starts[1:] - 1, device)
    return Skewed(
        new_problem, b, t, u, place, ends, on_device(reachable, device),
        _closed(problem, b, t, u), count,
    )  # fmt: skip


def row_labels(problem: Problem, b: Tensor, u: Tensor) -> Tensor:
    """Returns the label of each row, (N,) int64 in [0, V); blank where the column has none.

    The labels were checked.
    """
    labels = pad(problem.targets.to(torch.int64), (0, 1), value=problem.blank)
    has_label = u < on_device(problem.target_lengths, u.device)[b]
    return labels[b, u].where(has_label, problem.blank)


def _closed(problem: Problem, b: Tensor, t: Tensor, u: Tensor) -> Tensor | None:
    """(N,) bool: the label is outside of its window; None without windows."""
    if problem.emission_windows is None:
        return None
    windows = pad(on_device(problem.emission_windows, t.device), (0, 0, 0, 1))
    first, last = windows[b, u].unbind(-1)
    return (t < first) | (last < t)
