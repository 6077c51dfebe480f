"""Tokens held near the frames at which CTC hears them."""

import math

import pytest
import torch

from asr_ascend.training.ctc_alignment import first_frames


def ctc_path(path: list[int], vocab_size: int = 5) -> torch.Tensor:
    """Log-probabilities (T, V) under which `path` is by far the likeliest."""
    logits = torch.zeros(len(path), vocab_size)
    logits[torch.arange(len(path)), torch.tensor(path)] = 10.0
    return logits.log_softmax(-1)


@pytest.mark.parametrize("blank", [0, 4])
def test_first_frames_are_those_of_the_likeliest_ctc_alignment(blank):
    a, b = (1, 2) if blank == 0 else (0, 3)
    n = blank
    one = ctc_path([n, a, a, n, n, b, n, b, b, n])
    two = ctc_path([b, b, n, a, n, n])
    log_probs = torch.stack([one, torch.cat([two, torch.full((4, 5), math.nan)])])
    frames = first_frames(
        log_probs,
        torch.tensor([10, 6]),
        torch.tensor([[a, b, b], [b, a, 99]]),
        torch.tensor([3, 2]),
        blank,
    )
    assert frames.tolist() == [[1, 5, 7], [0, 3, 0]]


def test_an_utterance_with_too_few_frames_or_no_token_has_no_first_frames():
    log_probs = torch.stack([ctc_path([1, 1]), ctc_path([0, 0])])
    sizes = torch.tensor([2, 2]), torch.tensor([[1, 1], [1, 1]]), torch.tensor([2, 0])
    assert first_frames(log_probs, *sizes, 0).tolist() == [[0, 0], [0, 0]]
