"""Gradients that are not finite: counted, told, recorded; a training that diverged ends."""

import csv
import json
import math
from dataclasses import replace
from unittest import mock

import pytest
import torch

from asr_ascend.checkpoints.checkpoint import read_checkpoint
from asr_ascend.losses import rnnt_loss_and_grad
from asr_ascend.training.ctc_alignment import first_frames
from asr_ascend.training.module import TransducerModule
from asr_ascend.training.objective import Objective
from asr_ascend.training.saved_batch import read_saved_batch
from tests.support.tiny_runs import TINY, run, write_corpus

SETTINGS = (
    *TINY,
    "data.train_manifest=corpus/tones.jsonl",
    "loss.ctc_first=0",
    "trainer.progress_bar=false",
    "trainer.val_every_steps=100",
)
HELP = (
    "A lower optimizer.lr or trainer.gradient_clip_val, or trainer.precision=32-true, may help.\n"
)


@pytest.fixture
def folder(tmp_path):
    write_corpus(tmp_path / "corpus")
    return tmp_path


def train(folder, bad_steps, *settings):
    """Trains; the gradient of some steps is NaN."""
    whole = TransducerModule.on_before_optimizer_step

    def broken(module, optimizer):
        whole(module, optimizer)
        if module.global_step + 1 in bad_steps:
            next(module.parameters()).grad.fill_(torch.nan)

    with mock.patch.object(TransducerModule, "on_before_optimizer_step", broken):
        return run("train", *SETTINGS, *settings, folder=folder)


def test_a_step_left_out_is_counted_and_recorded(folder):
    done = train(folder, {3, 5}, "trainer.max_steps=6", "trainer.save_top_k=0")
    assert done.returncode == 0, done.stderr
    run_folder = folder / "outputs" / "smoke"
    log = list(csv.DictReader((run_folder / "metrics.csv").open(encoding="utf-8")))
    assert [row["left_out"] for row in log] == ["0", "0", "1", "0", "1", "0"]
    assert [row["grad_norm"] == "nan" for row in log] == [False, False, True, False, True, False]
    assert done.stderr.splitlines()[-3:-1] == [
        "Step 3 is left out, since its gradient is not finite; outputs/smoke/nonfinite.jsonl has "
        "its utterances.",
        "Left out, since their gradient was not finite: 2 steps (outputs/smoke/nonfinite.jsonl)",
    ]
    lines = (run_folder / "nonfinite.jsonl").read_text(encoding="utf-8").splitlines()
    first, second = (json.loads(line) for line in lines)
    assert (first["step"], first["epoch"], second["step"]) == (3, 0, 5)
    assert first["grad_norm"] == "nan"
    assert first["loss"] == log[2]["loss"]
    assert len(first["utterances"]) == int(log[2]["utterances"])
    ids = {"id": first["utterances"][0]["id"], "tokens": first["utterances"][0]["tokens"]}
    texts = [json.loads(line) for line in (folder / "corpus/tones.jsonl").open(encoding="utf-8")]
    assert ids in [{"id": text["id"], "tokens": len(text["text"])} for text in texts]
    assert set(first["values"]) == {"features", "encoder", "ctc_log_probs", "logits"}
    logits = first["values"]["logits"]
    assert logits["not_finite"] == 0
    assert logits["least"] < logits["mean"] < logits["greatest"]
    assert first["weights_not_finite"] == []
    before = read_checkpoint(run_folder / "checkpoints" / "nonfinite.ckpt")
    assert before["global_step"] == 3


def test_a_step_left_out_changes_no_weight(folder):
    settings = ("trainer.max_steps=2", "trainer.save_top_k=0")
    assert train(folder, {2}, *settings, "name=two").returncode == 0
    one = ("trainer.max_steps=1", "trainer.save_top_k=0", "optimizer.cosine_last=0", "name=one")
    assert train(folder, set(), *one).returncode == 0
    weights = [
        read_checkpoint(folder / "outputs" / name / "checkpoints" / "last.ckpt")["state_dict"]
        for name in ("one", "two")
    ]
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name]), name


def test_a_training_with_too_many_ends_and_keeps_the_last_checkpoint(folder):
    settings = ("trainer.max_steps=20", "trainer.max_nonfinite_steps=3")
    done = train(folder, range(5, 20), *settings, "trainer.checkpoint_every_steps=2")
    assert done.returncode == 2
    assert done.stderr.splitlines(keepends=True)[-1] == (
        "Error: Training diverged: 4 of the last 8 steps had a gradient that is not finite, and "
        "were left out; `trainer.max_nonfinite_steps` allows 3. outputs/smoke/nonfinite.jsonl "
        "lists these steps. outputs/smoke/checkpoints/last.ckpt is of a step before. " + HELP
    )
    assert "Traceback" not in done.stderr
    last = folder / "outputs" / "smoke" / "checkpoints" / "last.ckpt"
    assert read_checkpoint(last)["global_step"] == 6


def test_the_count_goes_on_with_the_run(folder):
    settings = ("optimizer.cosine_last=0", "trainer.max_nonfinite_steps=3")
    assert train(folder, {1, 2}, *settings, "trainer.max_steps=3").returncode == 0
    done = train(folder, {4, 5}, *settings, "trainer.max_steps=9")
    assert done.returncode == 2
    assert "Training diverged: 4 of the last 5 steps" in done.stderr


