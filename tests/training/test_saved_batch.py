"""A batch of the loss in a file: the same numbers come out, and a wrong file is one sentence."""

import dataclasses
import subprocess
import sys

import pytest
import torch

from asr_ascend.losses import rnnt_loss_and_grad
from asr_ascend.training import saved_batch
from asr_ascend.training.saved_batch import (
    SavedBatch,
    SavedBatchError,
    read_saved_batch,
    statistics_of,
    write_saved_batch,
)
from tests.support import small_batch

WINDOWS = torch.tensor([[[0, 3], [1, 3]], [[0, 2], [0, 0]], [[0, 0], [0, 0]]])


def make_batch(**changes) -> SavedBatch:
    batch = SavedBatch(
        ids=["a", "b", "c"],
        targets=small_batch.TARGETS,
        logit_lengths=small_batch.LOGIT_LENGTHS,
        target_lengths=small_batch.TARGET_LENGTHS,
        blank=4,
        clamp=0.5,
        fastemit_lambda=0.01,
        delay_penalty=0.02,
        emission_windows=WINDOWS,
        logits=small_batch.make_logits(),
        statistics={
            "logits": {"least": -1.0, "greatest": 2.0, "mean": 0.5, "not_finite": 1, "of": 9}
        },
        about={"step": 7, "epoch": 0, "rank": 1, "loss": float("nan")},
    )
    return dataclasses.replace(batch, **changes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_batch_comes_back_and_gives_the_same_costs(tmp_path, dtype):
    logits = small_batch.make_logits(dtype=dtype).requires_grad_()
    batch = make_batch(logits=logits)
    write_saved_batch(tmp_path / "b.pt", batch)
    back = read_saved_batch(tmp_path / "b.pt")
    assert (back.ids, back.blank, back.clamp) == (batch.ids, 4, 0.5)
    assert (back.fused_log_softmax, back.fastemit_lambda) == (True, 0.01)
    assert back.delay_penalty == 0.02
    assert back.statistics == batch.statistics
    assert back.about["step"] == 7
    assert back.band is None
    assert back.logits.dtype == dtype
    assert not back.logits.requires_grad
    expected = rnnt_loss_and_grad(logits.detach(), **batch.loss_arguments())
    found = rnnt_loss_and_grad(back.logits, **back.loss_arguments())
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


def test_the_file_holds_the_documented_keys_and_loads_without_code(tmp_path):
    write_saved_batch(tmp_path / "b.pt", make_batch())
    contents = torch.load(tmp_path / "b.pt", weights_only=True)
    assert contents["format"] == "asr_ascend.saved_batch"
    assert contents["format_version"] == 1
    assert set(contents) == {
        *("format", "format_version", "ids", "targets", "logit_lengths", "target_lengths"),
        *("blank", "clamp", "fused_log_softmax", "fastemit_lambda", "delay_penalty"),
        *("emission_windows", "band", "logits", "statistics", "about"),
    }


def test_a_slice_is_saved_without_the_rest_of_its_memory(tmp_path):
    rows = torch.zeros(10**6, small_batch.V)[:24]
    write_saved_batch(tmp_path / "b.pt", make_batch(logits=rows[:20]))
    assert (tmp_path / "b.pt").stat().st_size < 10_000


def test_large_logits_are_left_out(tmp_path, monkeypatch):
    logits = small_batch.make_logits()
    monkeypatch.setattr(saved_batch, "MAX_LOGITS_BYTES", logits.numel() * 4)
    write_saved_batch(tmp_path / "b.pt", make_batch())
    assert read_saved_batch(tmp_path / "b.pt").logits is not None
    monkeypatch.setattr(saved_batch, "MAX_LOGITS_BYTES", logits.numel() * 4 - 1)
    write_saved_batch(tmp_path / "b.pt", make_batch())
    assert read_saved_batch(tmp_path / "b.pt").logits is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": "abc"}, "`ids` in FILE must be a list of names, but is 'abc'."),
        (
            {"targets": torch.zeros(2, 2, dtype=torch.int64)},
            "`targets` in FILE must be (3, U) integers, but is int64 of shape (2, 2).",
        ),
        (
            {"logit_lengths": torch.ones(3)},
            "`logit_lengths` in FILE must be (3,) integers, but is float32 of shape (3,).",
        ),
        ({"blank": -1}, "`blank` in FILE must be an int of at least 0, but is -1."),
        ({"clamp": "no"}, "`clamp` in FILE must be a number, but is 'no'."),
        ({"fused_log_softmax": 1}, "`fused_log_softmax` in FILE must be a bool, but is 1."),
        (
            {"emission_windows": WINDOWS[:, :1]},
            "`emission_windows` in FILE must be None or (3, 2, 2) integers, "
            "but is int64 of shape (3, 1, 2).",
        ),
        (
            {"logits": torch.zeros(19, 5)},
            "`logits` in FILE must be None or (20, V) floats with V above 4, "
            "but is float32 of shape (19, 5).",
        ),
        (
            {"logits": torch.zeros(20, 4)},
            "`logits` in FILE must be None or (20, V) floats with V above 4, "
            "but is float32 of shape (20, 4).",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_parts_that_do_not_fit_are_named(tmp_path, changes, message):
    path = tmp_path / "b.pt"
    write_saved_batch(path, make_batch())
    contents = torch.load(path, weights_only=True)
    torch.save({**contents, **changes}, path)
    with pytest.raises(SavedBatchError) as caught:
        read_saved_batch(path)
    assert str(caught.value) == message.replace("FILE", str(path))
    with pytest.raises(SavedBatchError):
        write_saved_batch(tmp_path / "new.pt", make_batch(**changes))
    assert not (tmp_path / "new.pt").exists()


def test_a_file_that_is_no_saved_batch_is_one_sentence(tmp_path):
    path = tmp_path / "b.pt"
    with pytest.raises(SavedBatchError, match=r"^The saved batch .*b\.pt is not a file\.$"):
        read_saved_batch(path)
    foreign = rf"^{path} is not a saved batch of asr_ascend\.$"
    path.write_text("text", encoding="utf-8")
    with pytest.raises(SavedBatchError, match=foreign):
        read_saved_batch(path)
    torch.save({"format": "another"}, path)
    with pytest.raises(SavedBatchError, match=foreign):
        read_saved_batch(path)
    torch.save({"format": saved_batch.FORMAT, "format_version": 9}, path)
    with pytest.raises(SavedBatchError, match="has format version 9, but this asr_ascend reads 1"):
        read_saved_batch(path)
    torch.save({"format": saved_batch.FORMAT, "format_version": 1, "ids": []}, path)
    with pytest.raises(SavedBatchError, match="lacks blank, logit_lengths, target_lengths, targ"):
        read_saved_batch(path)


def test_statistics_of_what_is_not_finite():
    value = torch.tensor([1.0, torch.nan, 3.0, -torch.inf, 5.0])
    expected = {"least": 1.0, "greatest": 5.0, "mean": 3.0, "not_finite": 2, "of": 5}
    assert statistics_of(value) == expected
    assert statistics_of(torch.full((2,), torch.nan)) == {"not_finite": 2, "of": 2}


def test_it_needs_torch_alone():
    """The doctor reads it where nothing else is installed."""
    program = """
import sys
for name in ("lightning", "hydra", "omegaconf", "torchaudio", "sentencepiece", "soundfile"):
    sys.modules[name] = None
import asr_ascend.training.saved_batch
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
