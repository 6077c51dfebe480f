"""What both ways of the joiner's loss work on, and the rows that a gradient may leave out."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from asr_ascend.losses.backends import LossBackend
from asr_ascend.losses.layout import packed_cells
from asr_ascend.losses.problem import Problem, cost_dtype


class Sample(NamedTuple):
    """One sample of a batch: its lattice, and what its cost is multiplied by (0: left out)."""

    b: int
    frames: int
    columns: int
    weight: float
    band: Tensor | None = None  # (frames, 2) int64 on the CPU; None: every column

    @property
    def rows(self) -> int:
        """Cells of the lattice, or of its band."""
        if self.band is None:
            return self.frames * self.columns
        return int((self.band[:, 1] - self.band[:, 0] + 1).sum())

    @property
    def all_frames(self) -> slice:
        """Of the sample's lattice."""
        return slice(0, self.frames)

    def of_rows(self, of_columns: Tensor) -> Tensor:
        """(rows,): what each row has, from what the columns (U1,) have."""
        if self.band is None:
            return of_columns.repeat(self.frames)
        return of_columns[self.cells(torch.arange(self.rows, device=of_columns.device))[1]]

    def cells(self, row: Tensor) -> tuple[Tensor, Tensor]:
        """Frame and column of each of its rows."""
        if self.band is not None:
            lengths = torch.tensor([self.frames]), torch.tensor([self.columns - 1])
            cells = packed_cells(self.rows, *lengths, row.device, self.band[None])
            return cells[1][row], cells[2][row]
        return torch.div(row, self.columns, rounding_mode="floor"), row % self.columns


class Task(NamedTuple):
    """A checked batch but for what its rows are made of."""

    problem: Problem  # lengths and band int64 on the CPU, targets int64 on the joiner's device
    weights: list[float]
    max_dropped_mass: float
    backend: LossBackend
    validate: bool
    # (B, columns of targets) labels out of place, found on the device; None: there is none.
    wrong_labels: Tensor | None

    def samples(self) -> Iterator[Sample]:
        """Every sample in order, those of weight 0 too."""
        lengths = self.problem.logit_lengths.tolist(), self.problem.target_lengths.tolist()
        for b, (frames, labels) in enumerate(zip(*lengths, strict=True)):
            band = None if self.problem.band is None else self.problem.band[b, :frames]
            yield Sample(b, frames, labels + 1, self.weights[b], band)

    def largest_sample(self) -> int:
        """Most rows of a sample that isn't left out."""
        return max((sample.rows for sample in self.samples() if sample.weight != 0), default=0)

    def groups(self, max_rows: int) -> Iterator[list[Sample]]:
        """Neighbours of the same weight with at most ``max_rows`` together, or one larger sample.

        Small samples alone would leave threads idle.
        """
        group: list[Sample] = []
        for sample in self.samples():
            rows = sample.rows + sum(other.rows for other in group)
            if group and (sample.weight != group[0].weight or rows > max_rows):
                yield group
                group = []
            group.append(sample)
        if group:
            yield group

    def costs(self, logits: Tensor, problem: Problem) -> Tensor:
        """Costs of some samples' logits, as ``rnnt_loss`` gives them with "none"."""
        costs = self.backend.costs(logits, problem, validate=self.validate, values_checked=True)
        return costs.to(cost_dtype(logits.dtype))

    def costs_and_gradient(self, logits: Tensor, problem: Problem) -> tuple[Tensor, Tensor]:
        """As ``rnnt_loss_and_grad`` gives them; the gradient overwrites the logits."""
        costs, gradient = self.backend.costs_and_gradient(
            logits, problem, reuse_logits=True, validate=self.validate, values_checked=True
        )
        return costs.to(cost_dtype(logits.dtype)), gradient

    def labels_of(self, sample: Sample) -> Tensor:
        """(U1,) int64: the label that leads out of each column; blank for the last, which has none.

        So each is in [0, V), and a gather by it reads no further.
        """
        labels = self.problem.targets.new_full((sample.columns,), self.problem.blank)
        labels[:-1] = self.problem.targets[sample.b, : sample.columns - 1]
        wrong = self.wrong_labels_of(sample)
        return labels if wrong is None else torch.where(wrong, self.problem.blank, labels)

    def wrong_labels_of(self, sample: Sample) -> Tensor | None:
        """(U1,) bool: the columns that a label out of place leads out of; None: there is none."""
        if self.wrong_labels is None:
            return None
        wrong = self.wrong_labels.new_zeros(sample.columns)
        wrong[:-1] = self.wrong_labels[sample.b, : sample.columns - 1]
        return wrong


def kept_rows(masses: Tensor, max_dropped_mass: float) -> Tensor:
    """Indices of the rows that are left when those of the smallest masses are dropped.

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
