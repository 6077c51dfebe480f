"""Sample by sample: one sample's logits at a time, whole, in one buffer that all samples use.

The loss overwrites them with their gradient, which goes into the sums at once; what backward does
later is to scale small tensors. Samples that are small together share the buffer.
"""

import torch
from torch import Tensor

from asr_ascend.losses.joiner.rows import GradientSums, JoinerTensors, block_rows, blocks
from asr_ascend.losses.joiner.task import Sample, Task, kept_rows


def costs_sample_by_sample(
    joiner: JoinerTensors, task: Task, max_bytes: int, sums: GradientSums | None
) -> Tensor:
    """Computes costs (B,), unweighted, and adds the gradient of their weighted sum to ``sums``.

    Without ``sums`` there is no gradient. A sample of weight 0 has cost 0 and is not read.
    """
    costs = joiner.encoder.new_zeros(len(task.samples), dtype=joiner.lattice_dtype())
    group_rows = min(block_rows(joiner.row_bytes()), max_bytes // joiner.logits_row_bytes())
    groups = [group for group in task.groups(group_rows) if group[0].weight != 0]
    buffers = joiner.new_rows(max((_num_rows(group) for group in groups), default=0))
    for group in groups:
        hidden, logits = (buffer[: _num_rows(group)] for buffer in buffers)
        for sample, rows in zip(group, _split(hidden, group), strict=True):
            if sample.band_cells is None:
                joiner.write_frames(rows, sample.b, sample.all_frames, sample.columns)
            else:
                joiner.write_cells(rows, sample.b, *sample.band_cells)
        joiner.activate(hidden)
        joiner.write_logits(logits, hidden)
        here = slice(group[0].b, group[-1].b + 1)
        problem = task.problem.of_samples(here)
        if sums is None:
            costs[here] = task.costs(logits, problem)
        else:
            costs[here], _ = task.costs_and_gradient(logits, problem)
            _add_gradient(sums, hidden, logits, task, group)
    return costs


def _add_gradient(
    sums: GradientSums, hidden: Tensor, gradient: Tensor, task: Task, group: list[Sample]
) -> None:
    weight = group[0].weight
    if task.max_dropped_mass == 0:
        sums.add_products(hidden, gradient, weight)
        for sample, rows in zip(group, _split(hidden, group), strict=True):
            if sample.band_cells is None:
                sums.add_frames(rows, sample.b, sample.all_frames, weight)
            else:
                sums.add_cells(rows, sample.b, *sample.band_cells, weight)
        return
    parts = zip(group, _split(hidden, group), _split(gradient, group), strict=True)
    for sample, hidden_rows, gradient_rows in parts:
        kept = kept_rows(_masses(gradient_rows, task, sample), task.max_dropped_mass)
        for row in kept.split(block_rows(sums.joiner.row_bytes())):
            t, u = sample.cells(row)
            given = hidden_rows.index_select(0, row)
            sums.add_products(given, gradient_rows.index_select(0, row), weight)
            sums.add_cells(given, sample.b, t, u, weight)


def _masses(gradient: Tensor, task: Task, sample: Sample) -> Tensor:
    """(rows,) half the L1 norm of each row's gradient."""
    if task.problem.clamp > 0:
        masses = torch.empty(len(gradient), device=gradient.device)
        for rows in blocks(len(gradient), gradient.shape[1] * masses.itemsize):
            masses[rows] = gradient[rows].float().norm(1, dim=1) / 2
        return masses
    # A row's components sum to 0, and none but those of blank and label are negative.
    labels = sample.of_rows(task.labels_of(sample))
    of_blank = gradient[:, task.problem.blank].float()
    of_label = gradient.gather(1, labels[:, None])[:, 0].float() * (labels != task.problem.blank)
    return -(of_blank.clamp(max=0) + of_label.clamp(max=0))


def _num_rows(group: list[Sample]) -> int:
    return sum(sample.rows for sample in group)


def _split(rows: Tensor, group: list[Sample]) -> tuple[Tensor, ...]:
    return rows.split([sample.rows for sample in group])
