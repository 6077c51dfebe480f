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
from asr_ascend.losses.problem import Problem

_NEGLIGIBLE = math.exp(-76)  # as in the CPU kernel's gradient


class Rows(NamedTuple):
    """What the gradient needs of all rows of the batch."""

    shares: Tensor  # (N, 2) derivatives of the cost by the log-probabilities of blank and label
    log_norm: Tensor  # (N,)
    kept: list[Tensor | None]  # the rows of each sample that are in the gradient; None: all


def costs_chunk_by_chunk(joiner: JoinerTensors, task: Task, max_bytes: int) -> Tensor:
    """Costs (B,), unweighted, for a pass that needs no gradient."""
    log_probs, _ = _row_statistics(joiner, task, max_bytes)
    return _not_negative(task.costs(log_probs, _two_column_loss(task)), task)


def costs_and_rows(joiner: JoinerTensors, task: Task, max_bytes: int) -> tuple[Tensor, Rows]:
    """Costs (B,), unweighted, and what :func:`add_gradient` needs beside them."""
    log_probs, log_norm = _row_statistics(joiner, task, max_bytes)
    softmax = log_probs.exp() if task.max_dropped_mass > 0 else None
    costs, shares = task.costs_and_gradient(log_probs, _two_column_loss(task))
    kept: list[Tensor | None] = [None] * len(task.samples)
    if softmax is not None:
        masses = _masses(shares, softmax, task)
        sizes = [sample.rows for sample in task.samples]
        kept = [kept_rows(mass, task.max_dropped_mass) for mass in masses.split(sizes)]
    return _not_negative(costs, task), Rows(shares, log_norm, kept)


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
                _to_gradient(logits, shares[piece.rows], log_norm[piece.rows], label, task)
                sums.add_products(hidden, logits, scale)
                if piece.frames is not None:
                    sums.add_frames(hidden, sample.b, piece.frames, scale)
                else:
                    sums.add_cells(hidden, sample.b, piece.t, piece.u, scale)
            continue
        for row in kept.split(chunks.max_rows):
            t, u = sample.cells(row)
            hidden, logits = chunks.fill_cells(sample, t, u)
            _to_gradient(logits, shares[row], log_norm[row], labels[u], task)
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
            logits = _float(chunks.fill(sample, piece)[1])
            label = piece.of_rows(labels)[:, None]
            # Differences from the maximum, and only then the sum's logarithm: what is added to a
            # path's score is small where its rows are sure, and keeps its digits.
            maximum = logits.amax(1, keepdim=True)
            log_probs[rows, 0] = (logits[:, task.problem.blank, None] - maximum)[:, 0].to(dtype)
            log_probs[rows, 1] = (logits.gather(1, label) - maximum)[:, 0].to(dtype)
            log_sum = logits.sub_(maximum).exp_().sum(1, keepdim=True).to(dtype).log_()
            log_probs[rows] -= log_sum
            log_norm[rows] = (maximum + log_sum)[:, 0]
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


def _to_gradient(
    logits: Tensor, shares: Tensor, log_norm: Tensor, label: Tensor, task: Task
) -> None:
    """Replaces logits (rows, V) by the gradient of their sample's cost, clamped."""
    gradient = _float(logits)
    shares = shares.to(gradient.dtype)
    gradient.sub_(log_norm[:, None].to(gradient.dtype)).exp_()
    gradient.mul_(-shares.sum(1, keepdim=True))
    gradient[:, task.problem.blank] += shares[:, 0]
    gradient.scatter_add_(1, label[:, None], shares[:, 1:])
    if gradient.dtype == torch.float32 and gradient.device.type == "cpu":
        # Products of what is next to nothing are denormal numbers, which take ten times as long.
        torch.hardshrink(gradient, _NEGLIGIBLE, out=gradient)
    if task.problem.clamp > 0:
        gradient.clamp_(-task.problem.clamp, task.problem.clamp)
    if gradient is not logits:
        logits.copy_(gradient)


def _float(logits: Tensor) -> Tensor:
    """The same tensor in float32 or better: itself, or a copy of half precision."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _not_negative(costs: Tensor, task: Task) -> Tensor:
    """Costs of log-probabilities may have any sign; rounded softmaxes may sum to above 1."""
    if task.problem.delay_penalty != 0.0:
        return costs
    # No clamp: an NPU's vector unit may make 0 of a NaN.
    return torch.where(costs < 0.0, 0.0, costs)


def _two_column_loss(task: Task) -> Problem:
    """The same lattices over log-probabilities of blank (column 0) and label (column 1)."""
    return task.problem._replace(
        targets=torch.ones_like(task.problem.targets),
        blank=0,
        clamp=-1.0,
        fused_log_softmax=False,
        blank_in_targets=False,
    )
