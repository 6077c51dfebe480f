"""Checkpoint files: whole or absent, free of code, checked by version."""

import os
import signal
import subprocess
import sys

import pytest
import torch

from asr_ascend.checkpoints import checkpoint
from asr_ascend.checkpoints.checkpoint import (
    AtomicCheckpointIO,
    CheckpointError,
    load_model,
    read_checkpoint,
)
from asr_ascend.config.model_options import ModelOptions
from asr_ascend.data.tokenizer import Tokenizer
from asr_ascend.models import build_transducer

MODEL = {
    "num_mel_bins": 80,
    "subsampling_channels": 2,
    "encoder_dim": 8,
    "num_layers": 1,
    "num_heads": 2,
    "feedforward_dim": 8,
    "conv_kernel": 3,
    "dropout": 0.0,
    "max_relative_position": 4,
    "predictor": "stateless",
    "predictor_dim": 8,
    "predictor_context": 2,
    "predictor_dropout": 0.0,
    "joiner_dim": 8,
}


@pytest.fixture
def contents():
    tokenizer = Tokenizer.train(["甲乙丙"], blank=-1)
    model = build_transducer(tokenizer.vocab_size, tokenizer.blank, ModelOptions.read(MODEL))
    model.set_cmvn(torch.full((80,), 3.0), torch.full((80,), 2.0))
    return {
        "global_step": 7,
        "state_dict": {f"model.{key}": value for key, value in model.state_dict().items()},
        checkpoint.KEY: checkpoint.describe(tokenizer, {"model": MODEL, "seed": 1}),
    }


def test_a_checkpoint_gives_back_model_tokenizer_cmvn_blank_and_config(contents, tmp_path):
    path = tmp_path / "a" / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint(contents, path)
    assert [file.name for file in path.parent.iterdir()] == ["last.ckpt"]
    trained = load_model(path)
    assert trained.step == 7
    assert trained.options.model == ModelOptions.read(MODEL)
    assert trained.options.seed == 1
    assert trained.tokenizer.blank == trained.model.blank == 4
    assert trained.tokenizer.decode(trained.tokenizer.encode("丙甲")) == "丙甲"
    assert trained.model.feature_mean.tolist() == [3.0] * 80
    assert trained.model.feature_std.tolist() == [2.0] * 80
    assert not trained.model.training
    for key, value in trained.model.state_dict().items():
        assert torch.equal(value, contents["state_dict"][f"model.{key}"])


def test_the_file_loads_with_weights_only(contents, tmp_path):
    AtomicCheckpointIO().save_checkpoint(contents, tmp_path / "last.ckpt")
    loaded = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert loaded[checkpoint.KEY]["format_version"] == 1
    assert loaded[checkpoint.KEY]["blank"] == 4


def test_an_error_while_writing_leaves_the_old_file_alone(contents, tmp_path, monkeypatch):
    path = tmp_path / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint(contents, path)
    before = path.read_bytes()

    def fail(contents, stream):
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OSError, match="No space left on device"):
        AtomicCheckpointIO().save_checkpoint({**contents, "global_step": 8}, path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["last.ckpt"]


def test_a_kill_while_writing_leaves_the_old_file_alone(contents, tmp_path):
    path = tmp_path / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint(contents, path)
    before = path.read_bytes()
    program = f"""
import os, signal, torch
from asr_ascend.checkpoints.checkpoint import AtomicCheckpointIO
def die(contents, stream):
    stream.write(b"half")
    stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)
torch.save = die
AtomicCheckpointIO().save_checkpoint({{}}, {str(path)!r})
"""
    done = subprocess.run([sys.executable, "-c", program], env=os.environ, timeout=500)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    assert read_checkpoint(path)["global_step"] == 7


def test_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(tmp_path / "no.ckpt")
    assert str(caught.value) == f"The checkpoint {tmp_path / 'no.ckpt'} is not a file."


@pytest.mark.parametrize(
    ("foreign", "what"),
    [
        (b"", "is empty."),
        (b"RIFF....WAVE", "is not a checkpoint of asr_ascend."),
        (b"PK\x03\x04broken", "was cut short: its end is missing. Copy it again."),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
            "is a pointer of git-lfs, not the checkpoint itself: run git lfs pull.",
        ),
    ],
)
def test_a_foreign_file_is_one_sentence(tmp_path, foreign, what):
    path = tmp_path / "foreign.ckpt"
    path.write_bytes(foreign)
    with pytest.raises(CheckpointError) as caught:
        load_model(path)
    assert str(caught.value) == f"{path} {what}"


def test_missing_parts_are_named(contents, tmp_path):
    path = tmp_path / "part.ckpt"
    own = {name: value for name, value in contents[checkpoint.KEY].items() if name != "tokenizer"}
    torch.save({checkpoint.KEY: own, "state_dict": {}}, path)
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path)
    assert str(caught.value) == (
        f"{path} is not complete: it lacks global_step, asr_ascend.tokenizer."
    )


def test_another_projects_checkpoint_is_one_sentence(tmp_path):
    path = tmp_path / "other.ckpt"
    torch.save({"state_dict": {}}, path)
    with pytest.raises(CheckpointError) as caught:
        load_model(path)
    assert str(caught.value) == f"{path} is not a checkpoint of asr_ascend."


def test_code_in_a_checkpoint_does_not_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    path = tmp_path / "trap.ckpt"
    torch.save({checkpoint.KEY: Trap()}, path)
    with pytest.raises(CheckpointError) as caught:
        load_model(path)
    assert str(caught.value) == (
        f"{path} is not a checkpoint of asr_ascend: it calls posix.mkdir, and weights need no such "
        "code."
    )
    assert not (tmp_path / "sprung").exists()


def test_another_format_version_is_one_sentence(contents, tmp_path):
    path = tmp_path / "new.ckpt"
    contents[checkpoint.KEY]["format_version"] = 2
    torch.save(contents, path)
    with pytest.raises(CheckpointError) as caught:
        load_model(path)
    assert str(caught.value) == f"{path} has format version 2, but this asr_ascend reads 1."


def test_weights_of_another_model_are_one_sentence(contents, tmp_path):
    path = tmp_path / "mixed.ckpt"
    contents[checkpoint.KEY]["config"]["model"] = {**MODEL, "joiner_dim": 9}
    torch.save(contents, path)
    with pytest.raises(CheckpointError) as caught:
        load_model(path)
    assert str(caught.value) == (
        f"The weights in {path} don't fit the model that its config describes."
    )
