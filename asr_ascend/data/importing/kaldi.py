"""Kaldi data directories: wav.scp, text, and where they are there segments and utt2spk."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from asr_ascend.data.importing import problems
from asr_ascend.data.importing.source import (
    Entry,
    EntrySet,
    Problem,
    SourceError,
    audio_root,
    read_lines,
)

# A file name that means the same to a shell.
_PLAIN_NAME = re.compile(r"[\w./+=:,@%][\w./+=:,@%-]*")


@dataclass(frozen=True)
class _Span:
    recording: str
    where: str
    offset: float | None = None
    duration: float | None = None


def read_kaldi(
    source: Path, *, text_field: str = "text", root: Path | None = None
) -> dict[str, EntrySet]:
    """Reads one data directory, or every one in the folder `source`, in the files' order.

    Args:
        source: a folder with wav.scp, or a folder of such folders (train, dev, test, ...).
        text_field: the file with the transcripts, for example "text.en" for a translation.
        root: what relative paths in wav.scp start from. None: the first of the working directory,
            the data directory and the three folders above it below which the first file exists.

    Raises:
        SourceError: no data directory, a file missing, or recordings that are commands (other
            than those that only decode a file) or places in an archive.
    """
    if (source / "wav.scp").is_file():
        folders = [source]
    else:
        folders = sorted(path.parent for path in source.glob("*/wav.scp"))
    if not folders:
        raise SourceError(f"{source} is not a Kaldi data directory: it has no wav.scp.")
    return {folder.resolve().name: _read_folder(folder, text_field, root) for folder in folders}


def _read_folder(folder: Path, text_field: str, root: Path | None) -> EntrySet:
    found = EntrySet()
    recordings = _read_recordings(folder / "wav.scp", root, found)
    spans = _read_spans(folder, recordings, found)
    texts = _read_table(folder / text_field, found)
    speakers = folder / "utt2spk"
    speaker_of = _read_table(speakers, found) if speakers.is_file() else {}
    refused = {problem.id for problem in found.problems}
    for name, (number, text) in texts.items():
        where = f"{text_field} line {number}"
        span = spans.get(name)
        if span is None and name in refused:
            continue  # its line in segments is there and has been reported
        if span is None:
            listing = "segments" if (folder / "segments").is_file() else "wav.scp"
            found.problems.append(
                Problem(problems.MISSING, name, where, f"{listing} has no line for it")
            )
            continue
        speaker = speaker_of[name][1].strip() if name in speaker_of else None
        audio = recordings[span.recording]
        found.entries.append(Entry(name, audio, text, where, speaker, span.offset, span.duration))
    for name in spans.keys() - texts.keys():
        detail = f"{text_field} has no line for it"
        problem = Problem(problems.NO_TRANSCRIPT, name, spans[name].where, detail)
        found.problems.append(problem)
    found.problems.sort(key=lambda problem: (problem.kind, problem.id))
    return found


def _read_recordings(listing: Path, root: Path | None, found: EntrySet) -> dict[str, Path]:
    table = _read_table(listing, found)
    paths = {name: _file_of(value.strip()) for name, (_, value) in table.items()}
    for name, (number, value) in table.items():
        start = f"{listing} line {number}: recording '{name}' is "
        if not paths[name]:
            raise SourceError(
                f"{start}a command ({value.strip()}), and commands are not run; write the "
                "recordings to files first and name those in wav.scp."
            )
        if re.search(r"\.ark:\d+$", value.strip()):
            raise SourceError(
                f"{start}a place in an archive ({value.strip()}); write the recordings to files "
                "first (wav-copy does it) and name those in wav.scp."
            )
    parents = [Path.cwd(), listing.parent, *listing.parent.absolute().parents[:3]]
    base = root if root is not None else audio_root(paths.values(), parents)
    return {name: (base / path).absolute() for name, path in paths.items()}


def _file_of(value: str) -> str:
    """Returns the file that a line of wav.scp names.

    Returns "" for a command that does more than decode a file. ``flac -c -d -s a.flac |`` and ``cat
    a.wav |`` give what libsndfile reads in the file itself.
    """
    if not value.endswith("|"):
        return value
    program, *words = value[:-1].split() or [""]
    options = "".join(words[:-1])
    decodes = {"flac": {"-", "c", "d"} <= set(options) <= {"-", "c", "d", "s"}, "cat": not options}
    file = words[-1] if words and decodes.get(Path(program).name) else ""
    return file if _PLAIN_NAME.fullmatch(file) else ""


def _read_spans(folder: Path, recordings: dict[str, Path], found: EntrySet) -> dict[str, _Span]:
    listing = folder / "segments"
    if not listing.is_file():
        return {name: _Span(name, str(path)) for name, path in recordings.items()}
    spans: dict[str, _Span] = {}
    for name, (number, value) in _read_table(listing, found).items():
        where = f"segments line {number}"
        try:
            recording, start, end = value.split()
            offset, stop = float(start), float(end)
        except ValueError:
            detail = "it must be an id, a recording, a start and an end in seconds"
            found.problems.append(Problem(problems.BAD_LINE, name, where, detail))
            continue
        # Kaldi writes -1 for "to the end of the recording".
        duration = None if stop == -1 else round(stop - offset, 6)
        valid = math.isfinite(offset) and offset >= 0 and math.isfinite(stop)
        if not valid or (duration is not None and duration <= 0):
            detail = f"its span from {start} s to {end} s is not one"
            found.problems.append(Problem(problems.BAD_LINE, name, where, detail))
        elif recording not in recordings:
            detail = f"wav.scp has no recording '{recording}'"
            found.problems.append(Problem(problems.MISSING, name, where, detail))
        else:
            spans[name] = _Span(recording, where, offset, duration)
    return spans


def _read_table(path: Path, found: EntrySet) -> dict[str, tuple[int, str]]:
    """Line number and value of each key; the value may be empty."""
    if not path.is_file():
        raise SourceError(f"{path.parent} is not complete: it has no file {path.name}.")
    table: dict[str, tuple[int, str]] = {}
    for number, line in read_lines(path):
        key, *value = line.split(maxsplit=1)
        if key in table:
            detail = f"line {table[key][0]} has the same id"
            where = f"{path.name} line {number}"
            found.problems.append(Problem(problems.DUPLICATE_ID, key, where, detail))
        else:
            table[key] = (number, value[0] if value else "")
    return table
