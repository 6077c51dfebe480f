"""Inspecting many recordings: in parallel, with progress, and from where a killed run stopped."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from pathlib import Path
from typing import IO

from asr_ascend.data.importing import problems
from asr_ascend.data.importing.inspection import AudioFacts, inspect_audio
from asr_ascend.data.importing.source import Entry, RenderError
from asr_ascend.system.processes import end_with_parent, interrupts_held
from asr_ascend.system.progress import progress_bar

# Part of every key of the notes: what an older version found is not taken over.
_VERSION = 2
_PER_TASK = 16
_WORTH_PROCESSES = 64
Found = list[tuple[str | None, AudioFacts]]


class InspectionError(RuntimeError):
    """The inspection could not go on; the message is one sentence for the user."""


def inspect_all(
    entries: Sequence[Entry], notes: Path, workers: int, name: str = "recordings"
) -> list[AudioFacts]:
    """Measures each entry's audio, rendering it first where the source needs that.

    Results are noted at once by the file's path, size and time of change. Another call with the
    same notes reads only files that are new or have changed.

    Args:
        entries: what to inspect.
        notes: file of known results, created if missing; incomplete lines are ignored.
        workers: processes; no effect on the result.
        name: of what is inspected, shown with the progress.

    Raises:
        InspectionError: a worker died.
    """
    known = _read_notes(notes)
    facts: list[AudioFacts | None] = []
    for entry in entries:
        key = _key(entry)
        facts.append(known.get(key) if key is not None else None)
    waiting = [number for number, found in enumerate(facts) if found is None]
    tasks = [waiting[first : first + _PER_TASK] for first in range(0, len(waiting), _PER_TASK)]
    progress = progress_bar(f"Inspecting {name}", len(entries), len(entries) - len(waiting))
    with _open_notes(notes) as stream, progress as advance:
        for numbers, results in _results(entries, tasks, workers):
            for number, (key, found) in zip(numbers, results, strict=True):
                facts[number] = found
                if key is not None:
                    record = {"key": key, **asdict(found)}
                    stream.write(json.dumps(record, ensure_ascii=False) + "\n")
            stream.flush()
            advance(len(numbers))
    return [found for found in facts if found is not None]


def _results(
    entries: Sequence[Entry], tasks: Sequence[list[int]], workers: int
) -> Iterator[tuple[list[int], Found]]:
    if workers == 1 or sum(map(len, tasks)) < _WORTH_PROCESSES:
        for numbers in tasks:
            yield numbers, _inspect_entries([entries[number] for number in numbers])
        return
    # Spawned: the caller may have threads, and a worker needs nothing of its memory.
    context = multiprocessing.get_context("spawn")
    remaining = iter(tasks)
    running: dict[Future[Found], list[int]] = {}
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=end_with_parent)
    try:
        while True:
            # A bounded number of tasks is in flight, so that a million entries are not copied.
            for numbers in remaining:
                work = [entries[number] for number in numbers]
                with interrupts_held():
                    running[pool.submit(_inspect_entries, work)] = numbers
                if len(running) >= 4 * workers:
                    break
            if not running:
                return
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(done), done.result()
    except BrokenProcessPool as error:
        raise InspectionError(
            "A process that inspects recordings was killed, perhaps for want of memory; run the "
            "command again to go on, with fewer --workers if it repeats."
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _inspect_entries(entries: Sequence[Entry]) -> Found:
    found: Found = []
    for entry in entries:
        facts = _render(entry)
        if facts is None:
            facts = inspect_audio(entry.audio_path, entry.offset, entry.duration)
        found.append((_key(entry), facts))
    return found


def _render(entry: Entry) -> AudioFacts | None:
    """Renders the audio of an entry that has none; returns facts only where that fails."""
    if entry.render is None or entry.audio_path.is_file():
        return None
    try:
        entry.render(entry.audio_path)
    except RenderError as error:
        return AudioFacts(faults=((problems.MISSING, f"it can't be rendered: {error}"),))
    return None


def _key(entry: Entry) -> str | None:
    """Returns the key under which an entry's facts are noted, or None where they can't be noted."""
    if not os.access(entry.audio_path, os.R_OK):
        return None  # leave to read it changes neither its size nor its time
    try:
        status = entry.audio_path.stat()
    except OSError:
        return None
    file = [str(entry.audio_path), status.st_size, status.st_mtime_ns]
    return json.dumps([_VERSION, *file, entry.offset, entry.duration], ensure_ascii=False)


def _read_notes(notes: Path) -> dict[str | None, AudioFacts]:
    known: dict[str | None, AudioFacts] = {}
    if notes.is_file():
        for line in notes.read_text(encoding="utf-8", errors="replace").split("\n"):
            try:
                record = json.loads(line)
                key = record.pop("key")
                faults = tuple((str(kind), str(detail)) for kind, detail in record.pop("faults"))
                known[key] = AudioFacts(**record, faults=faults)
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # the rest of a line that a killed run began
    return known


def _open_notes(notes: Path) -> IO[str]:
    stream = notes.open("a", encoding="utf-8", errors="backslashreplace")
    if stream.tell() > 0:
        stream.write("\n")  # ends a line that a killed run may have left unfinished
    return stream
