"""What an import found, as text for people and as JSON for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from asr_ascend.data.importing.checking import Checked
from asr_ascend.data.importing.problems import MEANINGS, NEVER_WRITTEN
from asr_ascend.data.importing.source import Problem
from asr_ascend.data.manifest import Utterance


def describe(name: str, checked: Checked, show: int) -> str:
    """Returns lines about a set: its size, then its problems by kind, most frequent kind first.

    Args:
        name: of the set.
        checked: what was found.
        show: how many problems of each kind to list.
    """
    rates = _frequencies({f"{rate} Hz": count for rate, count in checked.rates_hz.items()})
    parts = [size(checked.utterances, checked.num_entries), rates, _frequencies(checked.formats)]
    lines = [f"{name}: " + "; ".join(part for part in parts if part)]
    lines += [f"  {note}" for note in checked.notes]
    by_kind: dict[str, list[Problem]] = {}
    for problem in checked.problems():
        by_kind.setdefault(problem.kind, []).append(problem)
    for kind, found in sorted(by_kind.items(), key=lambda item: (-len(item[1]), item[0])):
        lines.append(f"  {kind}: {len(found)} ({MEANINGS[kind]})")
        for problem in found[:show]:
            start = f"{problem.id} ({_shown(problem.where)})" if problem.id else problem.where
            lines.append(f"    {start}: {problem.detail}")
        if len(found) > show > 0:
            lines.append(f"    and {len(found) - show} more, which the report lists")
    return "\n".join(lines)


def size(utterances: Iterable[Utterance], count: int | None = None) -> str:
    """Returns, for example, "12 utterances, 0.02 h, 31 different characters".

    Args:
        utterances: to describe.
        count: replaces the first number; None: the number of `utterances`.
    """
    listed = list(utterances)
    hours = sum(utterance.duration for utterance in listed) / 3600
    characters = len(set().union(*(utterance.text for utterance in listed)))
    number = len(listed) if count is None else count
    noun = "utterance" if number == 1 else "utterances"
    return f"{number} {noun}, {hours:.2f} h, {characters} different characters"


def as_json(
    name: str,
    checked: Checked,
    *,
    source: Path,
    kind: str,
    fix: str | None,
    written: Mapping[str, int],
) -> dict[str, Any]:
    """Returns a set's report: every problem and what was done about it.

    Args:
        name: of the set.
        checked: what was found.
        source: what was imported.
        kind: its format.
        fix: "drop", "keep" or None.
        written: utterances of each manifest that was written; empty if none was.
    """
    done = {"drop": "dropped", "keep": "kept"}.get(str(fix), "undecided")
    flagged = [problem for found in checked.flagged.values() for problem in found]
    listed = [{**asdict(problem), "action": done} for problem in flagged]
    listed += [{**asdict(problem), "action": "left out"} for problem in checked.left_out]
    return {
        "set": name,
        "source": str(source),
        "format": kind,
        "fix": fix,
        "utterances": checked.num_entries,
        "with_problems": len(checked.flagged),
        "left_out": len(checked.left_out),
        "written": dict(written),
        "hours": round(sum(u.duration for u in checked.utterances) / 3600, 4),
        "sample_rates_hz": {str(rate): count for rate, count in checked.rates_hz.most_common()},
        "formats": dict(checked.formats.most_common()),
        "notes": list(checked.notes),
        "counts": dict(Counter(problem["kind"] for problem in listed).most_common()),
        "problems": listed,
    }


def warn_kept(checked: Checked) -> str | None:
    """Returns a warning where a set keeps utterances with problems, None where it doesn't."""
    kinds = Counter(problem.kind for found in checked.flagged.values() for problem in found)
    if not kinds:
        return None
    return f"kept {len(checked.flagged)} with problems ({_frequencies(kinds, always=True)})"


def count_left_out(checked: Checked) -> str | None:
    """Returns how many lines and recordings no manifest can hold, as words; None for none."""
    kinds = Counter(p.kind for p in checked.left_out if p.kind in NEVER_WRITTEN)
    if not kinds:
        return None
    return (
        f"left out {kinds.total()} that no manifest can hold ({_frequencies(kinds, always=True)})"
    )


def _frequencies(counts: Mapping[str, int], always: bool = False) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if len(ordered) == 1 and not always:
        return ordered[0][0]
    return ", ".join(f"{name} ({count})" for name, count in ordered)


def _shown(where: str) -> str:
    """Returns a path relative to the working directory where it lies below that."""
    path = Path(where)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else where