@pytest.mark.parametrize("alignment", ["null", "[2,8]"])
def test_a_rate_far_too_high_ends_in_a_sentence(folder, alignment):
    """In half precision the weights overflow, and NaN reaches the CTC alignment."""
    settings = ("trainer.precision=16-true", "optimizer.lr=10", "optimizer.warmup_steps=0")
    more = ("trainer.max_steps=60", f"loss.alignment_frames={alignment}")
    done = run("train", *SETTINGS, *settings, *more, folder=folder)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("Error: Training diverged: ")
    assert "Traceback" not in done.stderr


def test_weights_that_are_not_finite_are_not_saved(folder):
    """An overflow in the last step of all that no later gradient shows."""
    step = torch.optim.AdamW.step

    def overflowing(optimizer, *args, **kwargs):
        result = step(optimizer, *args, **kwargs)
        with torch.no_grad():
            count = optimizer.state[optimizer.param_groups[0]["params"][0]]["step"]
            if int(count) == 4:
                optimizer.param_groups[0]["params"][0].fill_(torch.inf)
        return result

    more = ("trainer.max_steps=4", "trainer.checkpoint_every_steps=3")
    with mock.patch.object(torch.optim.AdamW, "step", overflowing):
        done = run("train", *SETTINGS, *more, folder=folder)
    assert done.returncode == 2
    assert done.stderr.splitlines(keepends=True)[-1].startswith(
        "Error: Training diverged: by step 4 weights are not finite (model."
    )
    last = folder / "outputs" / "smoke" / "checkpoints" / "last.ckpt"
    assert read_checkpoint(last)["global_step"] == 3
    record = json.loads((folder / "outputs/smoke/run.json").read_text(encoding="utf-8"))
    assert record["finished"] is False


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_no_alignment_where_log_probabilities_are_not_finite(value):
    log_probs = torch.randn(2, 9, 5).log_softmax(-1)
    expected = first_frames(
        log_probs,
        torch.tensor([9, 8]),
        torch.tensor([[1, 2, 3], [4, 4, 0]]),
        torch.tensor([3, 2]),
        0,
    )
    log_probs[0] = value
    found = first_frames(
        log_probs,
        torch.tensor([9, 8]),
        torch.tensor([[1, 2, 3], [4, 4, 0]]),
        torch.tensor([3, 2]),
        0,
    )
    assert found.shape == (2, 3)
    assert torch.equal(found[1], expected[1])
    if value != -torch.inf:
        assert found[0].tolist() == [0, 0, 0]


def wrong_losses(step, change):
    """Patches the losses of a step: `change` gets the batch and the losses, and gives others."""
    whole = Objective.losses

    def changed(objective, batch, chunks, ctc_only):
        steps = changed.steps = changed.steps + 1
        if steps == step:
            return change(lambda: whole(objective, batch, chunks, ctc_only), batch)
        return whole(objective, batch, chunks, ctc_only)

    changed.steps = 0
    return mock.patch.object(Objective, "losses", changed)


def test_a_loss_that_is_nan_ends_training_and_saves_its_batch(folder):
    def broken(losses, batch):
        batch.features[0, 5, 7] = torch.nan
        return losses()

    settings = ("trainer.max_steps=9", "trainer.checkpoint_every_steps=2")
    with wrong_losses(3, broken):
        done = run("train", *SETTINGS, *settings, folder=folder)
    assert done.returncode == 2
    path = "outputs/smoke/nonfinite.step3.pt"
    assert done.stderr.splitlines(keepends=True)[-1] == (
        f"Error: Training diverged: the loss of step 3 is nan; {path} holds its batch, and "
        f"python -m asr_ascend.doctor --replay {path} computes its loss again. "
        "outputs/smoke/checkpoints/last.ckpt is of a step before. " + HELP
    )
    assert "Traceback" not in done.stderr
    saved = read_saved_batch(folder / path)
    texts = [json.loads(line) for line in (folder / "corpus/tones.jsonl").open(encoding="utf-8")]
    known = {text["id"]: len(text["text"]) for text in texts}
    assert [known[name] for name in saved.ids] == saved.target_lengths.tolist()
    about = saved.about
    assert (about["step"], about["epoch"], about["rank"], about["left_out"]) == (3, 0, 0, 1)
    assert math.isnan(about["rnnt_loss"])
    assert saved.statistics["features"]["not_finite"] == 1
    assert saved.statistics["logits"]["not_finite"] > 0
    costs, _ = rnnt_loss_and_grad(saved.logits, **saved.loss_arguments())
    assert costs.isnan().tolist() == [True] + [False] * (len(saved.ids) - 1)
    last = folder / "outputs" / "smoke" / "checkpoints" / "last.ckpt"
    assert read_checkpoint(last)["global_step"] == 2


@pytest.mark.parametrize("joiner", ["fused", "packed"])
def test_the_saved_logits_are_those_of_the_step(folder, joiner):
    """With dropout and a drawn chunk: the loss of the file is the loss that training had."""
    seen = []

    def infinite(losses, batch):
        found = losses()
        seen.append(found.rnnt.item())
        return replace(found, rnnt=found.rnnt * torch.inf)

    more = ("trainer.max_steps=9", f"loss.joiner={joiner}", "model.dropout=0.3")
    with wrong_losses(2, infinite):
        done = run("train", *SETTINGS, *more, folder=folder)
    assert done.returncode == 2
    assert "the loss of step 2 is inf; " in done.stderr
    saved = read_saved_batch(folder / "outputs/smoke/nonfinite.step2.pt")
    assert saved.emission_windows is not None
    costs, _ = rnnt_loss_and_grad(saved.logits, **saved.loss_arguments())
    assert costs.sum().item() == pytest.approx(seen[0], rel=1e-5)
