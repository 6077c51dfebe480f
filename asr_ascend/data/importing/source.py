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
    """Returns the lines of a text file that are not blank, each with its number from 1.

    Line ends are removed.

    Raises:
        SourceError: the file can't be read or is in another encoding.
    """
    # Not splitlines: it also splits at characters that may stand within a transcript.
    lines = read_text(path, encoding).split("\n")
    return [(number, line.rstrip("\r")) for number, line in enumerate(lines, 1) if line.strip()]


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """Reads a text file without its byte order mark.

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
    """Joins the lines of `text` by spaces, without white space around the lines."""
    lines = (line.strip() for line in text.split("\n"))
    return " ".join(line for line in lines if line)


def is_unicode(text: str) -> bool:
    """Returns whether UTF-8 can hold `text`.

    File names and JSON may have halves of characters (surrogates), which UTF-8 can't hold.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def audio_root(paths: Iterable[str], candidates: Sequence[Path]) -> Path:
    """Returns the first of `candidates` below which the first relative one of `paths` is a file.

    Corpora name their audio relative to the folder in which some script was started. One folder is
    chosen for all names, so that they can't be mixed up. Where none fits, the first is returned.
    """
    relative = next((path for path in paths if path and not Path(path).is_absolute()), None)
    if relative is not None:
        for candidate in candidates:
            if (candidate / relative).is_file():
                return candidate
    return candidates[0]


def adjust_spaces(text: str, spaces: str) -> str:
    """Returns a text without outer white space and, where asked, without inner white space.

    Args:
        text: a transcript.
        spaces: "keep" leaves the inner ones, "han" removes those next to a Chinese character (they
            separate words in corpora of Mandarin), "none" removes all.
    """
    if spaces == "none":
        return "".join(text.split())
    text = text.strip()
    return _BESIDE_HAN.sub("", text) if spaces == "han" else text
