"""Tokens held near the frames at which CTC hears them."""

import math

import pytest
import torch

from asr_ascend.alignment import first_frames, restrict
from asr_ascend.losses import rnnt_loss


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


def alignments(frames: int, windows: list[tuple[int, int]]):
    """Every rising choice of a frame in its window for each token."""
    if not windows:
        yield []
        return
    for earlier in alignments(frames, windows[:-1]):
        first, last = windows[-1]
        start = max(first, earlier[-1] if earlier else 0)
        yield from ([*earlier, t] for t in range(start, min(last, frames - 1) + 1))


@pytest.mark.parametrize("blank", [0, 3])
def test_the_loss_is_that_of_the_alignments_within_the_windows(blank):
    lengths, target_lengths = torch.tensor([5, 4]), torch.tensor([2, 1])
    targets = torch.tensor([[1, 2], [2, 77]])
    windows = [[(1, 2), (2, 4)], [(0, 1)]]
    first = torch.tensor([[1, 2], [0, 0]])
    last = torch.tensor([[2, 4], [1, 0]])
    logits = torch.randn(5 * 3 + 4 * 2, 4, generator=torch.Generator().manual_seed(3))
    logits = logits.double().requires_grad_()
    held = restrict(logits, lengths, targets, target_lengths, (first, last), blank)
    assert held.shape == (23, 5)
    costs = rnnt_loss(
        held, targets, lengths, target_lengths, blank=blank, reduction="none", backend="reference"
    )
    log_probs = logits.log_softmax(-1)
    expected, offset = [], 0
    for b, (T, U) in enumerate([(5, 2), (4, 1)]):
        cell = log_probs[offset : offset + T * (U + 1)].view(T, U + 1, 4)
        offset += T * (U + 1)
        totals = []
        for chosen in alignments(T, windows[b]):
            score, u = log_probs.new_zeros(()), 0
            for t in range(T):
                while u < U and chosen[u] == t:
                    score = score + cell[t, u, targets[b, u]]
                    u += 1
                score = score + cell[t, u, blank]
            totals.append(score)
        expected.append(-torch.stack(totals).logsumexp(0))
    torch.testing.assert_close(costs, torch.stack(expected), rtol=1e-10, atol=1e-10)
    ours = torch.autograd.grad(costs.sum(), logits, retain_graph=True)[0]
    theirs = torch.autograd.grad(torch.stack(expected).sum(), logits)[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)


def test_open_windows_change_nothing():
    lengths, target_lengths = torch.tensor([5]), torch.tensor([2])
    targets = torch.tensor([[1, 2]])
    logits = torch.randn(15, 4, generator=torch.Generator().manual_seed(4))
    window = torch.tensor([[0, 0]]), torch.tensor([[9, 9]])
    held = restrict(logits, lengths, targets, target_lengths, window, 0)
    assert torch.equal(held[:, :4], logits)
    assert bool((held[:, 4] == -math.inf).all())
