"""Accumulation that does not divide an epoch's batches: steps, validations, exact resumption."""

import csv

import torch

from asr_ascend.checkpoints.checkpoint import read_checkpoint
from tests.support.tiny_runs import TINY, run, write_corpus

# Four batches an epoch: steps of three batches and of one.
SETTINGS = (
    *TINY,
    "data.train_manifest=corpus/tones.jsonl",
    "loss.ctc_first=0",
    "trainer.max_steps=9",
    "trainer.accumulate_grad_batches=3",
    "trainer.val_every_steps=3",
    "trainer.save_top_k=3",
    "trainer.progress_bar=false",
)


def test_validations_keep_to_optimiser_steps_and_a_run_resumes_from_them(tmp_path):
    write_corpus(tmp_path / "corpus")
    assert run("train", *SETTINGS, "name=whole", folder=tmp_path).returncode == 0
    log = (tmp_path / "outputs" / "whole" / "metrics.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(log.splitlines()))
    assert [int(row["step"]) for row in rows if row["valid_cer"]] == [3, 6, 9]
    heard = [int(row["utterances"]) for row in rows if row["loss"]]
    assert [sum(heard[i : i + 2]) for i in range(0, 8, 2)] == [8, 8, 8, 8]
    checkpoints = tmp_path / "outputs" / "whole" / "checkpoints"
    (third,) = checkpoints.glob("best-step000003-*.ckpt")
    resumed = tmp_path / "outputs" / "resumed"
    resumed.mkdir()
    steps = [line for line in log.splitlines() if line.split(",")[0] in ("step", "1", "2", "3")]
    (resumed / "metrics.csv").write_text("\n".join(steps) + "\n", encoding="utf-8")
    done = run("train", *SETTINGS, "name=resumed", f"ckpt_path={third}", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (resumed / "metrics.csv").read_text(encoding="utf-8") == log
    ends = [
        read_checkpoint(folder / "last.ckpt")["state_dict"]
        for folder in (checkpoints, resumed / "checkpoints")
    ]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
