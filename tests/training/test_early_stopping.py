"""Training that ends when the validation CER has stopped falling."""

import json
import math
from types import SimpleNamespace

import pytest
import torch

from asr_ascend.training.saving import EarlyStopping
from tests.support.tiny_runs import TINY, run


def validate(stopping, *cers):
    """Where training stands after validations with these CERs."""
    trainer = SimpleNamespace(callback_metrics={}, should_stop=False)
    for cer in cers:
        trainer.callback_metrics["valid_cer"] = torch.tensor(cer)
        stopping.on_validation_end(trainer, None)
    return trainer.should_stop


@pytest.mark.parametrize(
    ("cers", "min_delta", "stops"),
    [
        ([0.5, 0.6, 0.5], 0.0, True),
        ([0.5, 0.6, 0.4, 0.45], 0.0, False),
        ([0.5, 0.6, 0.4, 0.4, 0.41], 0.0, True),
        ([0.5, 0.495, 0.492], 0.01, True),
        ([0.5, 0.495, 0.485], 0.01, False),
        # Nothing is decoded while CTC trains alone.
        ([math.nan, math.nan, math.nan, 0.9], 0.0, False),
        ([0.5, math.nan, 0.6, math.nan], 0.0, False),
    ],
)
def test_it_stops_after_two_validations_without_a_new_best(cers, min_delta, stops):
    assert validate(EarlyStopping(2, min_delta), *cers) == stops


def test_a_resumed_run_goes_on_counting():
    first = EarlyStopping(2)
    validate(first, 0.5, 0.6)
    again = EarlyStopping(2)
    again.load_state_dict(first.state_dict())
    assert (again.best, again.waited) == (pytest.approx(0.5), 1)
    assert validate(again, 0.55)
    assert again.describe() == (
        "The validation CER has not fallen below 50.00% for 2 validations: training ends early."
    )


def test_a_run_killed_after_its_last_validation_trains_no_further():
    first = EarlyStopping(1)
    validate(first, 0.5, 0.6)
    again = EarlyStopping(1)
    again.load_state_dict(first.state_dict())
    trainer = SimpleNamespace(should_stop=False)
    again.on_train_start(trainer, None)
    assert trainer.should_stop


def test_a_run_stops_and_says_why(tiny_run, tmp_path):
    settings = (*TINY, f"data.train_manifest={tiny_run.manifest}", "loss.blank=-1")
    settings += (f"init_from={tiny_run.checkpoint}", "loss.ctc_first=0", "optimizer.lr=1e-9")
    settings += ("trainer.val_every_steps=2", "trainer.early_stop_patience=2")
    done = run("train", *settings, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert lines[-3] == (
        "The validation CER has not fallen below 0.00% for 2 validations: training ends early."
    )
    assert lines[-1].startswith("6 steps in ")
    record = json.loads((tmp_path / "outputs" / "smoke" / "run.json").read_text(encoding="utf-8"))
    assert (record["finished"], record["steps"]) == (True, 6)
    last = tmp_path / "outputs" / "smoke" / "checkpoints" / "last.ckpt"
    saved = torch.load(last, weights_only=True)
    assert saved["callbacks"]["EarlyStopping"] == {"best": 0.0, "waited": 2}
    # As if it had been killed before it could write that it had finished. Its best checkpoints are
    # not in the new folder, where none is averaged.
    again = run("train", *settings, f"ckpt_path={last}", "output_dir=again", folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert again.stderr.splitlines()[-1].startswith("6 steps in ")
