"""Which utterances can be trained on, and why the others can't."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from asr_ascend.config.frames import encoder_frames
from asr_ascend.data.manifest import Utterance, has_text

EMPTY_TEXT = "empty text"
NO_AUDIO = "no audio"
TOO_LONG = "too long"
TOO_FEW_FRAMES = "more tokens than encoder frames"
UNKNOWN_CHARACTER = "character unknown to the tokenizer"
LATTICE_TOO_LARGE = "lattice larger than a batch may be"
UNREADABLE = "unreadable audio"
LONGER_THAN_STATED = "audio longer than the manifest says"


@dataclass(frozen=True)
class LatticeBound:
    """What bounds the lattice cells that the loss computes, known before the audio is heard.

    Args:
        window_frames: frames in which a token may come, around increasing ones: all alignments
            together pass at most T + U * window_frames cells. None: no windows.
        symbols_per_frame: columns of each frame; None: all.
    """

    window_frames: int | None = None
    symbols_per_frame: int | None = None

    def rows(self, frames: int, tokens: int) -> int:
        """Returns the most cells of an utterance of T frames and U tokens: T * (U + 1) without a
        bound.
        """
        rows = frames * (tokens + 1)
        if self.window_frames is not None:
            rows = min(rows, frames + tokens * self.window_frames)
        if self.symbols_per_frame is not None:
            rows = min(rows, frames * self.symbols_per_frame)
        return rows

    @property
    def is_banded(self) -> bool:
        """Whether there is a bound."""
        return self.window_frames is not None or self.symbols_per_frame is not None


FULL_LATTICE = LatticeBound()


def lattice_bytes(
    frames: int,
    tokens: int,
    vocab_size: int,
    bytes_per_logit: int,
    bound: LatticeBound = FULL_LATTICE,
) -> int:
    """Returns the bytes of one utterance's packed joiner output.

    It has at most `bound`'s rows of V logits.
    """
    return bound.rows(frames, tokens) * vocab_size * bytes_per_logit


def frames_needed(target: Sequence[int]) -> int:
    """Returns the encoder frames that CTC needs for `target`.

    Each token needs one frame, and equal neighbours need one more between them.
    """
    repeats = sum(first == second for first, second in pairwise(target))
    return len(target) + repeats


@dataclass(frozen=True)
class Limits:
    """What an utterance must meet.

    Args:
        max_seconds: longest audio.
        vocab_size: V.
        bytes_per_logit: of the joiner's output.
        max_lattice_bytes: largest lattice.
        unk: id that targets must not hold, or None to allow it.
        bound: of the lattice cells.
    """

    max_seconds: float
    vocab_size: int
    bytes_per_logit: int
    max_lattice_bytes: int
    unk: int | None
    bound: LatticeBound = FULL_LATTICE

    def reason_to_skip(
        self, text: str, target: Sequence[int], seconds: float, feature_frames: int
    ) -> str | None:
        """Returns why an utterance can't be used, or None if it can.

        Args:
            text: transcript.
            target: token ids of `text`.
            seconds: duration of the audio.
            feature_frames: frames of its features.
        """
        frames = encoder_frames(feature_frames)
        logits = self.vocab_size, self.bytes_per_logit
        size = lattice_bytes(frames, len(target), *logits, self.bound)
        if not has_text(text) or not target:
            return EMPTY_TEXT
        if seconds == 0:
            return NO_AUDIO
        if seconds > self.max_seconds:
            return TOO_LONG
        if self.unk is not None and self.unk in target:
            return UNKNOWN_CHARACTER
        if frames < frames_needed(target):
            return TOO_FEW_FRAMES
        return LATTICE_TOO_LARGE if size > self.max_lattice_bytes else None


def usable(
    utterances: Iterable[Utterance],
    limits: Limits,
    encode: Callable[[str], list[int]],
    feature_frames: Callable[[float], int],
) -> tuple[list[Utterance], list[list[int]], dict[str, int]]:
    """Returns the utterances within all limits, their targets, and the skipped ones by reason.

    Args:
        utterances: of a manifest.
        limits: what they must meet.
        encode: text to token ids.
        feature_frames: seconds to feature frames.
    """
    kept: list[Utterance] = []
    targets: list[list[int]] = []
    skipped: Counter[str] = Counter()
    for utterance in utterances:
        target = encode(utterance.text)
        frames = feature_frames(utterance.duration)
        reason = limits.reason_to_skip(utterance.text, target, utterance.duration, frames)
        if reason is None:
            kept.append(utterance)
            targets.append(target)
        else:
            skipped[reason] += 1
    return kept, targets, dict(skipped)


def describe_skipped(skipped: Mapping[str, int], keys: Mapping[str, str]) -> str:
    """Returns, for example, "3 (2 empty text, 1 too long: ...)", or "0" for none.

    The most frequent reason comes first.

    Args:
        skipped: how many by reason.
        keys: what to say of a reason: the key that sets its limit, and its value.
    """
    if not skipped:
        return "0"
    ordered = sorted(skipped.items(), key=lambda item: (-item[1], item[0]))
    reasons = ", ".join(
        f"{count} {reason}" + (f": {keys[reason]}" if reason in keys else "")
        for reason, count in ordered
    )
    return f"{sum(skipped.values())} ({reasons})"
