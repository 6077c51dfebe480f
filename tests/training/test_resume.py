"""A run that is killed in the middle of an epoch goes on as if it had not been."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch

from asr_ascend.checkpoints.checkpoint import read_checkpoint
from tests.support.tiny_runs import TINY, command, write_corpus

ROOT = str(Path(__file__).resolve().parents[2])
RUN = (
    *TINY,
    "trainer.max_steps=26",
    "trainer.val_every_steps=7",
    "trainer.checkpoint_every_steps=3",
    "trainer.save_top_k=2",
    "trainer.early_stop_patience=9",
    "trainer.chunk_frames=[0,4,8]",
    "loss.ctc_first=0.3",
    "model.dropout=0.1",
    "model.predictor_dropout=0.2",
    "data.noise_probability=0.5",
    "data.noise_clips=4",
    "data.spec_augment={}",
    "trainer.ramp_epochs=3",  # its end is the end of step 12
)


def start(folder: Path, manifest: Path, *more: str) -> subprocess.Popen[bytes]:
    arguments = command("train", *RUN, f"data.train_manifest={manifest}", *more)
    env = {**os.environ, "PYTHONPATH": ROOT}
    return subprocess.Popen(arguments, cwd=folder, env=env, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors.decode()


def kill_after_steps(process: subprocess.Popen[bytes], log: Path, steps: int) -> None:
    """Sends SIGKILL as soon as the log of the process holds `steps` steps."""
    wait_for_step(process, log, steps)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def wait_for_step(process: subprocess.Popen[bytes], log: Path, steps: int) -> None:
    deadline = time.monotonic() + 500
    while not (log.is_file() and f"\n{steps}," in log.read_text(encoding="utf-8")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)


def same(first: object, second: object) -> bool:
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[k], second[k]) for k in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    return first == second


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    manifest = write_corpus(folder / "corpus")
    finish(start(folder, manifest))
    return folder


# Epochs have four batches. Killed after 11 steps, a run goes on from step 9, in the middle of an
# epoch; after 13 from 12, the end of one; after 15 from 14 or 15, after a validation.
@pytest.mark.parametrize(
    ("steps", "by"),
    [
        (11, "ckpt_path"),
        (13, "resume"),
        pytest.param(15, "resume", marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_resumes_exactly(unbroken, tmp_path, steps, by):
    manifest = unbroken / "corpus" / "tones.jsonl"
    run = tmp_path / "outputs" / "smoke"
    kill_after_steps(start(tmp_path, manifest), run / "metrics.csv", steps)
    last = run / "checkpoints" / "last.ckpt"
    saved_step = read_checkpoint(last)["global_step"]
    assert 0 < saved_step < 26
    again = f"ckpt_path={last.relative_to(tmp_path)}" if by == "ckpt_path" else "resume=true"
    finish(start(tmp_path, manifest, again))
    assert_same_run(unbroken, tmp_path)


def assert_same_run(unbroken: Path, folder: Path) -> None:
    run, expected = (place / "outputs" / "smoke" for place in (folder, unbroken))
    last = run / "checkpoints" / "last.ckpt"
    log = (run / "metrics.csv").read_text(encoding="utf-8")
    assert log == (expected / "metrics.csv").read_text(encoding="utf-8")
    assert [line.split(",")[0] for line in log.splitlines() if line.endswith(",")] == [
        str(step) for step in range(1, 27)
    ]
    names = sorted(path.name for path in (expected / "checkpoints").iterdir())
    assert sorted(path.name for path in last.parent.iterdir()) == names
    ours, theirs = read_checkpoint(last), read_checkpoint(expected / "checkpoints" / "last.ckpt")
    for part in ("state_dict", "optimizer_states", "lr_schedulers", "callbacks"):
        assert same(ours[part], theirs[part]), part


@pytest.mark.parametrize("steps", [4, pytest.param(6, marks=pytest.mark.slow)])
def test_a_run_that_is_terminated_saves_and_resumes_exactly(unbroken, tmp_path, steps):
    """After 7 steps it validates; after 6 its last checkpoint is just written."""
    manifest = unbroken / "corpus" / "tones.jsonl"
    run = tmp_path / "outputs" / "smoke"
    process = start(tmp_path, manifest)
    wait_for_step(process, run / "metrics.csv", steps)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 143, errors.decode()
    step = read_checkpoint(run / "checkpoints" / "last.ckpt")["global_step"]
    assert step >= steps
    assert errors.decode().splitlines()[-1] == (
        f"Ended by SIGTERM after step {step}; resume=true goes on from the run's last checkpoint."
    )
    finish(start(tmp_path, manifest, "resume=true"))
    assert_same_run(unbroken, tmp_path)


@pytest.mark.slow
def test_a_run_that_is_killed_ten_times_in_a_row_is_an_unbroken_run(unbroken, tmp_path):
    """At moments that have nothing to do with its steps; data comes from two workers."""
    manifest = unbroken / "corpus" / "tones.jsonl"
    log = tmp_path / "outputs" / "smoke" / "metrics.csv"
    draws = random.Random(1)
    for kill in range(10):
        process = start(tmp_path, manifest, "resume=true", "data.num_workers=2")
        wait_for_step(process, log, 2 * kill + 2)
        time.sleep(draws.uniform(0, 0.5))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    finish(start(tmp_path, manifest, "resume=true", "data.num_workers=2"))
    assert_same_run(unbroken, tmp_path)
