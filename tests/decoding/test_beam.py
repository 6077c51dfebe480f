"""Beam search through torchaudio: blank anywhere, scores, streaming, alignment."""

import itertools
import re

import pytest
import torch
import torchaudio

from asr_ascend.decoding import Hypothesis, greedy_decode
from asr_ascend.decoding.beam import align_tokens, beam_decode, beam_search
from tests.support.decoding_models import (
    move_blank,
    random_transducer,
    spoken_encodings,
    trained_transducer,
)


def encodings(count, frames, seed=0):
    return torch.randn(count, frames, 16, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("predictor", ["stateless", "lstm"])
def test_blank_first_middle_and_last_give_the_same(predictor):
    model = trained_transducer(predictor)
    enc, texts = spoken_encodings(model, count=3, frames=9, seed=1000)
    lengths = torch.tensor([9, 9, 6])
    expected = beam_search(model, enc, lengths, 4)
    assert [hypotheses[0].tokens for hypotheses in expected[:2]] == texts[:2]
    for blank in range(1, 7):
        moved, new_ids = move_blank(model, blank)
        found = beam_search(moved, enc, lengths, 4)
        for some, wanted in zip(found, expected, strict=True):
            assert [h.tokens for h in some] == [[new_ids[i] for i in h.tokens] for h in wanted]
            assert [h.frames for h in some] == [h.frames for h in wanted]
            scores = [h.score for h in wanted]
            assert [h.score for h in some] == pytest.approx(scores, abs=1e-3)
            assert all(blank not in h.tokens for h in some)


@pytest.mark.parametrize("blank", [0, 3, -1])
@pytest.mark.parametrize("beam_width", [1, 2, 5])
def test_sure_model_spells_what_was_said(blank, beam_width):
    """Beam of one gives what greedy gives; a wider one is at least as probable."""
    model = trained_transducer(blank=blank)
    enc, texts = spoken_encodings(model, count=6, frames=12, seed=1000)
    lengths = torch.full((6,), 12)
    greedy = greedy_decode(model, enc, lengths)
    beam = beam_decode(model, enc, lengths, beam_width)
    assert [h.tokens for h in greedy] == texts
    assert [h.tokens for h in beam] == texts
    assert [h.frames for h in beam] == [h.frames for h in greedy]
    for found, path in zip(beam, greedy, strict=True):
        assert path.score - 1e-4 <= found.score <= 0.0
        assert found.score < path.score + 1.0


@pytest.mark.parametrize("beam_width", [2, 5])
def test_score_is_at_least_the_greedy_score_of_an_unsure_model(beam_width):
    model = trained_transducer()
    enc, _ = spoken_encodings(model, count=12, frames=10, seed=1001)
    enc += 1.2 * encodings(12, 10)
    lengths = torch.tensor([10, 9, 8, 7, 6, 5] * 2)
    greedy = greedy_decode(model, enc, lengths)
    beam = beam_decode(model, enc, lengths, beam_width)
    assert all(b.score >= g.score - 1e-4 for b, g in zip(beam, greedy, strict=True))
    assert sum(b.tokens != g.tokens for b, g in zip(beam, greedy, strict=True)) > 2


def log_probability(model, enc, tokens):
    """ln P(tokens | enc) over all alignments, by torchaudio's own loss."""
    start = torch.tensor([[model.blank, *tokens]])
    context, _, _ = model.predict(start, torch.tensor([start.shape[1]]))
    logits, _, _ = model.join(enc[None], torch.tensor([len(enc)]), context, torch.tensor([1]))
    targets = torch.tensor([tokens], dtype=torch.int32)
    lengths = torch.tensor([len(enc)], dtype=torch.int32)
    target_lengths = torch.tensor([len(tokens)], dtype=torch.int32)
    return -torchaudio.functional.rnnt_loss(
        logits, targets, lengths, target_lengths, blank=model.blank, reduction="sum"
    ).item()


@torch.no_grad()
@pytest.mark.parametrize("blank", [0, 3, -1])
def test_score_is_nearly_the_probability_over_all_alignments(blank):
    """The beam sums over the alignments it kept: never more than the loss says, and hardly less."""
    model = trained_transducer(blank=blank)
    enc, _ = spoken_encodings(model, count=4, frames=8, seed=1002)
    compared = 0
    for b, found in enumerate(beam_search(model, enc, torch.full((4,), 8), 5)):
        exact = [log_probability(model, enc[b], h.tokens) for h in found if h.tokens]
        scores = [h.score for h in found if h.tokens]
        compared += len(exact)
        assert scores[0] == pytest.approx(exact[0], abs=0.05)
        assert all(score <= true + 1e-3 for score, true in zip(scores, exact, strict=True))
    assert compared >= 16


@torch.no_grad()
def test_hypotheses_are_different_and_ordered_by_score():
    model = random_transducer(peak=1.0)
    (found,) = beam_search(model, encodings(1, 8), torch.tensor([8]), 5)
    assert len(found) == 5
    assert len({tuple(h.tokens) for h in found}) == 5
    scores = [h.score for h in found]
    assert scores == sorted(scores, reverse=True)


@torch.no_grad()
def test_beam_wider_than_the_vocabulary():
    model = random_transducer(vocab_size=2, blank=1, blank_bias=0.0)
    (found,) = beam_search(model, encodings(1, 5), torch.tensor([5]), 100)
    assert len(found) == 1
    assert set(found[0].tokens) <= {0}


@torch.no_grad()
def test_no_frame():
    found = beam_decode(random_transducer(), encodings(1, 4), torch.tensor([0]), 3)
    assert found == [Hypothesis([], [], 0.0)]


def alignment_score(model, enc, tokens, frames):
    """Log-probability of one alignment, symbol by symbol."""
    start = torch.tensor([[model.blank, *tokens]])
    context, _, _ = model.predict(start, torch.tensor([start.shape[1]]))
    logits, _, _ = model.join(enc[None], torch.tensor([len(enc)]), context, torch.tensor([1]))
    log_probs = logits[0].double().log_softmax(-1)
    columns = [sum(f <= t for f in frames) for t in range(len(enc))]
    score = sum(log_probs[t, u, model.blank] for t, u in enumerate(columns))
    return float(score + sum(log_probs[f, u, tokens[u]] for u, f in enumerate(frames)))


@torch.no_grad()
def test_align_tokens_is_the_best_of_all_alignments():
    for seed in range(6):
        model = random_transducer(seed=seed, blank=seed, peak=2.0)
        (enc,) = encodings(1, 5, seed)
        tokens = [i for i in range(7) if i != seed][2:5]
        every = itertools.combinations_with_replacement(range(5), 3)
        best = max(every, key=lambda frames: alignment_score(model, enc, tokens, frames))
        assert align_tokens(model, enc, tokens) == list(best)
    assert align_tokens(model, enc[:1], tokens) == [0, 0, 0]
    assert align_tokens(model, enc, []) == []


@torch.no_grad()
def test_align_tokens_through_a_masked_symbol():
    model = random_transducer()
    model.joiner.output.bias[4] = -torch.inf
    (enc,) = encodings(1, 5)
    frames = align_tokens(model, enc, [1, 4, 2])
    assert len(frames) == 3
    assert frames == sorted(frames)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 3), "`beam_width` must be at least 1, but is 0."),
        ((2, 0), "`max_symbols_per_frame` must be at least 1, but is 0."),
    ],
)
def test_messages(arguments, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        beam_decode(random_transducer(), encodings(1, 4), torch.tensor([4]), *arguments)


def test_nan_is_named():
    enc = encodings(2, 4)
    enc[1, 2, 3] = torch.nan
    message = r"^`enc` must be finite, but holds NaN or infinity in utterance 1\.$"
    with pytest.raises(ValueError, match=message):
        beam_decode(random_transducer(), enc, torch.tensor([4, 4]), 2)
