"""CSV, TSV and JSONL files with a recording per row, whatever its columns are called."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asr_ascend.data.importing import problems
from asr_ascend.data.importing.source import (
    Entry,
    EntrySet,
    Problem,
    SourceError,
    audio_root,
    is_unicode,
    one_line,
    read_lines,
    read_text,
)

# Names under which corpora keep a column, the likeliest first.
ALIASES = {
    "audio": (
        *("audio_filepath", "audio_path", "audio", "wav", "wav_path", "path"),
        *("file", "filename", "file_name", "wav_filename"),
    ),
    "text": ("text", "transcript", "sentence", "transcription", "txt"),
    "id": ("id", "utt_id", "utterance_id", "key", "utt"),
    "speaker": ("speaker", "speaker_id", "client_id", "spk"),
    "duration": ("duration",),
    "offset": ("offset", "start"),
}
_REQUIRED = ("audio", "text")
Row = tuple[int, Mapping[str, Any]]


@dataclass(frozen=True)
class Columns:
    """Which column holds what; None: the first of `ALIASES` that the file has."""

    audio: str | None = None
    text: str | None = None
    id: str | None = None
    speaker: str | None = None
    duration: str | None = None
    offset: str | None = None


def read_csv(
    source: Path,
    *,
    delimiter: str = ",",
    header: Sequence[str] | None = None,
    columns: Columns | None = None,
    root: Path | None = None,
    encoding: str = "utf-8",
) -> dict[str, EntrySet]:
    """Reads a table, or every table in a folder, in the order of its rows.

    Args:
        source: a file, or a folder of files that end in .csv or, with a tab, in .tsv.
        delimiter: between columns. With a tab, quotes mean nothing.
        header: names of the columns, for a file whose first row doesn't name them.
        columns: which column holds what.
        root: what relative paths start from. None: the first of the file's folder, `clips` in it,
            the folder above and the working directory below which the first file exists.
        encoding: of the file.

    Raises:
        SourceError: no such file, not text, or a column that isn't there.
    """
    ending = "tsv" if delimiter == "\t" else "csv"
    sets: dict[str, EntrySet] = {}
    for path in _files(source, ending):
        found = EntrySet()
        rows = list(_csv_rows(path, delimiter, header, encoding, found))
        sets[path.stem] = _entries(path, rows, columns or Columns(), root, found)
    return sets


def read_jsonl(
    source: Path, *, columns: Columns | None = None, root: Path | None = None
) -> dict[str, EntrySet]:
    """Reads a JSONL file, or every one in a folder, in the order of its lines.

    Manifests of this package and of NeMo and WeNet's raw lists are such files. `token_start_ms` is
    kept. Arguments and errors are those of `read_csv`.
    """
    sets: dict[str, EntrySet] = {}
    for path in _files(source, "jsonl"):
        found = EntrySet()
        rows: list[Row] = []
        for number, line in read_lines(path):
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                _bad(found, path, number, f"it is not JSON ({error.msg} at column {error.colno})")
                continue
            if isinstance(record, dict):
                rows.append((number, record))
            else:
                _bad(found, path, number, "it is not a JSON object")
        sets[path.stem] = _entries(path, rows, columns or Columns(), root, found)
    return sets


def _files(source: Path, ending: str) -> list[Path]:
    if source.is_dir():
        found = sorted(path for path in source.glob(f"[!.]*.{ending}") if path.is_file())
        if not found:
            raise SourceError(f"{source} holds no .{ending} files.")
        return found
    if not source.is_file():
        raise SourceError(f"{source} is not a file.")
    return [source]


def _csv_rows(
    path: Path, delimiter: str, header: Sequence[str] | None, encoding: str, found: EntrySet
) -> Iterator[Row]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    names = list(header) if header else None
    for number, cells in _cells(path, delimiter, encoding, found):
        if not any(cell.strip() for cell in cells):
            continue
        if names is None:
            names = [cell.strip() for cell in cells]
            twice = [name for name in names if names.count(name) > 1]
            if twice:
                raise SourceError(f"{path} has two columns `{twice[0]}`; rename one of them.")
        elif len(cells) != len(names):
            detail = f"it has {len(cells)} columns, but the header has {len(names)}"
            _bad(found, path, number, detail)
        else:
            yield number, dict(zip(names, cells, strict=True))


def _cells(
    path: Path, delimiter: str, encoding: str, found: EntrySet
) -> Iterator[tuple[int, list[str]]]:
    """Each row and the line on which it starts; rows that break the rules of quoting as problems.

    Those rules are held to (`strict`), since a quote that is never closed takes the rows after it
    into its cell, where nobody would miss them.
    """
    lines = iter(line + "\n" for line in read_text(path, encoding).split("\n"))
    if delimiter == "\t":
        reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE, strict=True)
    else:
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:
            last = reader.line_num
            through = f" in lines {start} to {last}" if last > start else ""
            detail = f"a quoted cell{through} isn't closed, or goes on after its closing quote"
            _bad(found, path, start, detail)
            continue
        yield start, cells


def _entries(
    path: Path, rows: Sequence[Row], columns: Columns, root: Path | None, found: EntrySet
) -> EntrySet:
    if not rows:
        first = next(iter(found.problems), None)
        why = f"; {first.where}, for one: {first.detail}" if first else ""
        raise SourceError(f"{path} holds no utterance{why}.")
    present = list(dict.fromkeys(key for _, record in rows for key in record))
    names = {role: _column(path, role, present, columns) for role in ALIASES}
    audio = str(names["audio"])
    parents = [path.parent, path.parent / "clips", path.parent.absolute().parent, Path.cwd()]
    listed = (record[audio] for _, record in rows if isinstance(record.get(audio), str))
    base = root if root is not None else audio_root(listed, parents)
    for number, record in rows:
        fault, values = _values(record, names)
        if fault:
            _bad(found, path, number, fault, str(values.get("id") or ""))
        else:
            found.entries.append(_entry(values, base, f"{path.name} line {number}"))
    return found


def _column(path: Path, role: str, present: Sequence[str], columns: Columns) -> str | None:
    chosen: str | None = getattr(columns, role)
    listing = ", ".join(present)
    if chosen is not None:
        if chosen not in present:
            raise SourceError(f"{path} has no `{chosen}`; it has {listing}.")
        return chosen
    found = next((name for name in ALIASES[role] if name in present), None)
    if found is None and role in _REQUIRED:
        raise SourceError(
            f"{path} doesn't say which of its columns holds the {role}: name it with "
            f"--{role}-field, one of {listing}."
        )
    return found


def _values(
    record: Mapping[str, Any], names: Mapping[str, str | None]
) -> tuple[str | None, dict[str, Any]]:
    """What is wrong with a row, if anything is, and its values by role."""
    values: dict[str, Any] = {}
    faults: list[str] = []
    for role, name in names.items():
        value = None if name is None else record.get(name)
        if role in ("duration", "offset"):
            value, fault = _seconds(name, value)
            faults += [fault] if fault else []
        elif value is None:
            faults += [f"`{name}` is missing"] if role in _REQUIRED else []
        elif role in ("id", "speaker") and type(value) is int:
            value = str(value)  # numbers are names too
        elif not isinstance(value, str):
            faults.append(f"`{name}` must be a string, but is {json.dumps(value)}")
        elif role == "audio" and not value.strip():
            faults.append(f"`{name}` is empty")
        elif not is_unicode(value):
            faults.append(f"`{name}` holds half of a character (a lone surrogate)")
        values[role] = value
    values["token_start_ms"] = record.get("token_start_ms")
    return (faults[0] if faults else None), values


def _seconds(name: str | None, value: Any) -> tuple[float | None, str | None]:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None, None
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None, f"`{name}` must be a number of seconds, but is {json.dumps(value)}"
    if not math.isfinite(seconds) or seconds < 0:
        return None, f"`{name}` must be finite and not negative, but is {value}"
    return seconds, None


def _entry(values: Mapping[str, Any], base: Path, where: str) -> Entry:
    audio = str(values["audio"]).strip()
    # Without an id the path is the name, and with several spans of a file their start too.
    name = values["id"] or Path(audio).with_suffix("").as_posix().lstrip("/")
    if not values["id"] and values["offset"] is not None:
        name += f"-{round(1000 * values['offset']):08d}"
    text = one_line(values["text"]) if "\n" in values["text"] else values["text"]
    return Entry(
        id=name,
        audio_path=(base / audio).absolute(),
        text=text,
        where=where,
        speaker=values["speaker"] or None,
        offset=values["offset"],
        duration=values["duration"],
        token_start_ms=_times(values["token_start_ms"], text),
    )


def _times(times: Any, text: str) -> tuple[float, ...] | None:
    """Returns the times of the characters, or None where the values are not such times."""
    if not isinstance(times, list) or len(times) != len(text):
        return None
    if not all(type(time) in (int, float) and 0 <= time < math.inf for time in times):
        return None
    return tuple(float(time) for time in times) if times == sorted(times) else None


def _bad(found: EntrySet, path: Path, number: int, detail: str, name: str = "") -> None:
    where = f"{path.name} line {number}"
    found.problems.append(Problem(problems.BAD_LINE, name, where, detail))
