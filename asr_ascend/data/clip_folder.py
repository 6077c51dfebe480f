"""A folder of wav files and an index, made once: parallel, resumable, each file whole or absent.

While it grows, finished files stand in `.made.jsonl`; the index is written last, so a folder that
has one is complete.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from asr_ascend.data import wav
from asr_ascend.system.atomic import json_line, naming_errors, write_json, write_text
from asr_ascend.system.processes import end_with_parent, interrupts_held
from asr_ascend.system.progress import progress_bar
from asr_ascend.system.threads import single_thread

INDEX = "index.json"
_MADE = ".made.jsonl"
_PEAK = 0.9

Record = dict[str, Any]
#: Makes the files of one job in a folder: (folder, job) to their records.
Maker = Callable[[Path, Any], list[Record]]


class NoiseError(ValueError):
    """Audio or a folder of it that cannot be used; each problem is one sentence."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(problems))


def make_folder(
    folder: Path,
    settings: Record,
    jobs: Sequence[Any],
    make: Maker,
    workers: int = 1,
    force: bool = False,
    title: str = "Making clips",
) -> bool:
    """Makes a folder's files and its index, and continues where an earlier run was interrupted.

    Args:
        folder: where the files go; created if it doesn't exist.
        settings: what the files depend on; kept in the index under "settings".
        jobs: made one by one in any order; the index lists their records in this order.
        make: makes the files of one job, which depend only on the job. Worker processes call it,
            so it must be a function of a module.
        workers: processes at a time.
        force: whether to make every file again, even where it exists.
        title: title of the progress bar on stderr.

    Returns:
        Whether anything had to be made.

    Raises:
        NoiseError: the folder holds files of other settings, or some that are not its own.
        ValueError: `workers` is less than 1.
    """
    if workers < 1:
        raise ValueError(f"`workers` must be at least 1, but is {workers}.")
    folder.mkdir(parents=True, exist_ok=True)
    settings = json.loads(json.dumps(settings))
    if force:
        _clear(folder)
    if (folder / INDEX).is_file():
        if read_index(folder)["settings"] != settings:
            raise _others(folder)
        return False
    made = _made(folder, settings)
    waiting = [number for number in range(len(jobs)) if number not in made]
    with (
        naming_errors(folder / _MADE),
        (folder / _MADE).open("ab") as log,
        progress_bar(title, len(jobs), len(made)) as advance,
    ):
        for number, records in _run(folder, jobs, waiting, make, workers):
            made[number] = records
            log.write(json_line({"job": number, "records": records}))
            log.flush()
            advance(1)
    clips = [record for number in range(len(jobs)) for record in made[number]]
    write_json(folder / INDEX, {"settings": settings, "clips": clips})
    (folder / _MADE).unlink()
    return True


def read_index(folder: Path) -> dict[str, Any]:
    """Reads the index of a complete folder: a dict with "settings" and "clips".

    Raises:
        NoiseError: the folder has no index, or the index can't be read.
    """
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    except FileNotFoundError:
        unfinished = ": it is unfinished, run the command that made it again"
        why = unfinished if (folder / _MADE).is_file() else ""
        raise NoiseError([f"{folder} has no {INDEX}{why}."]) from None
    except (OSError, ValueError) as error:
        raise NoiseError([f"{folder / INDEX} cannot be read: {error}."]) from error
    if not isinstance(index, dict) or not isinstance(index.get("clips"), list):
        raise NoiseError([f"{folder / INDEX} is not the index of a bank."])
    return index


def write_clip(path: Path, wave: Tensor, sample_rate_hz: int) -> float:
    """Writes `wave` (samples,) as 16-bit PCM with a peak of 0.9, and returns the gain in dB."""
    peak = float(wave.abs().max()) if wave.numel() else 0.0
    gain = _PEAK / peak if peak > 0 else 1.0
    samples = (wave * gain * 32767).round().to(torch.int16).numpy()
    wav.write_wav(path, samples, sample_rate_hz)
    return 20 * torch.log10(torch.tensor(gain, dtype=torch.float64)).item()


def _run(
    folder: Path, jobs: Sequence[Any], waiting: Sequence[int], make: Maker, workers: int
) -> Iterator[tuple[int, list[Record]]]:
    if workers == 1 or len(waiting) < 2:
        with single_thread():
            for number in waiting:
                yield number, make(folder, jobs[number])
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        min(workers, len(waiting)), context, initializer=_begin_worker
    ) as pool:
        with interrupts_held():
            futures = {pool.submit(make, folder, jobs[number]): number for number in waiting}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _begin_worker() -> None:
    """Limits a worker to one thread and ends it when its parent ends."""
    torch.set_num_threads(1)
    end_with_parent()


def _made(folder: Path, settings: Record) -> dict[int, list[Record]]:
    """Returns the records, by job, of an interrupted run of the same settings.

    Starts a log where there is none.
    """
    log = folder / _MADE
    if not log.is_file():
        foreign = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
        if foreign:
            raise NoiseError([f"{folder} must be a new or an empty folder, but has {foreign[0]}."])
        write_text(log, json.dumps(settings) + "\n")
        return {}
    for unfinished in folder.glob(".*.*.*"):  # of a run that was killed
        unfinished.unlink()
    first, *lines = log.read_text(encoding="utf-8").split("\n")
    if json.loads(first or "{}") != settings:
        raise _others(folder)
    made = {}
    kept = [first]
    for line in lines:
        with contextlib.suppress(json.JSONDecodeError):  # the last line may be cut off
            entry = json.loads(line)
            if all((folder / record["file"]).is_file() for record in entry["records"]):
                made[entry["job"]] = entry["records"]
                kept.append(line)
    write_text(log, "\n".join(kept) + "\n")
    return made


def _clear(folder: Path) -> None:
    """Removes what this module wrote: the index, its log and the files that they list."""
    records = []
    with contextlib.suppress(NoiseError):
        records = read_index(folder)["clips"]
    log = folder / _MADE
    if log.is_file():
        for line in log.read_text(encoding="utf-8").split("\n")[1:]:
            with contextlib.suppress(json.JSONDecodeError):
                records += json.loads(line)["records"]
    for name in (INDEX, _MADE, *(record["file"] for record in records)):
        (folder / name).unlink(missing_ok=True)


def _others(folder: Path) -> NoiseError:
    return NoiseError(
        [f"{folder} holds files of other settings: choose another folder, or use --force."]
    )
