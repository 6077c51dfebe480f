"""Steps of the reference's recursions, and that of one symbol per frame, by its definition."""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from asr_ascend.losses import layout
from asr_ascend.losses.problem import Problem


def log_add(a: Tensor, b: Tensor) -> Tensor:
    """Computes log(exp(a) + exp(b)).

    Its derivatives at a = b = -inf are 0 where torch's are NaN.
    """
    both = torch.stack((a, b))
    impossible = (both == -math.inf).all(0)
    return torch.logsumexp(both.masked_fill(impossible, 0.0), 0).masked_fill(impossible, -math.inf)


def start(log_prob: Tensor, problem: Problem) -> Tensor:
    """Returns scores (B, U1) at the beginning: a path is in column 0 for certain."""
    _, U1 = layout.padded_size(problem.logit_lengths, problem.target_lengths)
    scores = log_prob.new_full((len(problem.targets), U1), -math.inf)
    scores[:, 0] = 0.0
    return scores


def next_column(scores: Tensor) -> Tensor:
    """Returns what leads from each column to the next."""
    return pad(scores[:, :-1], (1, 0), value=-math.inf)


def one_symbol_scores(
    blank_log_prob: Tensor, label_log_prob: Tensor, problem: Problem
) -> list[Tensor]:
    """Computes alpha(t, u), (B, U1) for each t in [0, T].

    Blank and label both lead to frame t + 1.

    Args:
        blank_log_prob, label_log_prob: (N,) of the rows.
        problem: on their device.
    """
    T, U1 = layout.padded_size(problem.logit_lengths, problem.target_lengths)
    lengths = problem.logit_lengths, problem.target_lengths
    b, t, u = layout.packed_cells(
        len(blank_log_prob), *lengths, blank_log_prob.device, problem.band
    )
    nowhere = blank_log_prob.new_full((T, len(problem.targets), U1), -math.inf)
    emit_blank = nowhere.index_put((t, b, u), blank_log_prob)
    emit_label = nowhere.index_put((t, b, u), label_log_prob)
    alphas = [start(blank_log_prob, problem)]
    for blank_step, label_step in zip(emit_blank.unbind(), emit_label.unbind(), strict=True):
        alpha = alphas[-1]
        alphas.append(log_add(alpha + blank_step, next_column(alpha + label_step)))
    return alphas


def never_on_a_path(t: Tensor, u: Tensor, frames: Tensor, labels: Tensor) -> Tensor:
    """Returns True at cells that no path of one symbol per frame can reach, or leave to the end."""
    return (u > t) | (labels - u > frames - t)
