"""Which entries can become utterances of a manifest, and what is wrong with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from asr_ascend.data.importing import problems
from asr_ascend.data.importing.inspection import AudioFacts
from asr_ascend.data.importing.source import Entry, EntrySet, Problem
from asr_ascend.data.manifest import Utterance, has_text

UnknownCharacters = Callable[[str], Sequence[str]]


@dataclass
class Checked:
    """The outcome of checking one set.

    Args:
        utterances: those that a manifest can hold, in order.
        flagged: problems of each utterance that has any, by its place in `utterances`.
        left_out: problems of what no manifest can hold.
        num_entries: entries that were checked.
        rates_hz: entries by sampling rate, the most frequent first.
        formats: entries by file format.
        notes: sentences about the source as a whole.
    """

    utterances: list[Utterance] = field(default_factory=list)
    flagged: dict[int, list[Problem]] = field(default_factory=dict)
    left_out: list[Problem] = field(default_factory=list)
    num_entries: int = 0
    rates_hz: Counter[int] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def problems(self) -> list[Problem]:
        """Returns all problems, those of utterances first."""
        return [found for several in self.flagged.values() for found in several] + self.left_out

    def sound(self) -> list[Utterance]:
        """Returns the utterances without a problem."""
        return [u for number, u in enumerate(self.utterances) if number not in self.flagged]


def check_set(
    source: EntrySet,
    facts: Sequence[AudioFacts],
    *,
    unknown_characters: UnknownCharacters | None = None,
    ignore: Collection[str] = (),
) -> Checked:
    """Judges the entries of a set.

    Each utterance gets the measured duration, so that a wrong one doesn't reach training.

    Args:
        source: the entries, with their texts as they will be written.
        facts: about the audio of each entry.
        unknown_characters: those of a text that the tokenizer doesn't know; None: not looked for.
        ignore: kinds of problems that are not looked for.
    """
    checked = Checked(num_entries=len(source.entries), notes=list(source.notes))
    checked.left_out += [problem for problem in source.problems if problem.kind not in ignore]
    first_use: dict[str, str] = {}
    for entry, found in zip(source.entries, facts, strict=True):
        if found.readable():
            checked.rates_hz[found.rate_hz] += 1
            checked.formats[found.format] += 1
        faults = [
            Problem(kind, entry.id, str(entry.audio_path), detail) for kind, detail in found.faults
        ]
        faults += _text_faults(entry, unknown_characters)
        if entry.id in first_use:
            detail = f"{first_use[entry.id]} has the same id"
            faults.append(Problem(problems.DUPLICATE_ID, entry.id, entry.where, detail))
        first_use.setdefault(entry.id, entry.where)
        # Missing audio and a second use of an id can't be ignored: no manifest can hold them.
        faults = [
            fault
            for fault in faults
            if fault.kind not in ignore or fault.kind in problems.NEVER_WRITTEN
        ]
        if any(fault.kind in problems.NEVER_WRITTEN for fault in faults):
            checked.left_out += faults
            continue
        if faults:
            checked.flagged[len(checked.utterances)] = faults
        checked.utterances.append(_utterance(entry, found))
    return checked


def _text_faults(entry: Entry, unknown_characters: UnknownCharacters | None) -> list[Problem]:
    if not has_text(entry.text):
        return [Problem(problems.EMPTY_TEXT, entry.id, entry.where, "it has no text")]
    unknown = unknown_characters(entry.text) if unknown_characters else []
    if not unknown:
        return []
    listing = ", ".join(f"'{character}'" for character in unknown)
    detail = f"the tokenizer doesn't know {listing}"
    return [Problem(problems.UNKNOWN_CHARACTER, entry.id, entry.where, detail)]


def _utterance(entry: Entry, found: AudioFacts) -> Utterance:
    stated = found.seconds
    # Spans keep their own length, which rounding to samples changes a little, unless it is wrong.
    if entry.offset is not None and entry.duration is not None:
        stated = entry.duration if abs(entry.duration - stated) < 1e-3 else stated
    return Utterance(
        id=entry.id,
        audio_path=entry.audio_path,
        text=entry.text,
        duration=stated,
        speaker=entry.speaker,
        token_start_ms=entry.token_start_ms,
        offset=entry.offset,
    )
