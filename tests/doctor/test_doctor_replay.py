"""--replay: a saved batch on every backend against float64, and the first cell that differs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from asr_ascend.doctor import command, replay
from asr_ascend.training.saved_batch import SavedBatch, write_saved_batch

LENGTHS = ((6, 2), (4, 3))
ROWS = sum(T * (U + 1) for T, U in LENGTHS)
V = 7


def saved(path: Path, **changes: object) -> str:
    logits = torch.randn(ROWS, V, generator=torch.Generator().manual_seed(3))
    parts: dict = {
        "ids": ["first", "second"],
        "targets": torch.tensor([[1, 2, 0], [3, 4, 5]]),
        "logit_lengths": torch.tensor([6, 4]),
        "target_lengths": torch.tensor([2, 3]),
        "blank": 0,
        "logits": logits,
        "about": {"step": 120},
        "statistics": {"logits": {"least": -2.5, "greatest": 3.0, "not_finite": 0, "of": 238}},
    }
    write_saved_batch(path, SavedBatch(**{**parts, **changes}))
    return str(path)


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Lines of the table; numbers of costs as they are."""
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_a_batch_on_every_backend(tmp_path, capsys) -> None:
    path = saved(tmp_path / "batch.pt", clamp=0.5, fastemit_lambda=0.01)
    assert command.main(["--replay", path]) == 0
    first, *lines = printed(capsys)
    assert first == f"Saved batch {path}"
    costs = lines.pop(2)
    assert re.fullmatch(r"costs ok in float64: [\d.]+, [\d.]+ nats", costs), costs
    assert lines == [
        "batch ok 2 utterances, step 120",
        f"logits ok {ROWS} rows of {V} in float32, all finite",
        "loss on reference ok costs and gradient agree with float64",
        "loss on cpu ok costs and gradient agree with float64",
    ]


def test_logits_that_are_not_finite_are_named(tmp_path, capsys) -> None:
    """Row 18 + 1 * 4 + 2 is of the second utterance, frame 1, label 2."""
    logits = torch.zeros(ROWS, V)
    logits[18 + 6, 5] = float("nan")
    logits[18 + 7, 1] = float("inf")
    path = saved(tmp_path / "batch.pt", logits=logits)
    assert command.main(["--replay", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    lines = {line["subject"]: line for line in found["sections"][0]["lines"]}
    assert (lines["logits"]["status"], lines["logits"]["found"]) == (
        "warning",
        f"{ROWS} rows of {V} in float32; 2 of {ROWS * V} are not finite; the first is of "
        "utterance second (sample 1), frame 1, label 2, symbol 5",
    )
    # Equal logits: (6 + 2) ln 7 - ln C(7, 2).
    assert lines["costs"] == {
        **lines["costs"],
        "status": "warning",
        "found": "in float64: 12.5227588, nan nats",
    }
    assert lines["loss on cpu"]["status"] == "ok"


def test_the_first_cell_that_differs_is_named(tmp_path, monkeypatch) -> None:
    path, exact = saved(tmp_path / "batch.pt"), replay.rnnt_loss_and_grad

    def wrong(logits: torch.Tensor, backend: str, **options: object):
        costs, gradient = exact(logits, backend=backend, **options)
        if backend == "cpu":
            costs[1] += 0.5
            gradient[7, 2] += 1
            gradient[30, 2] += 1
        return costs, gradient

    monkeypatch.setattr(replay, "rnnt_loss_and_grad", wrong)
    found = replay.compare(path, "cpu")
    assert found["refused"] is None
    number = r"-?[\d.]+(e-\d+)?"
    # Row 7 is frame 2 and label 1 of the first utterance, which has 3 labels' columns.
    assert re.fullmatch(
        rf"1 of 2 costs differs; the first, of utterance second \(sample 1\), is {number}, but "
        rf"must be {number}; 2 of {ROWS * V} gradients differ; the first, of utterance first "
        rf"\(sample 0\), frame 2, label 1, symbol 2, is {number}, but must be {number}",
        found["fault"],
    ), found["fault"]


def test_a_backend_that_does_not_take_the_batch(tmp_path) -> None:
    path = saved(tmp_path / "batch.pt", targets=torch.tensor([[1, 9, 0], [3, 4, 5]]))
    assert "`targets`" in replay.compare(path, "cpu")["refused"]


def test_a_batch_without_logits(tmp_path, capsys) -> None:
    path = saved(tmp_path / "batch.pt", logits=None)
    assert command.main(["--replay", path]) == 1
    assert printed(capsys)[1:] == [
        "batch ok 2 utterances, step 120",
        "logits ok least -2.5, greatest 3, not finite 0, of 238",
        "replay wrong the file holds no logits, only their statistics, so nothing can be run",
    ]


def test_a_file_that_is_no_batch(tmp_path, capsys) -> None:
    (tmp_path / "other").write_text("hello")
    for name, sentence in (
        ("other", f"Error: {tmp_path}/other is not a saved batch of asr_ascend.\n"),
        ("none", f"Error: The saved batch {tmp_path}/none is not a file.\n"),
    ):
        assert command.main(["--replay", str(tmp_path / name)]) == 2
        assert capsys.readouterr().err == sentence
