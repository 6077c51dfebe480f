"""Training that is killed and resumed is an unbroken training.

With data workers, several ranks, accumulation, and fine-tuning with replay.
"""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch

from asr_ascend.checkpoints.checkpoint import read_checkpoint
from tests.support.tiny_runs import TINY, command, run, write_corpus

ROOT = str(Path(__file__).resolve().parents[2])
SETTINGS = (
    *TINY,
    "data.train_manifest=corpus/tones.jsonl",
    "trainer.max_steps=14",
    "trainer.val_every_steps=5",
    "trainer.checkpoint_every_steps=2",
    "trainer.save_top_k=2",
    "trainer.chunk_frames=[0,4,8]",
    "loss.ctc_first=0.2",
    "model.dropout=0.1",
    "data.noise_probability=0.5",
    "data.noise_clips=4",
    "data.spec_augment={}",
    "trainer.ramp_epochs=2",
)
WORKERS = ("data.num_workers=2",)
RANKS = ("trainer.devices=2", "trainer.strategy=ddp")
ACCUMULATION = ("trainer.accumulate_grad_batches=3",)
REPLAY = (
    "init_from=base/checkpoints/last.ckpt",
    "data.replay_manifest=corpus/tones.jsonl",
    "data.replay_share=0.3",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    write_corpus(folder / "corpus")
    base = (*SETTINGS, "output_dir=base", "trainer.max_steps=2")
    done = run("train", *base, folder=folder)
    assert done.returncode == 0, done.stderr
    return folder


def train(folder: Path, out: str, *settings: str) -> None:
    """Trains to the end; in a process of its own where ranks start processes themselves."""
    typed = (*SETTINGS, *settings, f"output_dir={out}")
    if not set(RANKS) & set(settings):
        done = run("train", *typed, folder=folder)
        assert done.returncode == 0, done.stderr
        return
    env = {**os.environ, "PYTHONPATH": ROOT}
    process = subprocess.run(
        command("train", *typed), cwd=folder, env=env, capture_output=True, timeout=300
    )
    assert process.returncode == 0, process.stderr.decode()


def kill(folder: Path, out: str, step: int, later: float, *settings: str) -> None:
    """Trains until the log holds a step, and `later` seconds after it kills the first process."""
    env = {**os.environ, "PYTHONPATH": ROOT}
    typed = command("train", *SETTINGS, *settings, f"output_dir={out}")
    process = subprocess.Popen(
        typed, cwd=folder, env=env, stderr=subprocess.DEVNULL, start_new_session=True
    )
    log = folder / out / "metrics.csv"
    deadline = time.monotonic() + 300
    while not (log.is_file() and f"\n{step}," in log.read_text(encoding="utf-8")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.005)
    time.sleep(later)
    process.kill()
    process.wait()
    # Other ranks end by themselves, since their partner is gone; a test doesn't wait for that.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def assert_same(folder: Path, whole: str, broken: str) -> None:
    logs = [(folder / out / "metrics.csv").read_text(encoding="utf-8") for out in (whole, broken)]
    assert logs[1] == logs[0]
    checkpoints = [folder / out / "checkpoints" for out in (whole, broken)]
    ends = [read_checkpoint(path / "last.ckpt") for path in checkpoints]
    assert ends[0]["global_step"] == ends[1]["global_step"] == 14
    for name, value in ends[0]["state_dict"].items():
        assert torch.equal(value, ends[1]["state_dict"][name]), name
    kept = [sorted(file.name for file in path.iterdir()) for path in checkpoints]
    assert kept[1] == kept[0]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("workers", WORKERS),
        ("accumulation", ACCUMULATION),
        ("replay", REPLAY),
        pytest.param("ranks", RANKS, marks=pytest.mark.slow),
        pytest.param("all", (*WORKERS, *RANKS, *ACCUMULATION, *REPLAY), marks=pytest.mark.slow),
    ],
)
def test_one_kill(folder, name, settings):
    whole, broken = f"{name}-whole", f"{name}-broken"
    train(folder, whole, *settings)
    kill(folder, broken, 7, 0.0, *settings)
    train(folder, broken, *settings, "resume=true")
    assert_same(folder, whole, broken)
