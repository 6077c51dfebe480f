"""Token frames by alignment of what was heard, whole or piece by piece."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asr_ascend.decoding import Hypothesis, StreamingDecoder, greedy_decode, token_frames
from asr_ascend.decoding.token_frames import _pieces
from asr_ascend.losses import rnnt_alignment
from tests.support.decoding_models import random_transducer, spoken_encodings, trained_transducer


def aligned(model, enc, tokens):
    """The alignment over the full lattice."""
    targets = torch.tensor([tokens], dtype=torch.int64)
    sizes = torch.tensor([len(enc)]), torch.tensor([len(tokens)])
    with torch.no_grad():
        logits = model.join_packed(enc[None], sizes[0], targets, sizes[1])
    return rnnt_alignment(logits, targets, *sizes, blank=model.blank)


@pytest.mark.parametrize("predictor", ["stateless", "lstm"])
def test_they_are_those_of_the_likeliest_alignment(predictor):
    model = trained_transducer(predictor)
    enc, texts = spoken_encodings(model, count=6, frames=12, seed=77)
    hypotheses = greedy_decode(model, enc, torch.full((6,), 12))
    for one, text, hypothesis in zip(enc, texts, hypotheses, strict=True):
        assert hypothesis.tokens == text
        frames = token_frames(model, one, hypothesis)
        expected, log_prob = aligned(model, one, hypothesis.tokens)
        assert frames == expected[0].tolist()
        assert float(log_prob[0]) >= hypothesis.score - 1e-4


def test_the_decoders_own_frames_only_say_where_to_cut():
    model = trained_transducer()
    enc, _ = spoken_encodings(model, count=1, frames=12, seed=5)
    (hypothesis,) = greedy_decode(model, enc, torch.tensor([12]))
    expected = token_frames(model, enc[0], hypothesis)
    shifted = Hypothesis(hypothesis.tokens, [0] * len(hypothesis.tokens), 0.0)
    assert token_frames(model, enc[0], shifted) == expected


@pytest.mark.parametrize("max_logits", [7 * 30, 7 * 60, 7 * 400])
def test_pieces_give_what_the_whole_gives(max_logits):
    model = trained_transducer("lstm")
    enc, _ = spoken_encodings(model, count=20, frames=8, seed=3)
    quiet, _ = spoken_encodings(model, count=1, frames=1, seed=0)
    silence = torch.zeros(1, 3, quiet.shape[2])
    parts = [part for one in enc for part in (one[None], silence)]
    utterance = torch.cat(parts, dim=1)
    (hypothesis,) = greedy_decode(model, utterance, torch.tensor([utterance.shape[1]]))
    assert len(hypothesis.tokens) > 30
    whole = token_frames(model, utterance[0], hypothesis)
    pieces = token_frames(model, utterance[0], hypothesis, max_logits=max_logits)
    assert whole == sorted(whole)
    differing = sum(a != b for a, b in zip(whole, pieces, strict=True))
    assert differing <= len(whole) // 20
    assert pieces == sorted(pieces)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    gaps=st.lists(st.integers(0, 90), min_size=1, max_size=60),
    after=st.integers(1, 300),
    max_cells=st.integers(1, 4000),
)
def test_pieces_hold_every_token_once_within_their_frames(gaps, after, max_cells):
    frames = torch.tensor(gaps).cumsum(0).tolist()
    num_frames = frames[-1] + after
    pieces = list(_pieces(frames, num_frames, max_cells))
    assert [token for tokens, _ in pieces for token in tokens] == list(range(len(frames)))
    end = 0
    for tokens, within in pieces:
        assert end <= within.start < within.stop <= num_frames
        end = within.stop
        own = [frames[token] for token in tokens]
        assert all(frame in within for frame in own)
        if len(within) * (len(tokens) + 1) > max_cells:
            # Nothing left to cut at: one frame gave them all.
            assert len(set(own)) == 1
            assert len(within) <= 101
    assert list(_pieces([], 50, 10)) == []


def test_nothing_heard_and_tokens_without_an_alignment():
    model = random_transducer()
    enc = torch.randn(5, model.encoder.output_dim)
    assert token_frames(model, enc, Hypothesis()) == []
    assert token_frames(model, enc[:0], Hypothesis()) == []
    broken = torch.full_like(enc, math.nan)
    assert token_frames(model, broken, Hypothesis([1, 2], [1, 4], 0.0)) == [1, 4]


def test_the_streaming_decoder_keeps_its_encoder_frames_when_asked():
    model = random_transducer(blank_bias=1.0)
    features = 3 * torch.randn(95, 16, generator=torch.Generator().manual_seed(1))
    decoder = StreamingDecoder(model, 4, 2, keep_encoded=True)
    assert decoder.encoded.shape == (0, model.encoder.output_dim)
    for piece in features.split(10):
        decoder.push(piece)
    decoder.finish()
    with torch.no_grad():
        enc, _ = model.encode(features[None], torch.tensor([95]), 4, 2)
    torch.testing.assert_close(decoder.encoded, enc[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError) as raised:
        _ = StreamingDecoder(model, 4, 2).encoded
    assert str(raised.value) == "`keep_encoded` must be True for `encoded`, but is False."
