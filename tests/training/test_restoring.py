"""Going on from a checkpoint that doesn't fit: one sentence, and the run's folder as it was."""

import copy

import pytest
import torch

from asr_ascend.checkpoints.checkpoint import AtomicCheckpointIO, read_checkpoint
from tests.support.tiny_runs import TINY, run, write_corpus

SETTINGS = (*TINY, "loss.ctc_first=0", "trainer.val_every_steps=50", "trainer.progress_bar=false")
INIT = "init_from starts a new run from its weights."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("restoring")
    write_corpus(folder / "corpus")
    settings = (*SETTINGS, "data.train_manifest=corpus/tones.jsonl", "name=base")
    done = run("train", *settings, "trainer.max_steps=2", folder=folder)
    assert done.returncode == 0, done.stderr
    return folder


def shorter(saved):
    saved["optimizer_states"][0]["param_groups"][0]["params"].pop()


def misshapen(saved):
    saved["optimizer_states"][0]["state"][0]["exp_avg"] = torch.zeros(2**10)


def without_position(saved):
    del saved["loops"]["fit_loop"]["state_dict"]["combined_loader"]


def without_loops(saved):
    del saved["loops"]


def other_weights(saved):
    saved["state_dict"].popitem()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (shorter, "ValueError: its optimiser has other parameters than the 50 here"),
        (misshapen, "ValueError: its optimiser has exp_avg of shape (1024,) for parameter 0"),
        (without_position, "KeyError: 'combined_loader'"),
        (without_loops, "KeyError: 'loops'"),
        (other_weights, "RuntimeError: Error(s) in loading state_dict"),
    ],
)
def test_what_does_not_fit_is_one_sentence(folder, change, reason):
    saved = copy.deepcopy(read_checkpoint(folder / "outputs/base/checkpoints/last.ckpt"))
    change(saved)
    path = folder / f"{change.__name__}.ckpt"
    AtomicCheckpointIO().save_checkpoint(saved, path)
    more = ("data.train_manifest=corpus/tones.jsonl", "name=other", "trainer.max_steps=4")
    done = run("train", *SETTINGS, *more, f"ckpt_path={path}", folder=folder)
    assert done.returncode == 2, done.stderr
    told = done.stderr.splitlines()[-1]
    assert told.startswith(f"Error: Training can't go on from {path} ({reason}"), done.stderr
    assert told.endswith(INIT)
    assert "Traceback" not in done.stderr
    assert not list((folder / "outputs/other").rglob("*.ckpt"))
