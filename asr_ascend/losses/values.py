"""Checks of the values in lengths and targets, and the one sentence that each failure gets.

The reference checks with torch; a native backend checks in its own code and reports where it
stopped. The sentence is made here for both, so they say the same.
"""

import warnings

import torch
from torch import Tensor

from asr_ascend.losses.layout import band_columns, packed_cells, sample_lattices
from asr_ascend.losses.problem import Problem, on_device

_POSITIVE_LOG_PROBS_MESSAGE = (
    "`fused_log_softmax=False` takes log-probabilities, but some of `logits` are positive: they "
    "look like logits, so pass `logits.log_softmax(-1)` or `fused_log_softmax=True`."
)
# Rounding leaves the log-probability of a near-certain event slightly above 0.
_LOG_PROB_TOLERANCE = 1e-3


def logit_length_error(sample: int, value: int, max_frames: int | None) -> ValueError:
    """Returns the error for a T_b below 1 or above ``max_frames``, which is None if packed."""
    expected = "at least 1" if max_frames is None else f"in [1, {max_frames}]"
    return ValueError(f"`logit_lengths` must be {expected}, but is {value} for sample {sample}.")


def target_length_error(sample: int, value: int, max_labels: int | None) -> ValueError:
    """Returns the error for a U_b below 0 or above ``max_labels``; None: there is no limit."""
    expected = "at least 0" if max_labels is None else f"in [0, {max_labels}]"
    return ValueError(f"`target_lengths` must be {expected}, but is {value} for sample {sample}.")


def row_count_error(num_rows: int, expected_rows: int, has_band: bool = False) -> ValueError:
    """Returns the error for packed logits whose number of rows is not N."""
    if has_band:
        return ValueError(
            f"packed `logits` must have a row for each of the {expected_rows} cells of `band`, "
            f"but has {num_rows}."
        )
    return ValueError(
        "packed `logits` must have sum(logit_lengths * (target_lengths + 1)) = "
        f"{expected_rows} rows, but has {num_rows}."
    )


def target_range_error(sample: int, position: int, value: int, vocab_size: int) -> ValueError:
    """Returns the error for a label outside [0, V)."""
    return ValueError(
        f"`targets` must be in [0, {vocab_size - 1}], but is {value} "
        f"at position {position} of sample {sample}."
    )


def target_is_blank_error(sample: int, position: int, blank: int) -> ValueError:
    """Returns the error for a label equal to blank."""
    return ValueError(
        f"`targets` must not contain `blank`, but is {blank} "
        f"at position {position} of sample {sample}."
    )


def band_error(band: Tensor, sample: int, frame: int, U: int) -> ValueError:
    """Returns the error for a band that breaks a rule in ``frame``; it names the rule.

    Args:
        band: (B, T, 2).
        sample, frame: where it was found.
        U: U_b of the sample.
    """
    first, last = band[sample, frame].tolist()
    before = band[sample, frame - 1].tolist() if frame > 0 else None
    if not 0 <= first <= last <= U:
        wanted = f"be a first and a last column in [0, {U}]"
    elif before is None and first > 0:
        wanted = "hold column 0"
    elif before is not None and (first < before[0] or last < before[1]):
        wanted = f"not fall below the frame before it, {before}"
    elif before is not None and first > before[1] + 1:
        wanted = f"overlap the frame before it, {before}, or lie one label above"
    else:
        wanted = f"hold the last column {U}"
    which = "the last frame" if wanted.startswith("hold the last") else f"frame {frame}"
    return ValueError(
        f"`band` must {wanted} in {which} of sample {sample}, but is [{first}, {last}] there."
    )


def check_band(band: Tensor, logit_lengths: Tensor, target_lengths: Tensor) -> None:
    """Checks a band.

    Args:
        band: (B, T, 2) int32/int64, T at least every T_b.
        logit_lengths, target_lengths: (B,), in range.

    Raises:
        ValueError: it breaks a rule; the first such frame is named.
    """
    T = band.shape[1]
    for sample, num_frames in enumerate(logit_lengths.tolist()):
        if num_frames > T:
            raise logit_length_error(sample, num_frames, T)
    band = band.cpu().to(torch.int64)
    lengths, U = logit_lengths.cpu(), target_lengths.cpu()[:, None]
    t = torch.arange(T)
    first, last = band.unbind(-1)
    first_before = torch.nn.functional.pad(first[:, :-1], (1, 0), value=0)
    last_before = torch.nn.functional.pad(last[:, :-1], (1, 0), value=-1)
    wrong = (first < 0) | (last < first) | (last > U)
    wrong |= (first < first_before) | (last < last_before) | (first > last_before + 1)
    wrong |= (t == lengths[:, None] - 1) & (last != U)
    wrong &= t < lengths[:, None]
    if wrong.any():
        sample, frame = (int(index) for index in wrong.nonzero()[0])
        raise band_error(band, sample, frame, int(U[sample]))


