"""The doctor's own comparison: a loss that is wrong is found, and named."""

from __future__ import annotations

import pytest
import torch

from asr_ascend.doctor import loss_check


def test_every_backend_here_is_right() -> None:
    assert loss_check.check("cpu") == {
        "wrong": [],
        "dtypes": ["float32", "float64", "float16", "bfloat16"],
    }
    assert loss_check.check("reference") == {"wrong": [], "dtypes": ["float64"]}


@pytest.mark.parametrize(
    ("off", "sentence"),
    [
        ("cost", "float32: the cost of sample 1 is "),
        (
            "gradient",
            "float32: 1 of 19778 gradients are wrong; the first, of row 5 and symbol 7, is ",
        ),
        (
            "nan",
            "float32: 1 of 19778 gradients are wrong; the first, of row 5 and symbol 7, is nan",
        ),
    ],
)
def test_a_wrong_backend_is_found(monkeypatch: pytest.MonkeyPatch, off: str, sentence: str) -> None:
    exact = loss_check._run

    def wrong(backend: str, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        costs, gradient = exact(backend, logits)
        if backend == "cpu":
            if off == "cost":
                costs[1] *= 1 + 1e-6
            else:
                gradient[5, 7] = float("nan") if off == "nan" else gradient[5, 7] + 1e-2
        return costs, gradient

    monkeypatch.setattr(loss_check, "_run", wrong)
    assert loss_check.check("cpu")["wrong"][0].startswith(sentence)


def test_a_wrong_reference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = loss_check._run

    def wrong(backend: str, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        costs, gradient = exact(backend, logits)
        return costs + 1e-6, gradient + 1

    monkeypatch.setattr(loss_check, "_run", wrong)
    first, *_, last = loss_check.check("reference")["wrong"]
    # (40 + 11) ln 31 - ln C(50, 11)
    assert first == "the cost of sample 0 is 150.78965, but must be 150.789649"
    assert last == "the gradient of a row must sum to 0, but does not"
