"""What both ways of the joiner's loss work on, and the rows that a gradient may leave out."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from asr_ascend.losses.backends import LossBackend
from asr_ascend.losses.layout import band_columns, packed_cells
from asr_ascend.losses.problem import Problem, cost_dtype, on_device


class Sample(NamedTuple):
    """One sample of a batch: its lattice, and what its cost is multiplied by (0: left out)."""

    b: int
    frames: int
    columns: int
    weight: float
    rows: int  # cells of the lattice, or of its band
    # (rows,) frame and (rows,) column of a band's cells, on the joiner's device; None: all cells.
    band_cells: tuple[Tensor, Tensor] | None = None

    @property
    def all_frames(self) -> slice:
        """Of the sample's lattice."""
        return slice(0, self.frames)

    def of_rows(self, of_columns: Tensor) -> Tensor:
        """Returns the values (rows,) of each row, from those of the columns (U1,)."""
        if self.band_cells is None:
            return of_columns.repeat(self.frames)
        return of_columns[self.band_cells[1]]

    def cells(self, row: Tensor) -> tuple[Tensor, Tensor]:
        """Returns frame and column of some of its rows."""
        if self.band_cells is not None:
            t, u = self.band_cells
            return t[row], u[row]
        return torch.div(row, self.columns, rounding_mode="floor"), row % self.columns


def samples_of(problem: Problem, weights: list[float]) -> tuple[Sample, ...]:
    """Returns every sample in order, also those of weight 0.

    Args:
        problem: lengths and band int64 on the CPU, targets on the joiner's device.
        weights: of the samples' costs.
    """
    lengths = problem.logit_lengths, problem.target_lengths
    sizes = zip(*(length.tolist() for length in lengths), weights, strict=True)
    if problem.band is None:
        return tuple(
            Sample(b, frames, labels + 1, weight, frames * (labels + 1))
            for b, (frames, labels, weight) in enumerate(sizes)
        )
    num_rows = band_columns(problem.band, problem.logit_lengths).sum(1).tolist()
    device = problem.targets.device
    _, t, u = packed_cells(sum(num_rows), *lengths, torch.device("cpu"), problem.band)
    per_sample = zip(
        num_rows, on_device(t, device).split(num_rows), on_device(u, device).split(num_rows),
        sizes, strict=True,
    )  # fmt: skip
    return tuple(
        Sample(b, frames, labels + 1, weight, rows, (t, u))
        for b, (rows, t, u, (frames, labels, weight)) in enumerate(per_sample)
    )


class Task(NamedTuple):
    """A checked batch but for what its rows are made of."""

    problem: Problem  # lengths and band int64 on the CPU, targets int64 on the joiner's device
    samples: tuple[Sample, ...]
    max_dropped_mass: float
    backend: LossBackend
    validate: bool
    # (B, columns of targets) labels out of place, found on the device; None: there is none.
    wrong_labels: Tensor | None
    one_symbol: bool = False  # a label takes a frame

    def largest_sample(self) -> int:
        """Returns the most rows of a sample that isn't left out."""
        return max((sample.rows for sample in self.samples if sample.weight != 0), default=0)

    def groups(self, max_rows: int) -> Iterator[list[Sample]]:
        """Yields neighbours of the same weight with at most ``max_rows`` together.

        A larger sample is a group of its own. Small samples one by one would leave threads idle.
        """
        group: list[Sample] = []
        for sample in self.samples:
            rows = sample.rows + sum(other.rows for other in group)
            if group and (sample.weight != group[0].weight or rows > max_rows):
                yield group
                group = []
            group.append(sample)
        if group:
            yield group

    def costs(self, logits: Tensor, problem: Problem) -> Tensor:
        """Computes costs of some samples' logits, as ``rnnt_loss`` gives them with "none"."""
        costs = self.backend.costs(logits, problem, validate=self.validate, values_checked=True)
        return costs.to(cost_dtype(logits.dtype))

    def costs_and_gradient(self, logits: Tensor, problem: Problem) -> tuple[Tensor, Tensor]:
        """Computes costs and gradient, as ``rnnt_loss_and_grad`` gives them.

        The gradient overwrites the logits.
        """
        costs, gradient = self.backend.costs_and_gradient(
            logits, problem, reuse_logits=True, validate=self.validate, values_checked=True
        )
        return costs.to(cost_dtype(logits.dtype)), gradient

    def labels_of(self, sample: Sample) -> Tensor:
        """Returns the label that leads out of each column, (U1,) int64; blank for the last column.

        So each is in [0, V), and a gather by it reads no further.
        """
        labels = self.problem.targets.new_full((sample.columns,), self.problem.blank)
        labels[:-1] = self.problem.targets[sample.b, : sample.columns - 1]
        wrong = self.wrong_labels_of(sample)
        return labels if wrong is None else torch.where(wrong, self.problem.blank, labels)

    def wrong_labels_of(self, sample: Sample) -> Tensor | None:
        """Returns the columns that a wrong label leads out of, (U1,) bool; None: there is none."""
        if self.wrong_labels is None:
            return None
        wrong = self.wrong_labels.new_zeros(sample.columns)
        wrong[:-1] = self.wrong_labels[sample.b, : sample.columns - 1]
        return wrong


def kept_rows(masses: Tensor, max_dropped_mass: float) -> Tensor:
    """Returns the indices of the rows that are left when the smallest masses are dropped.

    Args:
        masses: (rows,) half the L1 norm of each row's gradient, which is at most the posterior
            probability that the alignment passes through its cell. NaN is kept.
        max_dropped_mass: the most that the dropped rows may hold together.

    Returns:
        (rows left,) int64, rising, on the device of ``masses``.
    """
    ordered, order = masses.cpu().to(torch.float64).sort()
    num_dropped = int((ordered.cumsum(0) <= max_dropped_mass).sum())
    return order[num_dropped:].sort().values.to(masses.device)