def check_lengths(
    logit_lengths: Tensor,
    target_lengths: Tensor,
    *,
    max_frames: int | None = None,
    max_labels: int | None = None,
    num_rows: int | None = None,
) -> None:
    """Checks that lengths (B,) fit T, U and N, where these are given.

    Raises:
        ValueError: they don't.
    """
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
    """Checks that every label is in [0, V), and not blank where that isn't allowed.

    Padding may be anything.

    Raises:
        ValueError: one is not; the first is named.
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
    """Returns True at every label that isn't allowed: (B, columns of ``targets``) bool.

    It is on the device of ``targets``.
    """
    targets = problem.targets
    position = torch.arange(targets.shape[1], device=targets.device)
    target_lengths = on_device(problem.target_lengths, targets.device)
    is_label = position < target_lengths[:, None]
    wrong = (targets < 0) | (targets >= vocab_size)
    if not problem.blank_in_targets:
        wrong = wrong | (targets == problem.blank)
    return is_label & wrong


def label_limit(logits: Tensor, targets: Tensor) -> int:
    """Returns the most labels per sample for which ``targets`` and padded ``logits`` have room."""
    if logits.dim() == 2:
        return targets.shape[1]
    return min(logits.shape[2] - 1, targets.shape[1])


def check_values(logits: Tensor, problem: Problem) -> None:
    """Checks that lengths and targets fit ``logits``, packed or padded.

    Raises:
        ValueError: they don't.
    """
    check_sizes(logits, problem)
    check_targets(problem, logits.shape[-1])


def check_sizes(logits: Tensor, problem: Problem, with_band: bool = True) -> None:
    """Checks that lengths fit ``logits`` and the columns of ``targets``.

    Args:
        logits: packed or padded.
        problem: of these logits.
        with_band: whether a band is checked too.

    Raises:
        ValueError: they don't.

    Raises:
        ValueError: they don't.
    """
    packed = logits.dim() == 2
    check_lengths(
        problem.logit_lengths,
        problem.target_lengths,
        max_frames=None if packed else logits.shape[1],
        max_labels=label_limit(logits, problem.targets),
        num_rows=logits.shape[0] if packed and problem.band is None else None,
    )
    if problem.band is not None and with_band:
        check_band(problem.band, problem.logit_lengths, problem.target_lengths)
        cells = int(band_columns(problem.band, problem.logit_lengths).sum())
        if cells != logits.shape[0]:
            raise row_count_error(logits.shape[0], cells, has_band=True)


def warn_if_logits(logits: Tensor, problem: Problem) -> None:
    """Warns once if a value that the loss reads as a log-probability is positive.

    Lengths and targets must have passed their checks. Reads two values of each row.
    """
    targets, logit_lengths, target_lengths = problem[:3]
    if problem.band is not None:
        if _any_positive(_gathered_in_band(logits.detach(), problem)):
            warnings.warn(_POSITIVE_LOG_PROBS_MESSAGE, UserWarning, stacklevel=2)
        return
    lattices = sample_lattices(logits.detach(), logit_lengths, target_lengths)
    for lattice, labels, num_labels in zip(lattices, targets, target_lengths.tolist(), strict=True):
        index = labels[:num_labels, None].to(logits.device, torch.int64)  # (U_b, 1)
        label_values = lattice[:, :-1].gather(2, index.expand(lattice.shape[0], -1, -1))
        if _any_positive(lattice[:, :, problem.blank]) or _any_positive(label_values):
            warnings.warn(_POSITIVE_LOG_PROBS_MESSAGE, UserWarning, stacklevel=2)
            return


def _gathered_in_band(logits: Tensor, problem: Problem) -> Tensor:
    """(2 N,): the values of blank and label of every row; blank's where there is no label."""
    lengths = problem.logit_lengths, problem.target_lengths
    b, _, u = packed_cells(len(logits), *lengths, logits.device, problem.band)
    labels = torch.nn.functional.pad(problem.targets, (0, 1)).to(logits.device, torch.int64)[b, u]
    has_label = u < problem.target_lengths.to(logits.device)[b]
    index = labels.where(has_label, problem.blank)[:, None]
    return torch.cat([logits[:, problem.blank], logits.gather(1, index)[:, 0]])


def _any_positive(values: Tensor) -> bool:
    return bool((values > _LOG_PROB_TOLERANCE).any())
