"""What importers give, and the parts of reading that they share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_HAN = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
_BESIDE_HAN = re.compile(rf"(?<=[{_HAN}])\s+|\s+(?=[{_HAN}])")
SPACES = ("keep", "han", "none")


class SourceError(ValueError):
    """A source that can't be read at all; the message is one sentence for the user."""


class RenderError(RuntimeError):
    """Audio that can't be made; the message says why."""


@dataclass(frozen=True)
class Problem:
    """Something wrong with a corpus.

    Args:
        kind: one of the names in `asr_ascend.data.importing.problems`.
        id: of the utterance, or of what comes closest to one.
        where: the audio file, or the file and line, that it was found in.
        detail: what is wrong, without the id and the place.
    """

    kind: str
    id: str
    where: str
    detail: str


@dataclass(frozen=True)
class Entry:
    """An utterance as its source states it, before anything was checked.

    Args:
        id, audio_path, text, speaker, offset, token_start_ms: as in `manifest.Utterance`.
        where: file and line that it was read from.
        duration: seconds as stated; None where the source doesn't say.
        render: makes the file `audio_path` where it isn't there, or raises RenderError; None for
            audio that exists.
    """

    id: str
    audio_path: Path
    text: str
    where: str
    speaker: str | None = None
    offset: float | None = None
    duration: float | None = None
    token_start_ms: tuple[float, ...] | None = None
    render: Callable[[Path], None] | None = None


@dataclass
class EntrySet:
    """The entries that become one manifest, and what could not become an entry.

    Args:
        entries: in order.
        problems: of what is no entry.
        notes: sentences about the source as a whole.
    """

    entries: list[Entry] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_lines(path: Path, encoding: str = "utf-8") -> list[tuple[int, str]]:
    """Numbered lines of a text file that are not blank, without their line ends.

    Raises:
        SourceError: the file can't be read or is in another encoding.
    """
    # Not splitlines: it also splits at characters that may stand within a transcript.
    lines = read_text(path, encoding).split("\n")
    return [(number, line.rstrip("\r")) for number, line in enumerate(lines, 1) if line.strip()]


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """A text file without its byte order mark.

    Raises:
        SourceError: the file can't be read or is in another encoding.
    """
    try:
        return path.read_text(encoding=encoding).removeprefix("\ufeff")
    except LookupError as error:
        raise SourceError(f"`encoding` must be known to Python, but is '{encoding}'.") from error
    except UnicodeError as error:
        raise SourceError(
            f"{path} is not {encoding} text; name its encoding, for example --encoding gb18030."
        ) from error
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}.") from error


def one_line(text: str) -> str:
    """`text` with its lines, white space around them left out, joined by spaces."""
    lines = (line.strip() for line in text.split("\n"))
    return " ".join(line for line in lines if line)


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can hold `text`: file names and JSON may have halves of characters."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def audio_root(paths: Iterable[str], candidates: Sequence[Path]) -> Path:
    """The first of `candidates` below which the first relative one of `paths` is a file.

    Corpora name their audio relative to the folder that some script was once started in. One
    folder is chosen for all, so that names can't be mixed up; where none fits it is the first.
    """
    relative = next((path for path in paths if path and not Path(path).is_absolute()), None)
    if relative is not None:
        for candidate in candidates:
            if (candidate / relative).is_file():
                return candidate
    return candidates[0]


def adjust_spaces(text: str, spaces: str) -> str:
    """Text without outer white space, and without more of it.

    Args:
        text: a transcript.
        spaces: "keep" leaves the inner ones, "han" removes those beside a Chinese character (they
            separate words in corpora of Mandarin), "none" removes all.
    """
    if spaces == "none":
        return "".join(text.split())
    text = text.strip()
    return _BESIDE_HAN.sub("", text) if spaces == "han" else text
