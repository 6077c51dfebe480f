"""JSONL manifests: one utterance a line, paths relative to the manifest."""

from __future__ import annotations

import json
import math
import os
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asr_ascend.system.atomic import write_json_lines
from asr_ascend.system.paths import user_path

# What has no width either, though not by its category: fillers, a blank of Braille, selectors of a
# variant (Unicode's property Default_Ignorable_Code_Point).
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {
    chr(code) for code in (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
}


@dataclass(frozen=True)
class Utterance:
    """A recording, or a span of one, and what is said in it.

    Args:
        id: unique within its manifest.
        audio_path: absolute path of the audio file.
        text: transcript; may be empty, which training skips and counts.
        duration: seconds; 0 means no audio, which training skips and counts.
        speaker: name of the speaker or voice, if known.
        token_start_ms: where each character of `text` starts, in ms from the utterance's start, if
            known.
        offset: second of the file at which the utterance starts; it then lasts `duration`. None:
            it is the whole file.
    """

    id: str
    audio_path: Path
    text: str
    duration: float
    speaker: str | None = None
    token_start_ms: tuple[float, ...] | None = None
    offset: float | None = None


def has_text(text: str) -> bool:
    """Returns whether a text has a visible character.

    White space, marks of direction and characters of no width are not visible.
    """
    return any(
        not character.isspace()
        and unicodedata.category(character) not in ("Cc", "Cf")
        and character not in _UNSEEN
        for character in text
    )


class ManifestError(ValueError):
    """A manifest with problems; `problems` lists each as ``line N: what is wrong``."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        self.path = path
        self.problems = problems
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"{path} has {count}:\n" + "\n".join(f"  {text}" for text in problems))


# The embedded corpora of the configs, and what makes each.
_EMBEDDED = {"data/demo": "", "data/smoke": " --train 20"}


def missing_manifest(path: str | os.PathLike[str]) -> str:
    """Returns what is wrong with a path that is no file and how to make a manifest there.

    Returns "" for a file.
    """
    manifest = user_path(path)
    if manifest.is_file():
        return ""
    kind = "a folder" if manifest.is_dir() else "not there"
    return f"{manifest} is {kind}.{_made_by(path)}"


def _made_by(path: str | os.PathLike[str]) -> str:
    """A sentence with the command that makes a manifest of a folder, or an embedded corpus."""
    if user_path(path).is_dir():
        command = f"python -m asr_ascend.data.importing folder {path} --out data/mine"
        return f" A manifest of the recordings in a folder is made by: {command}"
    folder = Path(path).parent.as_posix()
    if folder not in _EMBEDDED:
        return ""
    command = f"python -m asr_ascend.data.synthesis --out {folder}{_EMBEDDED[folder]}"
    return f" The embedded corpus is made by: {command}"


def load_manifest(path: str | os.PathLike[str]) -> list[Utterance]:
    """Reads and checks every line of a JSONL manifest, and returns its utterances in order.

    Keys: `id`, `audio_filepath` (absolute or relative to the manifest), `text`, `duration` (s).
    Optional: `speaker`, `token_start_ms` (one per character of `text`) and `offset` (s; without it
    the utterance is the whole file). Other keys and blank lines are ignored. Empty text and a
    duration of 0 pass here; training skips and counts such utterances.

    Raises:
        ManifestError: lists every problem of every line: bad JSON, keys missing or of another
            type, an id used twice, a file that is not there, a duration or offset that is negative
            or not finite, times that do not match the text; or the manifest is missing or empty.
    """
    manifest = user_path(path).absolute()
    try:
        lines = manifest.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        made_by = "" if manifest.is_file() else _made_by(path)
        told = f"it cannot be read: {reason}" + (f".{made_by}" if made_by else "")
        raise ManifestError(manifest, [told]) from error
    utterances: list[Utterance] = []
    problems: list[str] = []
    line_of_id: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        found: list[str] = []
        record = _parse(line, found)
        if record is not None:
            _check(record, manifest.parent, found)
            first = line_of_id.setdefault(str(record.get("id")), number)
            if "id" in record and first != number:
                found.append(f"`id` '{record['id']}' is already used on line {first}")
        problems += [f"line {number}: {text}" for text in found]
        if record is not None and not found:
            utterances.append(_utterance(record, manifest.parent))
    if not problems and not utterances:
        problems = ["it holds no utterance"]
    if problems:
        raise ManifestError(manifest, problems)
    return utterances


def write_manifest(path: str | os.PathLike[str], utterances: Iterable[Utterance]) -> None:
    """Writes a JSONL manifest in one step: readers see the old file or the whole new one.

    Audio below the manifest's folder is written relative to it, other audio absolute.
    """
    manifest = Path(path).absolute()
    write_json_lines(manifest, (_record(utterance, manifest.parent) for utterance in utterances))


def _parse(line: str, found: list[str]) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        found.append(f"it is not JSON ({error.msg} at column {error.colno})")
        return None
    if not isinstance(record, dict):
        found.append(f"it must be a JSON object, but is {_kind(record)}")
        return None
    return record


def _check(record: dict[str, Any], folder: Path, found: list[str]) -> None:
    for key in ("id", "audio_filepath", "text", "duration"):
        if key not in record:
            found.append(f"`{key}` is missing")
    for key in ("id", "audio_filepath", "text", "speaker"):
        optional = key == "speaker" and record.get(key) is None
        if key in record and not optional and not isinstance(record[key], str):
            found.append(f"`{key}` must be a string, but is {_kind(record[key])}")
    for key in ("id", "audio_filepath"):
        if record.get(key) == "":
            found.append(f"`{key}` must not be empty")
    for key in ("duration", "offset"):
        if key not in record or (key == "offset" and record[key] is None):
            continue
        seconds = record[key]
        if not _is_number(seconds):
            found.append(f"`{key}` must be a number of seconds, but is {_kind(seconds)}")
        elif not math.isfinite(seconds) or seconds < 0:
            found.append(f"`{key}` must be finite and not negative, but is {seconds}")
    audio = record.get("audio_filepath")
    if isinstance(audio, str) and audio and not (folder / audio).is_file():
        found.append(f"`audio_filepath` '{audio}' is not a file")
    if record.get("token_start_ms") is not None:
        _check_times(record["token_start_ms"], record.get("text"), found)


def _check_times(times: Any, text: Any, found: list[str]) -> None:
    if not isinstance(times, list) or not all(_is_number(time) for time in times):
        found.append("`token_start_ms` must be a list of numbers")
        return
    if isinstance(text, str) and len(times) != len(text):
        found.append(
            f"`token_start_ms` must have one time per character of `text` ({len(text)}), "
            f"but has {len(times)}"
        )
    if any(not math.isfinite(time) or time < 0 for time in times) or times != sorted(times):
        found.append("`token_start_ms` must be finite, not negative and in order")


def _utterance(record: dict[str, Any], folder: Path) -> Utterance:
    times = record.get("token_start_ms")
    offset = record.get("offset")
    return Utterance(
        id=record["id"],
        audio_path=folder / record["audio_filepath"],
        text=record["text"],
        duration=float(record["duration"]),
        speaker=record.get("speaker"),
        token_start_ms=None if times is None else tuple(float(time) for time in times),
        offset=None if offset is None else float(offset),
    )


def _record(utterance: Utterance, folder: Path) -> dict[str, Any]:
    audio = utterance.audio_path
    relative = audio.relative_to(folder) if audio.is_relative_to(folder) else audio
    record: dict[str, Any] = {
        "id": utterance.id,
        "audio_filepath": relative.as_posix(),
        "text": utterance.text,
        "duration": utterance.duration,
    }
    if utterance.offset is not None:
        record["offset"] = utterance.offset
    if utterance.speaker is not None:
        record["speaker"] = utterance.speaker
    if utterance.token_start_ms is not None:
        record["token_start_ms"] = list(utterance.token_start_ms)
    return record


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")
