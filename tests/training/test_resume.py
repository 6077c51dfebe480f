"""A run that is killed in the middle of an epoch goes on as if it had not been."""

import os
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
    deadline = time.monotonic() + 500
    while not (log.is_file() and f"\n{steps}," in log.read_text(encoding="utf-8")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


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
    expected = unbroken / "outputs" / "smoke"
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
