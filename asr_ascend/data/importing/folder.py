"""A folder of recordings, each with a text file of the same name beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from asr_ascend.data.importing import problems
from asr_ascend.data.importing.source import (
    AUDIO_SUFFIXES,
    Entry,
    EntrySet,
    Problem,
    SourceError,
    is_unicode,
    one_line,
    read_text,
)


def read_folder(
    source: Path,
    *,
    text_field: str = "txt",
    speaker_from_folder: bool = False,
    encoding: str = "utf-8",
) -> dict[str, EntrySet]:
    """Entries of every recording below `source`, in order of their names.

    The id is the path below `source` without its suffix; lines of a text are joined by spaces.

    Args:
        source: folder, searched at any depth; hidden files are passed over.
        text_field: ending of the text files: "txt" for a.txt beside a.wav, "en.txt" for a.en.txt.
        speaker_from_folder: the folder that a recording is in names its speaker.
        encoding: of the texts.

    Raises:
        SourceError: `source` is no folder or holds no audio, or no recording has a text.
    """
    if not source.is_dir():
        raise SourceError(f"{source} is not a folder.")
    found = EntrySet()
    unread: list[SourceError] = []
    recordings = list(_files(source, found))
    if not recordings:
        endings = ", ".join(sorted(AUDIO_SUFFIXES))
        raise SourceError(f"{source} holds no audio files ({endings}).")
    for audio in recordings:
        name = audio.relative_to(source).with_suffix("").as_posix()
        transcript = audio.with_name(f"{audio.stem}.{text_field}")
        if not is_unicode(name):
            # Archives from another system may name files in its encoding.
            escaped = name.encode("utf-8", "backslashreplace").decode()
            detail = "its file name is not UTF-8; rename the file"
            found.problems.append(Problem(problems.BAD_LINE, escaped, escaped, detail))
            continue
        if not transcript.is_file():
            detail = f"there is no {transcript.name} beside it"
            found.problems.append(Problem(problems.NO_TRANSCRIPT, name, str(audio), detail))
            continue
        try:
            text = read_text(transcript, encoding)
        except SourceError as error:
            # A single such text is a problem of its recording, nothing but such one of the source.
            unread.append(error)
            detail = str(error).replace(str(transcript), "it", 1).rstrip(".")
            found.problems.append(Problem(problems.BAD_LINE, name, str(transcript), detail))
            continue
        speaker = audio.parent.name if speaker_from_folder else None
        found.entries.append(Entry(name, audio, one_line(text), str(transcript), speaker))
    if not found.entries and unread:
        raise unread[0]
    if not found.entries:
        raise SourceError(
            f"{source} has no recording with a text: {recordings[0].name}, for one, has no "
            f"{recordings[0].stem}.{text_field} beside it."
        )
    return {source.resolve().name: found}


def _leads_up(parent: str, name: str) -> bool:
    """Whether a folder is a link to one that it is in, where walking would go round."""
    path = Path(parent, name)
    return path.is_symlink() and Path(parent).resolve().is_relative_to(path.resolve())


def _files(folder: Path, found: EntrySet) -> Iterator[Path]:
    def closed(error: OSError) -> None:
        detail = f"the folder can't be read: {error.strerror}"
        problem = Problem(problems.BAD_LINE, "", str(error.filename), detail)
        found.problems.append(problem)

    for parent, folders, names in os.walk(folder, onerror=closed, followlinks=True):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and not _leads_up(parent, name)
        )
        for name in sorted(names):
            if not name.startswith(".") and Path(name).suffix.lower() in AUDIO_SUFFIXES:
                yield Path(parent) / name
