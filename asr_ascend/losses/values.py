"""Checks of the values in lengths and targets, and the one sentence that each failure gets.

The reference checks with torch; a native backend checks in its own code and reports where it
stopped. The sentence is made here for both, so they say the same.
"""

import warnings

import torch
from torch import Tensor

from asr_ascend.losses.layout import sample_lattices
from asr_ascend.losses.problem import Problem, on_device

_POSITIVE_LOG_PROBS_MESSAGE = (
    "`fused_log_softmax=False` takes log-probabilities, but some of `logits` are positive: they "
    "look like logits, so pass `logits.log_softmax(-1)` or `fused_log_softmax=True`."
)
# Rounding leaves the log-probability of a near-certain event slightly above 0.
_LOG_PROB_TOLERANCE = 1e-3


def logit_length_error(sample: int, value: int, max_frames: int | None) -> ValueError:
    """For a T_b below 1 or above ``max_frames``, which is None for packed logits."""
    expected = "at least 1" if max_frames is None else f"in [1, {max_frames}]"
    return ValueError(f"`logit_lengths` must be {expected}, but is {value} for sample {sample}.")


def target_length_error(sample: int, value: int, max_labels: int | None) -> ValueError:
    """For a U_b below 0 or above ``max_labels``, which is None where nothing limits it."""
    expected = "at least 0" if max_labels is None else f"in [0, {max_labels}]"
    return ValueError(f"`target_lengths` must be {expected}, but is {value} for sample {sample}.")


def row_count_error(num_rows: int, expected_rows: int) -> ValueError:
    """For packed logits whose number of rows is not N."""
    return ValueError(
        "packed `logits` must have sum(logit_lengths * (target_lengths + 1)) = "
        f"{expected_rows} rows, but has {num_rows}."
    )


def target_range_error(sample: int, position: int, value: int, vocab_size: int) -> ValueError:
    """For a label outside [0, V)."""
    return ValueError(
        f"`targets` must be in [0, {vocab_size - 1}], but is {value} "
        f"at position {position} of sample {sample}."
    )


def target_is_blank_error(sample: int, position: int, blank: int) -> ValueError:
    """For a label equal to blank."""
    return ValueError(
        f"`targets` must not contain `blank`, but is {blank} "
        f"at position {position} of sample {sample}."
    )


def check_lengths(
    logit_lengths: Tensor,
    target_lengths: Tensor,
    *,
    max_frames: int | None = None,
    max_labels: int | None = None,
    num_rows: int | None = None,
) -> None:
    """Raises ValueError unless lengths (B,) fit T, U and N, where these are given."""
    for sample, value in enumerate(logit_lengths.tolist()):
        if value < 1 or (max_frames is not None and value > max_frames):
            raise logit_length_error(sample, value, max_frames)
    for sample, value in enumerate(target_lengths.tolist()):
        if value < 0 or (max_labels is not None and value > max_labels):
            raise target_length_error(sample, value, max_labels)
    if num_rows is not None:
        lengths = zip(logit_lengths.tolist(), target_lengths.tolist(), strict=True)
        expected_rows = sum(t * (u + 1) for t, u in lengths)  # Python's integers don't overflow
        if num_rows != expected_rows:
            raise row_count_error(num_rows, expected_rows)


def check_targets(problem: Problem, vocab_size: int) -> None:
    """Raises ValueError for the first label outside [0, V), or blank where that isn't allowed.

    Padding may be anything.
    """
    wrong = wrong_labels(problem, vocab_size).cpu()
    if not wrong.any():
        return
    targets, blank = problem.targets, problem.blank
    sample, column = (int(index) for index in wrong.nonzero()[0])
    value = int(targets[sample, column])
    if value == blank:
        raise target_is_blank_error(sample, column, blank)
    raise target_range_error(sample, column, value, vocab_size)


def wrong_labels(problem: Problem, vocab_size: int) -> Tensor:
    """(B, columns of ``targets``) bool, on their device: True at a label that isn't allowed."""
    targets = problem.targets
    position = torch.arange(targets.shape[1], device=targets.device)
    target_lengths = on_device(problem.target_lengths, targets.device)
    is_label = position < target_lengths[:, None]
    wrong = (targets < 0) | (targets >= vocab_size)
    if not problem.blank_in_targets:
        wrong = wrong | (targets == problem.blank)
    return is_label & wrong


def label_limit(logits: Tensor, targets: Tensor) -> int:
    """The most labels per sample that ``targets`` and, where padded, ``logits`` have room for."""
    if logits.dim() == 2:
        return targets.shape[1]
    return min(logits.shape[2] - 1, targets.shape[1])


def check_values(logits: Tensor, problem: Problem) -> None:
    """Raises ValueError unless lengths and targets fit ``logits``, packed or padded."""
    check_sizes(logits, problem)
    check_targets(problem, logits.shape[-1])


def check_sizes(logits: Tensor, problem: Problem) -> None:
    """Raises ValueError unless lengths fit ``logits`` and the columns of ``targets``."""
    packed = logits.dim() == 2
    check_lengths(
        problem.logit_lengths,
        problem.target_lengths,
        max_frames=None if packed else logits.shape[1],
        max_labels=label_limit(logits, problem.targets),
        num_rows=logits.shape[0] if packed else None,
    )


def warn_if_logits(logits: Tensor, problem: Problem) -> None:
    """Warns once if a value that the loss reads as a log-probability is positive.

    Lengths and targets must have passed their checks. Reads two values of each row.
    """
    targets, logit_lengths, target_lengths = problem[:3]
    lattices = sample_lattices(logits.detach(), logit_lengths, target_lengths)
    for lattice, labels, num_labels in zip(lattices, targets, target_lengths.tolist(), strict=True):
        index = labels[:num_labels, None].to(logits.device, torch.int64)  # (U_b, 1)
        label_values = lattice[:, :-1].gather(2, index.expand(lattice.shape[0], -1, -1))
        if _any_positive(lattice[:, :, problem.blank]) or _any_positive(label_values):
            warnings.warn(_POSITIVE_LOG_PROBS_MESSAGE, UserWarning, stacklevel=2)
            return


def _any_positive(values: Tensor) -> bool:
    return bool((values > _LOG_PROB_TOLERANCE).any())
