"""The alignment of CTC on whole batches, for devices without torchaudio's kernel, beside it."""

import pytest
import torch

from asr_ascend.training.ctc_alignment import first_frames, first_frames_on_device


def random_case(seed: int):
    draws = torch.Generator().manual_seed(seed)

    def integers(low, high, size):
        return torch.randint(low, high + 1, size, generator=draws)

    B, T, U, V = 6, 25, 8, 5  # few symbols: repeats are frequent
    lengths, counts = integers(1, T, (B,)), integers(0, U, (B,))
    targets = integers(1, V - 1, (B, U))
    log_probs = torch.randn(B, T, V, generator=draws).mul(3).log_softmax(-1)
    return log_probs, lengths, targets, counts


@pytest.mark.parametrize("seed", range(40))
def test_it_finds_the_same_frames(seed):
    log_probs, lengths, targets, counts = random_case(seed)
    blank = 0
    if seed % 2:
        log_probs, targets, blank = log_probs.flip(-1), 4 - targets, 4
    expected = first_frames(log_probs, lengths, targets, counts, blank)
    found = first_frames_on_device(log_probs, lengths, targets, counts, blank)
    assert torch.equal(found, expected)


def test_a_long_batch():
    """Sums over 600 frames in float32 still order the paths."""
    draws = torch.Generator().manual_seed(0)
    log_probs = torch.randn(4, 600, 40, generator=draws).mul(4).log_softmax(-1)
    targets = torch.randint(1, 40, (4, 60), generator=draws)
    lengths, counts = torch.tensor([600, 500, 599, 130]), torch.tensor([60, 41, 0, 60])
    expected = first_frames(log_probs, lengths, targets, counts, 0)
    assert torch.equal(first_frames_on_device(log_probs, lengths, targets, counts, 0), expected)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_values_that_are_not_finite_cost_their_own_utterance(value):
    log_probs, lengths, targets, counts = random_case(3)
    lengths[:2], counts[:2] = 20, 3
    expected = first_frames(log_probs, lengths, targets, counts, 0)
    log_probs[0, 5, 2] = value
    found = first_frames_on_device(log_probs, lengths, targets, counts, 0)
    assert torch.equal(found[1:], expected[1:])
    if value != -torch.inf:
        assert found[0].tolist() == [0] * 8
    log_probs[0, 5, 2] = 0.0
    log_probs[0, 20:] = value  # padding
    clean = log_probs.clone()
    clean[0, 20:] = 0.0
    found = first_frames_on_device(log_probs, lengths, targets, counts, 0)
    assert torch.equal(found, first_frames_on_device(clean, lengths, targets, counts, 0))


def test_no_labels_and_no_frames():
    none = torch.zeros(2, dtype=torch.int64)
    empty = torch.zeros(2, 0, dtype=torch.int64)
    log_probs = torch.randn(2, 5, 4).log_softmax(-1)
    assert first_frames_on_device(log_probs, none + 5, empty, none, 0).shape == (2, 0)
    targets = torch.ones(2, 3, dtype=torch.int64)
    found = first_frames_on_device(log_probs[:, :0], none, targets, none + 3, 0)
    assert found.tolist() == [[0] * 3] * 2
