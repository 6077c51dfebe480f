"""While a training runs: recordings vanish, the disk fills up, another training starts."""

import errno
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from asr_ascend.checkpoints import checkpoint
from asr_ascend.checkpoints.checkpoint import read_checkpoint
from tests.support.tiny_runs import TINY, command, run, write_corpus

ROOT = str(Path(__file__).resolve().parents[2])
SETTINGS = (
    *TINY,
    "data.train_manifest=corpus/tones.jsonl",
    "data.cache_audio_bytes=0",
    "loss.ctc_first=0",
    "trainer.val_every_steps=1000",
    "trainer.checkpoint_every_steps=3",
    "trainer.max_steps=60",
)


def train_until(folder: Path, monkeypatch: pytest.MonkeyPatch, step: int, then) -> object:
    """Trains; after `step` steps calls `then`."""
    from asr_ascend.training.module import TransducerModule

    real = TransducerModule.training_step

    def watched(self, batch, index):
        if self.global_step == step:
            then()
        return real(self, batch, index)

    monkeypatch.setattr(TransducerModule, "training_step", watched)
    return run("train", *SETTINGS, folder=folder)


@pytest.mark.filterwarnings("ignore:Skipped utterance")
def test_recordings_that_vanish_end_a_training_in_a_sentence(tmp_path, monkeypatch):
    write_corpus(tmp_path / "corpus")

    def vanish() -> None:
        for path in (tmp_path / "corpus").iterdir():
            path.unlink()

    done = train_until(tmp_path, monkeypatch, 10, vanish)
    told = done.stderr.splitlines()[-1]
    assert done.returncode == 2
    assert told.startswith("Error: Training hears nothing any more: of steps 1")
    assert "Traceback" not in done.stderr
    assert read_checkpoint(tmp_path / "outputs/smoke/checkpoints/last.ckpt")["global_step"] < 18


@pytest.mark.filterwarnings("ignore:Skipped utterance")
def test_one_recording_that_vanishes_is_left_out(tmp_path, monkeypatch):
    write_corpus(tmp_path / "corpus")
    done = train_until(tmp_path, monkeypatch, 10, (tmp_path / "corpus" / "3.wav").unlink)
    assert done.returncode == 0, done.stderr
    assert "Skipped as their audio was read, in all epochs: " in done.stderr


def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path, monkeypatch):
    write_corpus(tmp_path / "corpus")
    real = checkpoint._save

    def full(contents, stream):
        if contents["global_step"] < 9:
            return real(contents, stream)
        stream.write(b"half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint, "_save", full)
    done = run("train", *SETTINGS, folder=tmp_path)
    last = "outputs/smoke/checkpoints/last.ckpt"
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"Error: {last}: No space left on device."
    assert "Traceback" not in done.stderr
    assert read_checkpoint(tmp_path / last)["global_step"] == 6
    assert [path.name for path in (tmp_path / last).parent.iterdir()] == ["last.ckpt"]


def test_two_processes_cannot_train_in_one_folder(tmp_path):
    """The second is refused and changes nothing; when the first was killed, it may."""
    write_corpus(tmp_path / "corpus")
    env = {**os.environ, "PYTHONPATH": ROOT}
    typed = command("train", *SETTINGS, "trainer.max_steps=100000", "loss.ctc_first=0")
    first = subprocess.Popen(typed, cwd=tmp_path, env=env, stderr=subprocess.DEVNULL)
    log = tmp_path / "outputs" / "smoke" / "metrics.csv"
    deadline = time.monotonic() + 120
    try:
        while not (log.is_file() and "\n3," in log.read_text(encoding="utf-8")):
            assert first.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        second = run("train", *SETTINGS, "force=true", folder=tmp_path)
        assert second.returncode == 2
        assert second.stderr.splitlines()[-1] == (
            "Error: `output_dir` must be a folder in which no other training runs, but one runs in "
            "outputs/smoke; name=... gives this run a folder of its own."
        )
        assert first.poll() is None
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    third = run("train", *SETTINGS, "force=true", "trainer.max_steps=2", folder=tmp_path)
    assert third.returncode == 0, third.stderr
