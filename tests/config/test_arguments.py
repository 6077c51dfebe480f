"""What people type: files without a key, flags where keys belong, wrong keys; and the help."""

import re
from pathlib import Path

import pytest

from asr_ascend.config.arguments import split_arguments
from asr_ascend.config.describing import groups_of, markdown, nearest_key
from asr_ascend.config.keys import ConfigError
from asr_ascend.config.rules import COMMANDS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("command", "typed", "flags", "overrides"),
    [
        ("transcribe", ["a.wav", "last.ckpt"], [], ["wav='a.wav'", "checkpoint='last.ckpt'"]),
        ("transcribe", ["last.ckpt", "-"], [], ["checkpoint='last.ckpt'", "wav='-'"]),
        (
            "transcribe",
            ["my recordings/", "best.ckpt", "chunk_ms=640"],
            [],
            ["chunk_ms=640", "wav='my recordings/'", "checkpoint='best.ckpt'"],
        ),
        ("evaluate", ["last.ckpt"], [], ["checkpoint='last.ckpt'"]),
        (
            "evaluate",
            ["last.ckpt", "a.jsonl", "b,c.jsonl"],
            [],
            ["checkpoint='last.ckpt'", "manifest=['a.jsonl','b,c.jsonl']"],
        ),
        ("train", ["--cfg", "job", "seed=3"], ["--cfg", "job"], ["seed=3"]),
        ("train", ["-m", "seed=1,2", "~loss.clamp"], ["-m"], ["seed=1,2", "~loss.clamp"]),
        ("train", ["+loss.x=1", "=3"], [], ["+loss.x=1", "=3"]),
    ],
)
def test_files_flags_and_overrides_are_told_apart(command, typed, flags, overrides):
    assert split_arguments(command, typed) == (flags, overrides)


def test_a_file_with_an_equals_sign_in_its_name_is_a_file(tmp_path):
    path = tmp_path / "best-step=1.ckpt"
    path.touch()
    _, overrides = split_arguments("transcribe", [str(path), "a.wav"])
    assert overrides == [f"checkpoint='{path}'", "wav='a.wav'"]


WRONG = {
    ("transcribe", "--checkpoint", "x.ckpt"): (
        "There is no flag --checkpoint: keys are written as key=value. Write checkpoint=x.ckpt"
    ),
    ("transcribe", "--chunk-ms=640", "a.wav"): (
        "There is no flag --chunk-ms: keys are written as key=value. Write chunk_ms=640"
    ),
    ("train", "--lr", "0.1"): (
        "There is no flag --lr: keys are written as key=value. Write optimizer.lr=0.1"
    ),
    ("train", "--lr", "seed=3"): (
        "There is no flag --lr: keys are written as key=value. Write optimizer.lr=0.001"
    ),
    ("train", "--xyzzy"): (
        "There is no flag --xyzzy: keys are written as key=value; --help lists them."
    ),
    ("train", "max-steps=5"): (
        "'max-steps=5' is not an override of the form key=value. Did you mean trainer.max_steps=5?"
    ),
    ("evaluate", "a.ckpt", "b.ckpt"): (
        "`checkpoint` must be one path, but is a.ckpt, b.ckpt; baseline=b.ckpt compares two."
    ),
    ("transcribe", "a.wav", "wav=b.wav"): (
        "`wav` must be given once, but is also given as 'a.wav'."
    ),
}


@pytest.mark.parametrize("typed", WRONG, ids=" ".join)
def test_what_cannot_be_meant_is_one_sentence(typed):
    command, *arguments = typed
    with pytest.raises(ConfigError, match=f"^{re.escape(WRONG[typed])}$"):
        split_arguments(command, arguments)


@pytest.mark.parametrize(
    ("command", "wrong", "right"),
    [
        ("train", "lr", "optimizer.lr"),
        ("train", "loss.clmap", "loss.clamp"),
        ("train", "trainer.lr", "optimizer.lr"),
        ("train", "optimizer.warmup_step", "optimizer.warmup_steps"),
        ("train", "batch_seconds", "data.max_batch_seconds"),
        ("evaluate", "checkpoints", "checkpoint"),
        ("transcribe", "wavs", "wav"),
        ("train", "colour", None),
    ],
)
def test_the_nearest_key(command, wrong, right):
    near = nearest_key(command, wrong)
    assert (near and near.name) == right


def test_the_page_of_the_keys_is_what_the_options_say():
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == markdown(), "python -m asr_ascend.config > docs/configuration.md"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_has_every_key_once(command):
    section = markdown().split(f"## {command}\n")[1].split("\n## ")[0]
    names = [key.name for _, _, keys in groups_of(command) for key in keys]
    assert re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE) == names
    assert len(set(names)) == len(names)
