"""A team's own noise recordings, checked and made into a bank."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from asr_ascend.data.audio import AudioError, AudioReader, print_warnings, resample
from asr_ascend.data.audio_files.finding import find_audio
from asr_ascend.data.clip_folder import NoiseError, Record, make_folder, write_clip
from asr_ascend.system.progress import progress_bar

SILENCE_DB = -80.0  # rms below full scale: under the noise of any recorder


def import_recordings(
    source: str | Path,
    folder: str | Path,
    channel: int | str | None = None,
    min_seconds: float = 1.0,
    piece_seconds: float = 20.0,
    sample_rate_hz: int = 16000,
    skip_bad: bool = False,
    workers: int = 1,
    force: bool = False,
) -> list[str]:
    """Makes a `StoredBank` of recordings: one channel, resampled, cut into pieces.

    Args:
        source: a folder, searched with its subfolders, or a JSONL manifest with `audio_filepath`.
        folder: of the bank.
        channel: of recordings with several: a number from 0, or "mean"; None: an error for such.
        min_seconds: shorter recordings are a problem; so short a rest of one is left out.
        piece_seconds: longest piece.
        sample_rate_hz: of the bank.
        skip_bad: leaves out recordings with a problem instead of stopping.
        workers: processes at a time; the samples do not depend on it.
        force: makes it again even if another bank is there.

    Returns:
        The problems of the recordings that were left out, one sentence each.

    Raises:
        NoiseError: every problem of every recording, unless they may be left out; no recording
            without one; or the folder holds something else.
        ValueError: an argument out of range.
    """
    if not 0 < min_seconds <= piece_seconds:
        raise ValueError(
            f"`min_seconds` must be above 0 and at most `piece_seconds` ({piece_seconds:g}), "
            f"but is {min_seconds:g}."
        )
    problems: list[str] = []
    kept: list[Path] = []
    if workers < 1:
        raise ValueError(f"`workers` must be at least 1, but is {workers}.")
    # The bank may lie within the folder of the recordings; its clips are none of them.
    inside = Path(folder).absolute()
    found = [path for path in find_recordings(source) if inside not in path.absolute().parents]
    for path, problem in _checked(found, channel, min_seconds, workers):
        if problem is None:
            kept.append(path)
        else:
            problems.append(problem)
    if problems and not skip_bad:
        raise NoiseError(problems)
    if not kept:
        raise NoiseError([*problems, f"{source} must have a usable recording, but has none."])
    settings = {
        "made_by": "recordings 1",
        "recordings": [[str(path.absolute()), path.stat().st_size] for path in kept],
        "channel": channel,
        "min_seconds": min_seconds,
        "piece_seconds": piece_seconds,
        "sample_rate_hz": sample_rate_hz,
    }
    jobs = [
        {**settings, "path": str(path), "number": number, "recordings": None}
        for number, path in enumerate(kept)
    ]
    make_folder(Path(folder), settings, jobs, cut_recording, workers, force, "Importing noise")
    return problems


def find_recordings(source: str | Path) -> list[Path]:
    """Finds the audio files of a folder (with its subfolders) or of a JSONL manifest, by name.

    Raises:
        NoiseError: there is no recording, or a manifest's line has no `audio_filepath`.
    """
    root = Path(source).expanduser()
    if root.is_dir():
        found = find_audio(root)
        paths = sorted(found.audio)
        for told in (*map(_closed, found.closed), found.left_out()):
            if told:
                print(f"Warning: {told}", file=sys.stderr)
    elif root.is_file():
        paths = _manifest_paths(root)
    else:
        raise NoiseError([f"{root} must be a folder or a JSONL manifest, but is not there."])
    if not paths:
        raise NoiseError([f"{root} must have a recording, but has none."])
    return paths


def _closed(error: OSError) -> str:
    return f"The folder {error.filename} can't be read: {error.strerror}."


def _checked(
    paths: Sequence[Path], channel: int | str | None, min_seconds: float, workers: int
) -> Iterator[tuple[Path, str | None]]:
    """Yields each path with its problem, in order.

    Threads do the work: libsndfile runs without Python's lock.
    """
    check = functools.partial(check_recording, channel=channel, min_seconds=min_seconds)
    pool = ThreadPoolExecutor(workers)
    try:
        with progress_bar("Reading recordings", len(paths)) as advance:
            for path, problem in zip(paths, pool.map(check, paths), strict=True):
                yield path, problem
                advance(1)
    finally:
        pool.shutdown(cancel_futures=True)


def check_recording(path: Path, channel: int | str | None, min_seconds: float) -> str | None:
    """Returns what is wrong with a recording, in one sentence, or None."""
    try:
        with AudioReader(path) as reader:
            if reader.channels > 1 and channel is None:
                return (
                    f"{path} has {reader.channels} channels: choose one with --channel 0 to "
                    f"{reader.channels - 1}, or --channel mean."
                )
            if isinstance(channel, int) and channel >= reader.channels:
                return (
                    f"{path} must have a channel {channel}, counted from 0, but has "
                    f"{reader.channels} of them."
                )
            samples, power, finite = _scan(reader, channel)
            print_warnings(path, reader.warnings)
    except AudioError as error:
        return f"{error}."
    except OSError as error:
        return f"{path} cannot be read as audio: {error.strerror or error}."
    seconds = samples / reader.rate_hz
    if seconds < min_seconds:
        return f"{path} must last at least {min_seconds:g} s, but lasts {seconds:.2f} s."
    if not finite:
        return f"{path} holds NaN or infinity."
    if power < 10 ** (SILENCE_DB / 10):
        return f"{path} is silent: it stays below {SILENCE_DB:g} dB of full scale."
    return None


def cut_recording(folder: Path, job: dict[str, Any]) -> list[Record]:
    """Writes the pieces of one recording except for silent ones, and returns their records."""
    path = Path(job["path"])
    records: list[Record] = []
    with AudioReader(path) as reader:
        length = round(job["piece_seconds"] * reader.rate_hz)
        shortest = job["min_seconds"] * reader.rate_hz
        for number, block in enumerate(reader.blocks(length)):
            wave = _one_channel(block, job["channel"])
            silent = float(wave.double().square().mean()) < 10 ** (SILENCE_DB / 10)
            if len(wave) < shortest or silent:
                continue
            wave = resample(wave, reader.rate_hz, job["sample_rate_hz"])
            name = f"recording-{job['number']:04d}-{number:04d}.wav"
            gain_db = write_clip(folder / name, wave, job["sample_rate_hz"])
            records.append(
                {
                    "file": name,
                    "samples": len(wave),
                    "recording": path.name,
                    "start_seconds": number * job["piece_seconds"],
                    "gain_db": round(gain_db, 2),
                }
            )
    return records


def _manifest_paths(manifest: Path) -> list[Path]:
    problems: list[str] = []
    paths: list[Path] = []
    for number, line in enumerate(manifest.read_text(encoding="utf-8-sig").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            paths.append(manifest.parent / json.loads(line)["audio_filepath"])
        except (ValueError, KeyError, TypeError):
            problems.append(f"{manifest} line {number} must be a JSON object with audio_filepath.")
    if problems:
        raise NoiseError(problems)
    return paths


def _scan(reader: AudioReader, channel: int | str | None) -> tuple[int, float, bool]:
    """Samples, the largest mean square of a second of them, and whether all are finite."""
    samples, loudest, finite = 0, 0.0, True
    for block in reader.blocks(reader.rate_hz):
        wave = _one_channel(block, channel)
        samples += len(wave)
        finite = finite and bool(torch.isfinite(wave).all())
        loudest = max(loudest, float(wave.double().square().mean()))
    return samples, loudest, finite


def _one_channel(block: np.ndarray, channel: int | str | None) -> Tensor:
    if isinstance(channel, int):
        return torch.from_numpy(np.ascontiguousarray(block[:, channel]))
    return torch.from_numpy(block).mean(1)


def parse_channel(text: str) -> int | str:
    """Parses a channel of the command line: "mean" or a number from 0.

    Raises:
        ValueError: `text` is neither.
    """
    if text == "mean":
        return text
    if text.isdecimal():
        return int(text)
    raise ValueError(f"--channel must be a number from 0 or mean, but is {text}.")
