"""Chunk by chunk: whole frames at a time; backward makes their logits a second time.

Of a row the lattice needs two log-probabilities alone. They make a loss of two columns, which gives
each row's share of blank and of label, and these with the softmax make the gradient of its logits.
So a few numbers per row are kept, and one chunk of logits is alive.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from asr_ascend.losses.joiner.rows import GradientSums, JoinerTensors, block_rows
from asr_ascend.losses.joiner.task import Sample, Task, kept_rows
from asr_ascend.losses.one_symbol.lattice import skew
from asr_ascend.losses.row_statistics import (
    as_float,
    not_negative,
    statistics,
    to_gradient,
    two_column_problem,
)


class Rows(NamedTuple):
    """What the gradient needs of all rows of the batch."""

    shares: Tensor  # (N, 2) derivatives of the cost by the log-probabilities of blank and label
    log_norm: Tensor  # (N,)
    kept: list[Tensor | None]  # the rows of each sample that are in the gradient; None: all


def costs_chunk_by_chunk(joiner: JoinerTensors, task: Task, max_bytes: int) -> Tensor:
    """Computes costs (B,), unweighted, for a pass that needs no gradient."""
    log_probs, log_norm = _row_statistics(joiner, task, max_bytes)
    if task.one_symbol:
        skewed = skew(task.problem, len(log_norm), log_norm.device)
        costs = task.costs(skewed.log_probs(log_probs), skewed.problem)
        costs = skewed.spoiled(costs, log_norm)
    else:
        costs = task.costs(log_probs, two_column_problem(task.problem))
    return not_negative(costs, task.problem)


def costs_and_rows(joiner: JoinerTensors, task: Task, max_bytes: int) -> tuple[Tensor, Rows]:
    """Computes costs (B,), unweighted, and what :func:`add_gradient` also needs."""
    log_probs, log_norm = _row_statistics(joiner, task, max_bytes)
    softmax = log_probs.exp() if task.max_dropped_mass > 0 else None
    if task.one_symbol:
        skewed = skew(task.problem, len(log_norm), log_norm.device)
        costs, shares = task.costs_and_gradient(skewed.log_probs(log_probs), skewed.problem)
        costs = skewed.spoiled(costs, log_norm)
        shares = skewed.of_rows(shares, costs)
    else:
        costs, shares = task.costs_and_gradient(log_probs, two_column_problem(task.problem))
    kept: list[Tensor | None] = [None] * len(task.samples)
    if softmax is not None:
        masses = _masses(shares, softmax, task)
        sizes = [sample.rows for sample in task.samples]
        kept = [kept_rows(mass, task.max_dropped_mass) for mass in masses.split(sizes)]
    return not_negative(costs, task.problem), Rows(shares, log_norm, kept)


def add_gradient(
    sums: GradientSums,
    joiner: JoinerTensors,
    task: Task,
    rows: Rows,
    scales: list[float],
    max_bytes: int,
) -> None:
    """Adds the gradient of the sum of ``scales * costs`` to ``sums``."""
    chunks = _Chunks(joiner, task, max_bytes)
    sizes = [sample.rows for sample in task.samples]
    per_sample = zip(
        task.samples, rows.shares.split(sizes), rows.log_norm.split(sizes), rows.kept, strict=True
    )
    for sample, shares, log_norm, kept in per_sample:
        scale = scales[sample.b]
        if scale == 0:
            continue
        labels = task.labels_of(sample)
        if kept is None:
            for piece in chunks.pieces(sample):
                hidden, logits = chunks.fill(sample, piece)
                label = piece.of_rows(labels)
                to_gradient(logits, shares[piece.rows], log_norm[piece.rows], label, task.problem)
                sums.add_products(hidden, logits, scale)
                if piece.frames is not None:
                    sums.add_frames(hidden, sample.b, piece.frames, scale)
                else:
                    sums.add_cells(hidden, sample.b, piece.t, piece.u, scale)
            continue
        for row in kept.split(chunks.max_rows):
            t, u = sample.cells(row)
            hidden, logits = chunks.fill_cells(sample, t, u)
            to_gradient(logits, shares[row], log_norm[row], labels[u], task.problem)
            sums.add_products(hidden, logits, scale)
            sums.add_cells(hidden, sample.b, t, u, scale)


class _Piece(NamedTuple):
    """Some rows of a sample: whole frames, or in a band any cells."""

    rows: slice  # among the sample's
    frames: slice | None
    t: Tensor
    u: Tensor

    def of_rows(self, of_columns: Tensor) -> Tensor:
        """(rows,): what each row has, from what the columns have."""
        if self.frames is not None:
            return of_columns.repeat(self.frames.stop - self.frames.start)
        return of_columns[self.u]


class _Chunks:
    """One chunk's memory, used for all of them."""

    def __init__(self, joiner: JoinerTensors, task: Task, max_bytes: int) -> None:
        self.joiner = joiner
        self._rows_wanted = min(block_rows(joiner.row_bytes()), max_bytes // joiner.row_bytes())
        self.max_rows = max((self._rows(sample) for sample in task.samples), default=0)
        self._hidden, self._logits = joiner.new_rows(self.max_rows)

    def pieces(self, sample: Sample) -> Iterator[_Piece]:
        """All rows of a sample, a chunk at a time."""
        if sample.band_cells is None:
            nothing = torch.empty(0, dtype=torch.int64)
            step = self._rows(sample) // sample.columns
            for start in range(0, sample.frames, step):
                stop = min(start + step, sample.frames)
                rows = slice(start * sample.columns, stop * sample.columns)
                yield _Piece(rows, slice(start, stop), nothing, nothing)
            return
        t, u = sample.band_cells
        for start in range(0, sample.rows, self.max_rows):
            rows = slice(start, min(start + self.max_rows, sample.rows))
            yield _Piece(rows, None, t[rows], u[rows])

    def fill(self, sample: Sample, piece: _Piece) -> tuple[Tensor, Tensor]:
        """Hidden activations and logits of a piece."""
        if piece.frames is None:
            return self.fill_cells(sample, piece.t, piece.u)
        count = piece.rows.stop - piece.rows.start
        hidden, logits = self._hidden[:count], self._logits[:count]
        self.joiner.write_frames(hidden, sample.b, piece.frames, sample.columns)
        self.joiner.activate(hidden)
        self.joiner.write_logits(logits, hidden)
        return hidden, logits

    def fill_cells(self, sample: Sample, t: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden activations and logits of any cells."""
        hidden, logits = self._hidden[: len(t)], self._logits[: len(t)]
        self.joiner.write_cells(hidden, sample.b, t, u)
        self.joiner.activate(hidden)
        self.joiner.write_logits(logits, hidden)
        return hidden, logits

    def _rows(self, sample: Sample) -> int:
        """Of a chunk: whole frames, where there is no band."""
        if sample.band_cells is not None:
            return min(sample.rows, max(1, self._rows_wanted))
        return sample.columns * min(sample.frames, max(1, self._rows_wanted // sample.columns))


def _row_statistics(joiner: JoinerTensors, task: Task, max_bytes: int) -> tuple[Tensor, Tensor]:
    """(N, 2) log-probabilities of blank and label, and (N,) log_norm, of all rows."""
    num_rows = sum(sample.rows for sample in task.samples)
    dtype = joiner.lattice_dtype()
    log_probs = joiner.encoder.new_empty(num_rows, 2, dtype=dtype)
    log_norm = joiner.encoder.new_empty(num_rows, dtype=dtype)
    chunks = _Chunks(joiner, task, max_bytes)
    first = 0
    for sample in task.samples:
        labels, wrong = task.labels_of(sample), task.wrong_labels_of(sample)
        for piece in chunks.pieces(sample):
            rows = slice(first + piece.rows.start, first + piece.rows.stop)
            logits = as_float(chunks.fill(sample, piece)[1])
            label = piece.of_rows(labels)
            found = statistics(logits, task.problem.blank, label, dtype)
            log_probs[rows], log_norm[rows] = found
            if wrong is not None:
                # As the operator does it: NaN in this sample alone.
                here = piece.of_rows(wrong)
                log_probs[rows, 1] = torch.where(here, math.nan, log_probs[rows, 1])
        first += sample.rows
    return log_probs, log_norm


def _masses(shares: Tensor, softmax: Tensor, task: Task) -> Tensor:
    """(N,) half the L1 norm of each row's gradient, from blank's and label's shares and chances.

    A row's components sum to 0, and none but those of blank and label are negative.
    """
    total = shares.sum(1, keepdim=True)
    masses = -(shares - softmax * total).clamp(max=0).sum(1)
    if not task.problem.blank_in_targets:
        return masses
    labels = [sample.of_rows(task.labels_of(sample)) for sample in task.samples]
    one_component = torch.cat(labels) == task.problem.blank
    return torch.where(one_component, -(total - softmax[:, :1] * total)[:, 0].clamp(max=0), masses)
