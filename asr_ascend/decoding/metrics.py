"""Character error rate and emission delay."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from asr_ascend.config.frames import frame_end_ms


class AlignmentOp(NamedTuple):
    """One step of an alignment: the reference and hypothesis positions it uses, None if neither."""

    kind: Literal["correct", "substitution", "deletion", "insertion"]
    reference_index: int | None
    hypothesis_index: int | None


def align(reference: Sequence[Any], hypothesis: Sequence[Any]) -> list[AlignmentOp]:
    """Finds an alignment with the fewest errors (Levenshtein distance), in order.

    Where several have as few, the choice goes from the end: pairs of symbols first, then deletions,
    then insertions.

    Args:
        reference: symbols that were said: a string, or ids.
        hypothesis: symbols that were heard.

    Returns:
        One op per correct, substituted, deleted or inserted symbol.
    """
    distance, same = _edit_distances(reference, hypothesis)
    i, j = len(reference), len(hypothesis)
    ops: list[AlignmentOp] = []
    while i or j:
        here = distance[i][j]
        if i and j and here == distance[i - 1][j - 1] + (not same[i - 1][j - 1]):
            i, j = i - 1, j - 1
            ops.append(AlignmentOp("correct" if same[i][j] else "substitution", i, j))
        elif i and here == distance[i - 1][j] + 1:
            i -= 1
            ops.append(AlignmentOp("deletion", i, None))
        else:
            j -= 1
            ops.append(AlignmentOp("insertion", None, j))
    return ops[::-1]


def _edit_distances(
    reference: Sequence[Any], hypothesis: Sequence[Any]
) -> tuple[list[list[int]], list[list[bool]]]:
    """Edit distances of all prefixes, and which pairs of symbols are the same."""
    ids: dict[Any, int] = {}
    ref = np.array([ids.setdefault(symbol, len(ids)) for symbol in reference], dtype=np.int64)
    hyp = np.array([ids.setdefault(symbol, len(ids)) for symbol in hypothesis], dtype=np.int64)
    same = ref[:, None] == hyp[None, :]
    column = np.arange(len(hyp) + 1)
    row = column.copy()
    rows = [row]
    for i in range(len(ref)):
        paired_or_deleted = np.empty_like(row)
        paired_or_deleted[0] = i + 1
        np.minimum(row[:-1] + ~same[i], row[1:] + 1, out=paired_or_deleted[1:])
        # Insertions add one per column: with that taken off, they are a running minimum.
        row = np.minimum.accumulate(paired_or_deleted - column) + column
        rows.append(row)
    return [row.tolist() for row in rows], same.tolist()


@dataclass(frozen=True)
class ErrorCounts:
    """Errors by kind against a reference of ``reference_length`` symbols; ``+`` adds them up."""

    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0
    reference_length: int = 0

    @property
    def errors(self) -> int:
        """All errors."""
        return self.substitutions + self.deletions + self.insertions

    @property
    def cer(self) -> float:
        """Errors per reference symbol; for an empty reference 0.0 without errors, else infinity."""
        if self.reference_length == 0:
            return math.inf if self.errors else 0.0
        return self.errors / self.reference_length

    def __add__(self, other: ErrorCounts) -> ErrorCounts:
        return ErrorCounts(
            self.substitutions + other.substitutions,
            self.deletions + other.deletions,
            self.insertions + other.insertions,
            self.reference_length + other.reference_length,
        )


def collapse_whitespace(text: str) -> str:
    """Removes outer white space from ``text`` and makes each inner run of it one space."""
    return " ".join(text.split())


def character_errors(reference: str, hypothesis: str) -> ErrorCounts:
    """Counts errors between two texts, character by character, white space collapsed in both."""
    return _errors(collapse_whitespace(reference), collapse_whitespace(hypothesis))


def word_errors(reference: str, hypothesis: str) -> ErrorCounts:
    """Counts errors between two texts, word by word; white space separates words."""
    return _errors(reference.split(), hypothesis.split())


def _errors(reference: Sequence[str], hypothesis: Sequence[str]) -> ErrorCounts:
    kinds = [op.kind for op in align(reference, hypothesis)]
    return ErrorCounts(
        kinds.count("substitution"),
        kinds.count("deletion"),
        kinds.count("insertion"),
        len(reference),
    )


@dataclass(frozen=True)
class TokenDelay:
    """Timing of one correctly recognised token.

    Attributes:
        reference_index: its place in the reference.
        delay_ms: end of the frame that gave it, after the end of the spoken syllable; negative
            where the token came out while the syllable was still spoken.
        chunk_wait_ms: how long that frame waited for its chunk to fill.
        before_onset: the frame ended before the syllable had begun: the token was guessed.
    """

    reference_index: int
    delay_ms: float
    chunk_wait_ms: float
    before_onset: bool


@dataclass(frozen=True)
class EmissionDelays:
    """Delays of many tokens; ``+`` joins them. Medians are NaN where there is no token."""

    tokens: tuple[TokenDelay, ...] = ()

    @property
    def median_ms(self) -> float:
        """Median delay, waiting for the chunk not included."""
        return statistics.median(t.delay_ms for t in self.tokens) if self.tokens else math.nan

    @property
    def median_chunk_wait_ms(self) -> float:
        """Median wait for the chunk to fill."""
        return statistics.median(t.chunk_wait_ms for t in self.tokens) if self.tokens else math.nan

    @property
    def share_before_onset(self) -> float:
        """Share of tokens, in [0, 1], that came out before they were spoken."""
        if not self.tokens:
            return math.nan
        return sum(t.before_onset for t in self.tokens) / len(self.tokens)

    def __add__(self, other: EmissionDelays) -> EmissionDelays:
        return EmissionDelays(self.tokens + other.tokens)


def emission_delays(
    reference: Sequence[Any],
    hypothesis: Sequence[Any],
    frames: Sequence[int],
    token_start_ms: Sequence[float],
    speech_end_ms: float,
    chunk_frames: int | None = None,
    num_frames: int | None = None,
    look_ahead_frames: int = 0,
) -> EmissionDelays:
    """Measures the delay from a syllable's end to its token, over correctly recognised tokens.

    Args:
        reference: R symbols that were said: a string, or ids.
        hypothesis: H symbols that were heard.
        frames: H encoder frames (40 ms each) that gave the hypothesis' symbols.
        token_start_ms: R onsets of the reference's symbols; a symbol ends where the next begins.
        speech_end_ms: end of active speech, where the last symbol ends.
        chunk_frames: encoder frames in a chunk; None: no waiting is counted.
        num_frames: encoder frames of the utterance, where its last, shorter chunk ends; None: the
            last chunk counts as a full one.
        look_ahead_frames: encoder frames after its last that a chunk waits for.

    Returns:
        One `TokenDelay` per correct symbol.

    Raises:
        ValueError: lengths don't fit.
    """
    if len(frames) != len(hypothesis):
        raise ValueError(
            f"`frames` must have one entry per symbol of `hypothesis` ({len(hypothesis)}), "
            f"but has {len(frames)}."
        )
    if len(token_start_ms) != len(reference):
        raise ValueError(
            f"`token_start_ms` must have one entry per symbol of `reference` ({len(reference)}), "
            f"but has {len(token_start_ms)}."
        )
    ends_ms = [*token_start_ms[1:], speech_end_ms]
    tokens = []
    for kind, i, j in align(reference, hypothesis):
        if kind != "correct" or i is None or j is None:
            continue
        emitted_ms = frame_end_ms(frames[j])
        wait_ms = 0.0
        if chunk_frames is not None:
            last = (frames[j] // chunk_frames + 1) * chunk_frames - 1
            last += look_ahead_frames
            last = last if num_frames is None else min(last, num_frames - 1)
            wait_ms = frame_end_ms(last) - emitted_ms
        before_onset = emitted_ms < token_start_ms[i]
        tokens.append(TokenDelay(i, emitted_ms - ends_ms[i], wait_ms, before_onset))
    return EmissionDelays(tuple(tokens))
