"""Lines of the doctor's table, and the table as text and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

OK, WARNING, MISSING, WRONG = STATUSES = ("ok", "warning", "missing", "wrong")
SCHEMA_VERSION = 1
_WIDTH = 100
_MEND = "Mend: "


@dataclass(frozen=True)
class Line:
    """What was found of one thing.

    Args:
        subject: the thing, a word or two.
        status: one of STATUSES. A warning works, with a risk that it names.
        found: what it is, or what is wrong with it.
        mend: the one command, or the one act, that mends it.
        needed_by: names of `--require` that need it to be right.
    """

    subject: str
    status: str
    found: str
    mend: str | None = None
    needed_by: tuple[str, ...] = ()

    def is_right(self) -> bool:
        """Whether it works."""
        return self.status in (OK, WARNING)


@dataclass(frozen=True)
class Section:
    """Lines under a title."""

    title: str
    lines: Sequence[Line]


def checked(
    subject: str, needed_by: tuple[str, ...], check: Callable[..., Line | list[Line]], *given: Any
) -> list[Line]:
    """The lines of a check; one that says so where the check itself fails."""
    try:
        found = check(*given)
    except Exception as error:
        text = f"the doctor can't look at it: {type(error).__name__}: {error}"
        return [Line(subject, WRONG, text, "please report it", needed_by)]
    return [found] if isinstance(found, Line) else found


def failing(sections: Sequence[Section], required: Sequence[str]) -> list[Line]:
    """The lines that something asked for needs and that are not right."""
    wanted = set(required)
    return [
        line
        for section in sections
        for line in section.lines
        if not line.is_right() and wanted & set(line.needed_by)
    ]


def text(sections: Sequence[Section]) -> str:
    """The table to read, in three columns; commands are never broken."""
    subjects = max(len(line.subject) for section in sections for line in section.lines)
    statuses = max(map(len, STATUSES))
    indent = " " * (2 + subjects + 2 + statuses + 2)
    rows: list[str] = []
    for section in sections:
        rows += ["", section.title] if rows else [section.title]
        for line in section.lines:
            start = f"  {line.subject:{subjects}s}  {line.status:{statuses}s}  "
            rows += _wrapped(line.found, start, indent)
            if line.mend is not None and line.status != OK:
                rows.append(f"{indent}{_MEND}{line.mend}")
    return "\n".join(rows)


def as_json(
    sections: Sequence[Section], required: Sequence[str], wrong: Sequence[Line]
) -> dict[str, Any]:
    """Everything of the table, and `wrong`, the lines that make the exit status 1."""
    return {
        "schema_version": SCHEMA_VERSION,
        "required": list(required),
        "right": not wrong,
        "failing": [line.subject for line in wrong],
        "sections": [
            {"title": section.title, "lines": [asdict(line) for line in section.lines]}
            for section in sections
        ],
    }


def listed(names: Sequence[str], last_word: str = "and") -> str:
    """ "a, b and c"."""
    *most, last = names
    return f"{', '.join(most)} {last_word} {last}" if most else last


def _wrapped(sentence: str, start: str, indent: str) -> list[str]:
    return textwrap.wrap(
        " ".join(sentence.split()),
        max(_WIDTH, len(indent) + 40),
        initial_indent=start,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [start.rstrip()]
