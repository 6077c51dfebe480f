"""Log-probabilities of blank and of the next label in every cell, from the two tables of a joiner.

The joiner adds: the logits of a cell are ``am[t] + lm[u]``. Smoothing mixes three distributions:

    ln P  =  (1 - s_lm - s_am) ln P_joint  +  s_lm ln P_lm  +  s_am ln P_am
    P_joint = softmax(am[t] + lm[u]),   P_lm = softmax(lm[u]),   P_am = softmax(am[t] + ln unigram)

where unigram is the mean of P_lm over all columns of the batch.

Source: Kuang et al. 2022, "Pruned RNN-T for fast, memory-efficient ASR training", sections 3.1 and
3.3 (https://arxiv.org/abs/2206.13236); the unigram as in fast_rnnt 1.3, `rnnt_loss_smoothed`.
"""

import math

import torch
from torch import Tensor

from asr_ascend.losses.problem import Problem, lattice_dtype, on_device
from asr_ascend.losses.simple.normalizer import log_normalizer


def cell_log_probs(
    am: Tensor, lm: Tensor, problem: Problem, lm_only_scale: float, am_only_scale: float
) -> Tensor:
    """Computes log-probabilities (B, T, U1, 2) of blank and label, differentiable once.

    They are float64 where the device has it. Padding and the last column's label mean nothing.

    Args:
        am: (B, T, V).
        lm: (B, U1, V), U1 at least every ``target_lengths + 1``.
        problem: of the batch; a label that is out of place is read as another one.
        lm_only_scale, am_only_scale: shares of the last two distributions.
    """
    am, lm = _float(am, problem.logit_lengths), _float(lm, problem.target_lengths + 1)
    pick = _Picker(problem, lm.shape[1] - 1, lm.shape[2])
    joint_scale = 1.0 - lm_only_scale - am_only_scale
    # A scale of 0 times -inf would be NaN.
    blank = label = am.new_zeros((), dtype=pick.dtype)
    if joint_scale > 0:
        norm = log_normalizer(am, lm, pick.dtype)
        of_am, of_lm = pick.of_frames(am, _maxima(am)), pick.of_columns(lm, _maxima(lm))
        blank = blank + joint_scale * (of_am[0] + of_lm[0] - norm)
        label = label + joint_scale * (of_am[1] + of_lm[1] - norm[..., :-1])
    if lm_only_scale > 0:
        of_lm = pick.of_columns(lm.log_softmax(-1))
        blank, label = blank + lm_only_scale * of_lm[0], label + lm_only_scale * of_lm[1]
    if am_only_scale > 0:
        unigram = _log_unigram(lm, problem).expand(len(am), 1, -1)
        if unigram.requires_grad:
            unigram.register_hook(_without_unsound_samples)
        of_am = pick.of_frames((am + unigram).log_softmax(-1))
        blank, label = blank + am_only_scale * of_am[0], label + am_only_scale * of_am[1]
    B, T, U1 = am.shape[0], am.shape[1], lm.shape[1]
    label = torch.nn.functional.pad(label.expand(B, T, U1 - 1), (0, 1), value=-math.inf)
    return torch.stack([blank.expand(B, T, U1), label], dim=-1)


class _Picker:
    """Picks blank and the next label from scores, in float64 where the device has it."""

    def __init__(self, problem: Problem, num_labels: int, vocab_size: int) -> None:
        self.blank = problem.blank
        device = problem.targets.device
        self.dtype = lattice_dtype(device)
        column = torch.arange(num_labels, device=device)
        is_label = column < on_device(problem.target_lengths, device)[:, None]
        labels = problem.targets[:, :num_labels].to(torch.int64)
        labels = torch.nn.functional.pad(labels, (0, num_labels - labels.shape[1]))
        self.labels = labels.where(is_label, 0).clamp(0, vocab_size - 1)  # (B, U)

    def of_frames(self, scores: Tensor, minus: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Blank (B, T, 1) and every label (B, T, U) of scores (B, T, V), less (B, T, 1)."""
        labels = scores.gather(2, self.labels[:, None].expand(-1, scores.shape[1], -1))
        blanks = scores[..., self.blank, None]
        return self._less(blanks, minus), self._less(labels, minus)

    def of_columns(self, scores: Tensor, minus: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Blank (B, 1, U1) and the next label (B, 1, U) of scores (B, U1, V), less (B, U1, 1)."""
        blanks = self._less(scores[..., self.blank, None], minus)
        labels = scores[:, :-1].gather(2, self.labels[..., None])
        return blanks.mT, self._less(labels, None if minus is None else minus[:, :-1]).mT

    def _less(self, scores: Tensor, minus: Tensor | None) -> Tensor:
        scores = scores.to(self.dtype)
        return scores if minus is None else scores - minus.to(self.dtype)


def _float(scores: Tensor, lengths: Tensor) -> Tensor:
    """Float32 or better, and padding 0, whatever it held."""
    padding = _is_padding(scores, lengths)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return scores.masked_fill(padding[..., None], 0.0)


def _is_padding(scores: Tensor, lengths: Tensor) -> Tensor:
    row = torch.arange(scores.shape[1], device=scores.device)
    return row >= on_device(lengths, scores.device)[:, None]


def _maxima(scores: Tensor) -> Tensor:
    """Of each row. They cancel in every log-probability, and so need no gradient."""
    return scores.detach().amax(-1, keepdim=True)


def _log_unigram(lm: Tensor, problem: Problem) -> Tensor:
    """(V,): the mean distribution of all columns of the batch, without those that have none."""
    columns = lm.softmax(-1)
    sound = ~_is_padding(lm, problem.target_lengths + 1) & columns.detach().sum(-1).isfinite()
    unigram = columns[sound].mean(0)
    # The logarithm of 0 would have no derivative.
    return (unigram + torch.finfo(unigram.dtype).tiny).log()


def _without_unsound_samples(gradient: Tensor | None) -> Tensor | None:
    """The gradient (B, 1, V) of each sample, 0 where it isn't finite: the samples are summed."""
    if gradient is None:
        return None
    sound = gradient.isfinite().all(-1, keepdim=True)
    return gradient.where(sound, 0.0)
