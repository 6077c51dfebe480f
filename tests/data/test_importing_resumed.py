"""Imports that are killed, repeated or parallel: nothing half written, nothing read twice."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from asr_ascend.data.importing import command as importing
from asr_ascend.data.importing import inspection, inspection_pool
from asr_ascend.data.importing.inspection import AudioFacts
from asr_ascend.data.importing.inspection_pool import InspectionError, inspect_all
from asr_ascend.data.importing.source import Entry
from asr_ascend.data.manifest import load_manifest
from tests.support.speech_like import write_wav


@pytest.fixture
def linked(tmp_path):
    """Function (count, seconds) -> a JSONL list of as many files, all links to one recording."""

    def make(count, seconds):
        original = write_wav(tmp_path / "original.wav", seconds)
        (tmp_path / "wav").mkdir()
        lines = []
        for number in range(count):
            name = f"wav/u{number:04d}.wav"
            (tmp_path / name).hardlink_to(original)
            lines.append(json.dumps({"id": str(number), "audio": name, "text": "x"}) + "\n")
        (tmp_path / "list.jsonl").write_text("".join(lines), encoding="utf-8")
        return tmp_path / "list.jsonl"

    return make


@pytest.fixture
def inspected(monkeypatch):
    """Names of the files that this process inspects."""
    names = []
    inspect = inspection_pool.inspect_audio

    def noted(path, offset, duration):
        names.append(path.name)
        return inspect(path, offset, duration)

    monkeypatch.setattr(inspection_pool, "inspect_audio", noted)
    return names


def run(source, out, *options):
    return importing.main(["jsonl", str(source), "--out", str(out), "--workers", "1", *options])


def children(pid):
    """Processes below a process, at any depth."""
    found = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in listing.read_text().split():
            found += [int(child), *children(int(child))]
    return found


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc to see processes")
def test_killed_midway_leaves_nothing_half_written_and_goes_on(linked, tmp_path, inspected):
    count = 1500
    source, out = linked(count, 6.0), tmp_path / "out"
    notes = out / importing.NOTES
    command = [sys.executable, "-m", "asr_ascend.data.importing", "jsonl", str(source)]
    process = subprocess.Popen([*command, "--out", str(out), "--workers", "2"])
    try:
        limit = time.monotonic() + 300
        while not (notes.is_file() and notes.stat().st_size > 0):
            assert process.poll() is None and time.monotonic() < limit
            time.sleep(0.005)
        workers = children(process.pid)
        assert len(workers) >= 2
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert [path.name for path in out.iterdir()] == [importing.NOTES]
    done = [line for line in notes.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    assert 16 <= len(done) < count
    limit = time.monotonic() + 120
    while any(alive(pid) for pid in workers) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not [pid for pid in workers if alive(pid)]

    assert run(source, out) == 0
    assert len(inspected) == len(set(inspected)) == count - len(done)
    assert [u.id for u in load_manifest(out / "list.jsonl")] == [str(n) for n in range(count)]
    assert {u.duration for u in load_manifest(out / "list.jsonl")} == {6.0}


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc to see processes")
def test_workers_that_are_starting_say_nothing_of_an_interrupt(linked, tmp_path):
    source, out = linked(6000, 6.0), tmp_path / "out"
    command = [sys.executable, "-m", "asr_ascend.data.importing", "jsonl", str(source)]
    process = subprocess.Popen(
        [*command, "--out", str(out), "--workers", "2"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    limit = time.monotonic() + 300
    while len(workers := children(process.pid)) < 3:  # two, and multiprocessing's own
        assert process.poll() is None and time.monotonic() < limit
        time.sleep(0.02)
    time.sleep(0.1)  # amid their imports
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C in a terminal
    told = process.communicate(timeout=300)[1]
    assert process.returncode == 130, told
    assert "Traceback" not in told
    assert told.endswith("Interrupted; the same command goes on from here.\n")
    while any(alive(pid) for pid in workers) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not [pid for pid in workers if alive(pid)]
    assert [path.name for path in out.iterdir()] == [importing.NOTES]


def test_only_what_is_new_or_changed_is_read_again(linked, tmp_path, inspected):
    source, out = linked(6, 0.5), tmp_path / "out"
    assert run(source, out) == 0
    assert len(inspected) == 6
    inspected.clear()
    assert run(source, out) == 0
    assert inspected == []
    (tmp_path / "wav/u0003.wav").unlink()
    write_wav(tmp_path / "wav/u0003.wav", 0.75)
    assert run(source, out) == 0
    assert inspected == ["u0003.wav"]
    durations = [u.duration for u in load_manifest(out / "list.jsonl")]
    assert durations == [0.5, 0.5, 0.5, 0.75, 0.5, 0.5]


def test_a_file_that_may_be_read_now_is_read(linked, tmp_path, capsys, monkeypatch):
    source, out = linked(2, 0.5), tmp_path / "out"
    reader, access = inspection.AudioReader, os.access

    def refused(path):
        if path.name == "u0001.wav":
            raise PermissionError(13, "Permission denied", str(path))
        return reader(path)

    # As another user would find it: root may read everything.
    monkeypatch.setattr(inspection, "AudioReader", refused)
    monkeypatch.setattr(
        os, "access", lambda path, mode: "u0001" not in str(path) and access(path, mode)
    )
    assert run(source, out) == 1
    told = f"    1 ({tmp_path / 'wav/u0001.wav'}): Permission denied\n"
    assert told in capsys.readouterr().out
    monkeypatch.undo()
    assert run(source, out) == 0
    assert len(load_manifest(out / "list.jsonl")) == 2


def test_a_line_of_the_notes_that_was_cut_off_costs_one_file(linked, tmp_path, inspected):
    source, out = linked(3, 0.5), tmp_path / "out"
    assert run(source, out) == 0
    notes = out / importing.NOTES
    notes.write_bytes(notes.read_bytes()[:-25])
    inspected.clear()
    assert run(source, out) == 0
    assert inspected == ["u0002.wav"]
    inspected.clear()
    assert run(source, out) == 0
    assert inspected == []


def test_processes_find_what_one_process_finds(linked, tmp_path):
    source = linked(100, 0.1)
    for name in ("wav/u0017.wav", "wav/u0090.wav"):
        (tmp_path / name).unlink()
        (tmp_path / name).write_text("not audio at all")
    (tmp_path / "wav/u0050.wav").unlink()
    for workers in ("1", "2"):
        options = ["--fix", "drop", "--workers", workers]
        assert (
            importing.main(["jsonl", str(source), "--out", str(tmp_path / workers), *options]) == 0
        )
    for name in ("list.jsonl", "list.report.json"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()
    assert len(load_manifest(tmp_path / "2/list.jsonl")) == 97


def die(path):
    """Stands for a worker that the system kills."""
    os._exit(9)


def test_a_worker_that_is_killed_is_told_of(tmp_path):
    entries = [Entry(str(n), tmp_path / f"{n}.wav", "x", "list", render=die) for n in range(80)]
    with pytest.raises(InspectionError) as caught:
        inspect_all(entries, tmp_path / "notes", workers=2)
    assert str(caught.value) == (
        "A process that inspects recordings was killed, perhaps for want of memory; run the "
        "command again to go on, with fewer --workers if it repeats."
    )


def test_interrupting_says_how_to_go_on(linked, tmp_path, capsys, monkeypatch):
    source = linked(40, 0.1)
    inspect, calls = inspection_pool.inspect_audio, []

    def interrupted(path, offset, duration) -> AudioFacts:
        calls.append(path)
        if len(calls) == 35:
            raise KeyboardInterrupt
        return inspect(path, offset, duration)

    monkeypatch.setattr(inspection_pool, "inspect_audio", interrupted)
    assert run(source, tmp_path / "out") == 130
    told = capsys.readouterr()
    assert told.err.endswith("Interrupted; the same command goes on from here.\n")
    calls.clear()
    assert run(source, tmp_path / "out") == 0
    assert len(calls) == 8  # two whole tasks of 16 were noted
