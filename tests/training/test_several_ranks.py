"""Two ranks train as one that accumulates over both ranks' batches."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch

from asr_ascend.checkpoints.checkpoint import load_model
from tests.support.tiny_runs import TINY, command, run, write_corpus

ROOT = str(Path(__file__).resolve().parents[2])
STEPS = 6
# Eight utterances and three replayed in four batches, two for each rank: three epochs of two steps.
SETTINGS = (
    *TINY,
    "loss.ctc_first=0.4",
    f"trainer.max_steps={STEPS}",
    "trainer.val_every_steps=3",
    "trainer.freeze=[encoder.subsampling]",
    "data.noise_probability=0.5",
    "data.noise_clips=4",
    "data.replay_share=0.3",
    "data.max_batch_seconds=5.0",
)


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "outputs" / "smoke" / "metrics.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def leave_an_unfinished_run(folder: Path, *settings: str) -> None:
    """A run of another config: no rank may go on with it."""
    assert run("train", *settings, folder=folder).returncode == 0
    path = folder / "outputs" / "smoke" / "run.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**record, "finished": False}), encoding="utf-8")


def test_two_ranks_hear_and_learn_what_one_does(tmp_path):
    manifest = write_corpus(tmp_path / "corpus")
    (tmp_path / "corpus" / "7.wav").write_text("can't be read", encoding="utf-8")
    settings = (*SETTINGS, f"data.train_manifest={manifest}", f"data.replay_manifest={manifest}")
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    ranks = ("trainer.devices=2", "trainer.strategy=ddp", "force=true")
    leave_an_unfinished_run(tmp_path / "two", *settings, "optimizer.lr=0.01", "trainer.max_steps=1")
    two = subprocess.Popen(
        command("train", *settings, *ranks),
        cwd=tmp_path / "two",
        env={**os.environ, "PYTHONPATH": ROOT},
        stderr=subprocess.PIPE,
    )
    one = run("train", *settings, "trainer.accumulate_grad_batches=2", folder=tmp_path / "one")
    _, errors = two.communicate(timeout=300)
    assert one.returncode == 0, one.stderr
    assert two.returncode == 0, errors.decode()
    alone, together = rows(tmp_path / "one"), rows(tmp_path / "two")
    assert [row["step"] for row in together] == [row["step"] for row in alone]
    for ours, theirs in zip(together, alone, strict=True):
        for key in ("utterances", "tokens", "skipped", "chunk_frames", "lr"):
            assert ours[key] == theirs[key], key
        for key in ("loss", "rnnt_loss", "ctc_loss", "grad_norm", "valid_cer"):
            assert (ours[key] == "") == (theirs[key] == "")
            if ours[key]:
                assert float(ours[key]) == pytest.approx(float(theirs[key]), rel=1e-3), key
    steps = [row for row in together if row["loss"]]
    skipped = sum(int(row["skipped"]) for row in steps)
    assert sum(int(row["utterances"]) for row in steps) + skipped == 3 * (8 + 3)
    assert skipped in (
        4,
        5,
    )  # the broken one in every epoch, and once or twice where it is replayed
    line = f"Skipped as their audio was read, in all epochs: {skipped} utterances"
    assert line in one.stderr.splitlines()
    assert line in errors.decode().splitlines()
    first, second = (
        load_model(tmp_path / name / "outputs" / "smoke" / "checkpoints" / "last.ckpt").model
        for name in ("one", "two")
    )
    for (name, value), other in zip(
        first.state_dict().items(), second.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(value, other, rtol=1e-2, atol=1e-3, msg=name)


def test_torchrun_starts_the_same_training(tmp_path):
    """Two processes that torchrun started: rank 0 alone speaks, and the run is Lightning's own."""
    manifest = write_corpus(tmp_path / "corpus")
    settings = (*SETTINGS, f"data.train_manifest={manifest}", f"data.replay_manifest={manifest}")
    settings = (*settings, "trainer.max_steps=3", "trainer.devices=2")
    (tmp_path / "run").mkdir()
    (tmp_path / "alone").mkdir()
    torchrun = [str(Path(sys.executable).with_name("torchrun")), "--standalone"]
    module = command("train", *settings)[1:]
    process = subprocess.Popen(
        [*torchrun, "--nproc-per-node=2", *module],
        cwd=tmp_path / "run",
        env={**os.environ, "PYTHONPATH": ROOT},
        stderr=subprocess.PIPE,
        text=True,
    )
    alone = (*settings, "trainer.devices=1", "trainer.accumulate_grad_batches=2")
    assert run("train", *alone, folder=tmp_path / "alone").returncode == 0
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert errors.count("Vocabulary: ") == 1
    assert errors.count("3 steps in ") == 1
    together, expected = rows(tmp_path / "run"), rows(tmp_path / "alone")
    assert [row["utterances"] for row in together] == [row["utterances"] for row in expected]
    for ours, theirs in zip(together, expected, strict=True):
        for key in ("loss", "ctc_loss", "grad_norm"):
            if theirs[key]:
                assert float(ours[key]) == pytest.approx(float(theirs[key]), rel=1e-3), key


def test_torchrun_with_another_number_of_processes_is_refused(tmp_path):
    """Or each of them would train the same run."""
    environment = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}
    manifest = write_corpus(tmp_path / "corpus")
    with mock.patch.dict(os.environ, environment):
        done = run("train", *SETTINGS, f"data.train_manifest={manifest}", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "Error: `trainer.devices` times `trainer.num_nodes` must be the number of processes that "
        "torchrun started, 2, but is 1 times 1."
    )
