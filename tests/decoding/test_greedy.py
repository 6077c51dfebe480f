"""Greedy decoding: written-out cases, and a plain loop as the reference."""

import math

import pytest
import torch

from asr_ascend.decoding import Hypothesis, greedy_decode
from asr_ascend.decoding.greedy import GreedySearch
from tests.support.decoding_models import TableTransducer, random_transducer


def frames_of(count):
    return torch.arange(float(count)).view(1, count, 1)


def test_tokens_frames_and_score_of_a_written_out_case():
    # Vocabulary: blank 0, tokens 1 and 2. Keys: (frame, last token).
    table = {
        (0, 0): [0.6, 0.3, 0.1],
        (1, 0): [0.2, 0.1, 0.7],
        (1, 2): [0.1, 0.5, 0.4],
        (1, 1): [0.8, 0.1, 0.1],
        (2, 1): [0.9, 0.05, 0.05],
    }
    (found,) = greedy_decode(TableTransducer(0, table), frames_of(3), torch.tensor([3]))
    assert (found.tokens, found.frames) == ([2, 1], [1, 1])
    assert found.score == pytest.approx(math.log(0.6 * 0.7 * 0.5 * 0.8 * 0.9), abs=1e-6)


def test_blank_is_taken_after_the_most_symbols_of_a_frame():
    always_one = {(t, token): [0.25, 0.75] for t in range(2) for token in (0, 1)}
    model = TableTransducer(0, always_one)
    for most in (1, 2, 5):
        (found,) = greedy_decode(model, frames_of(2), torch.tensor([2]), most)
        assert found.tokens == [1] * (2 * most)
        assert found.frames == [0] * most + [1] * most
        expected = 2 * (most * math.log(0.75) + math.log(0.25))
        assert found.score == pytest.approx(expected, abs=1e-5)


def test_frames_beyond_the_length_are_never_read():
    table = {(0, 0): [0.1, 0.9], (0, 1): [0.9, 0.1]}
    enc = torch.tensor([[[0.0], [7.0]], [[7.0], [7.0]]])
    found = greedy_decode(TableTransducer(0, table), enc, torch.tensor([1, 0]))
    assert (found[0].tokens, found[0].frames) == ([1], [0])
    assert found[1] == Hypothesis([], [], 0.0)


def plain_greedy(model, enc, most):
    """One utterance, one symbol at a time, through torchaudio's interface."""
    one = torch.tensor([1])
    found = Hypothesis()
    context, _, state = model.predict(torch.tensor([[model.blank]]), one)
    for t in range(enc.shape[0]):
        for count in range(most + 1):
            logits, _, _ = model.join(enc[None, t : t + 1], one, context, one)
            log_probs = logits[0, 0, 0].double().log_softmax(-1)
            token = int(log_probs.argmax()) if count < most else model.blank
            found.score += float(log_probs[token])
            if token == model.blank:
                break
            found.tokens.append(token)
            found.frames.append(t)
            context, _, state = model.predict(torch.tensor([[token]]), one, state)
    return found


@torch.no_grad()
@pytest.mark.parametrize("predictor", ["stateless", "lstm"])
@pytest.mark.parametrize("blank", [0, 3, -1])
@pytest.mark.parametrize("most", [1, 3])
def test_batch_equals_a_plain_loop(predictor, blank, most):
    for seed in range(3):
        model = random_transducer(blank=blank, predictor=predictor, seed=seed, blank_bias=1.0)
        enc = torch.randn(5, 12, 16)
        lengths = torch.tensor([12, 7, 0, 1, 12])
        found = greedy_decode(model, enc, lengths, most)
        assert sum(len(h.tokens) for h in found) > 5
        for b, hypothesis in enumerate(found):
            expected = plain_greedy(model, enc[b, : lengths[b]], most)
            assert hypothesis.tokens == expected.tokens
            assert hypothesis.frames == expected.frames
            assert hypothesis.score == pytest.approx(expected.score, abs=1e-4)
            assert model.blank not in hypothesis.tokens


@torch.no_grad()
def test_search_in_pieces_equals_the_whole():
    model = random_transducer(blank_bias=1.0)
    enc = torch.randn(2, 11, 16)
    expected = greedy_decode(model, enc, torch.tensor([11, 11]))
    search = GreedySearch(model, batch_size=2)
    for piece in enc.split([3, 0, 5, 1, 2], dim=1):
        search.advance(piece, torch.tensor([piece.shape[1]] * 2))
    for found, wanted in zip(search.hypotheses, expected, strict=True):
        assert (found.tokens, found.frames) == (wanted.tokens, wanted.frames)
        assert found.score == pytest.approx(wanted.score, abs=1e-4)


def test_no_utterance():
    model = random_transducer()
    assert greedy_decode(model, torch.zeros(0, 4, 16), torch.zeros(0, dtype=torch.int64)) == []


def test_most_symbols_below_one():
    message = r"^`max_symbols_per_frame` must be at least 1, but is 0\.$"
    with pytest.raises(ValueError, match=message):
        greedy_decode(random_transducer(), torch.zeros(1, 2, 16), torch.tensor([2]), 0)
