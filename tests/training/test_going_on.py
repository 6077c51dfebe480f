"""A run that ended and goes on with more steps is the run that never ended."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from asr_ascend.checkpoints.checkpoint import read_checkpoint
from asr_ascend.training.position import set_position
from tests.support.tiny_runs import TINY, command, run, write_corpus

# Epochs have four batches. Nothing depends on how many steps there are in all, so that a shorter
# run's steps are the first of a longer one's.
SETTINGS = (
    *TINY,
    "data.train_manifest=corpus/tones.jsonl",
    "loss.ctc_first=0",
    "optimizer.cosine_last=0",
    "trainer.progress_bar=false",
    "trainer.save_top_k=2",
    "trainer.average_top_k=0",
    "trainer.checkpoint_every_steps=100",
    "trainer.chunk_frames=[0,4,8]",
    "trainer.ramp_epochs=2",
    "model.dropout=0.1",
    "data.noise_probability=0.5",
    "data.noise_clips=4",
    "data.spec_augment={}",
)
LAST = "outputs/parts/checkpoints/last.ckpt"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("going_on")
    write_corpus(folder / "corpus")
    return folder


def train(folder, name, *settings):
    done = run("train", *SETTINGS, f"name={name}", *settings, folder=folder)
    assert done.returncode == 0, done.stderr


def train_in_parts(folder, stops, settings, key="max_steps"):
    shutil.rmtree(folder / "outputs" / "parts", ignore_errors=True)
    for part, stop in enumerate(stops):
        more = [f"ckpt_path={LAST}"] if part else []
        train(folder, "parts", *settings, f"trainer.{key}={stop}", *more)


def assert_same_runs(folder):
    whole, parts = (folder / "outputs" / name for name in ("whole", "parts"))
    logs = [(run / "metrics.csv").read_text(encoding="utf-8") for run in (whole, parts)]
    assert logs[1] == logs[0]
    ends = [read_checkpoint(run / "checkpoints" / "last.ckpt") for run in (whole, parts)]
    assert ends[1]["state_dict"].keys() == ends[0]["state_dict"].keys()
    for name, value in ends[0]["state_dict"].items():
        assert torch.equal(value, ends[1]["state_dict"][name]), name
    kept = [sorted(path.name for path in (run / "checkpoints").iterdir()) for run in (whole, parts)]
    assert kept[1] == kept[0]


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        # After every step; at the end of each epoch.
        (["trainer.val_every_steps=100"], [range(1, 10), [4, 8, 9]]),
        # With a validation at the end of a part, and at the end of an epoch.
        (["trainer.val_every_steps=2"], [[3, 4, 8, 9]]),
        # Steps of three batches and of one.
        (["trainer.val_every_steps=2", "trainer.accumulate_grad_batches=3"], [[1, 2, 5, 8, 9]]),
        (["trainer.val_every_steps=100", "data.num_workers=1"], [[3, 9]]),
    ],
)
def test_more_steps_are_those_of_an_unbroken_run(folder, settings, parts):
    train(folder, "whole", *settings, "trainer.max_steps=9", "force=true")
    for stops in parts:
        train_in_parts(folder, stops, settings)
        assert_same_runs(folder)


def test_more_epochs_are_those_of_an_unbroken_run(folder):
    settings = ["trainer.max_steps=-1", "trainer.val_every_steps=6"]
    train(folder, "whole", *settings, "trainer.max_epochs=3", "force=true")
    train_in_parts(folder, [1, 2, 3], settings, "max_epochs")
    assert_same_runs(folder)


@pytest.mark.slow
@pytest.mark.parametrize("stops", [[1, 3, 5], [2, 4, 5]])
def test_more_steps_of_two_ranks_are_those_of_an_unbroken_run(folder, stops):
    """Epochs have two steps, since each rank has a half of the batches."""
    ranks = ("trainer.devices=2", "trainer.strategy=ddp", "trainer.val_every_steps=100")
    shutil.rmtree(folder / "outputs", ignore_errors=True)
    for name, step in [("whole", stops[-1]), *[("parts", stop) for stop in stops]]:
        more = [f"ckpt_path={LAST}"] if (folder / LAST).is_file() and name == "parts" else []
        arguments = (*SETTINGS, *ranks, f"name={name}", f"trainer.max_steps={step}", *more)
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
        process = subprocess.run(
            command("train", *arguments), cwd=folder, env=env, capture_output=True, timeout=300
        )
        assert process.returncode == 0, process.stderr.decode()
    assert_same_runs(folder)


def test_a_checkpoint_that_counts_a_broken_epoch_as_finished_is_set_right():
    """As earlier versions wrote it at the end of a training."""
    progress = {"ready": 2, "started": 2, "processed": 2, "completed": 2}
    batches = {"ready": 2, "started": 2, "processed": 2, "completed": 2}
    fit_loop = {
        "state_dict": {"combined_loader": [{"epoch": 1, "consumed": 2, "num_batches": 4}]},
        "epoch_progress": {"total": dict(progress), "current": dict(progress)},
        "epoch_loop.batch_progress": {"total": dict(batches), "current": dict(batches)},
        "epoch_loop.state_dict": {"_batches_that_stepped": 6},
    }
    set_position(fit_loop)
    for part in ("total", "current"):
        assert fit_loop["epoch_progress"][part] == {**progress, "processed": 1, "completed": 1}
        assert fit_loop["epoch_loop.batch_progress"][part] == {**batches, "completed": 1}
    assert fit_loop["epoch_loop.state_dict"] == {"_batches_that_stepped": 5}


def test_the_last_checkpoint_of_an_earlier_version_is_set_right():
    """Of commit 672daf7, after step 9 of epochs with four batches: one batch of epoch 2 was heard.

    A run of the current version that went on from that checkpoint heard what an unbroken one hears.
    """
    path = Path(__file__).parents[1] / "expected" / "end_of_training_672daf7.json"
    fit_loop = json.loads(path.read_text(encoding="utf-8"))
    assert fit_loop["epoch_progress"]["current"]["completed"] == 3
    set_position(fit_loop)
    epochs = {"ready": 3, "started": 3, "processed": 2, "completed": 2}
    assert fit_loop["epoch_progress"] == {"total": epochs, "current": epochs}
    assert fit_loop["epoch_loop.batch_progress"]["current"]["completed"] == 0
    assert fit_loop["epoch_loop.batch_progress"]["total"]["completed"] == 8
    assert fit_loop["epoch_loop.state_dict"] == {"_batches_that_stepped": 8}
