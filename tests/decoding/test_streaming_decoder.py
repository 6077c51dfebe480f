"""The streaming decoder equals greedy decoding over the masked encoder."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asr_ascend.decoding import StreamingDecoder, greedy_decode
from tests.support.decoding_models import random_transducer

MODELS = {kind: random_transducer(predictor=kind, blank_bias=1.0) for kind in ("stateless", "lstm")}


@settings(max_examples=50, deadline=None)
@given(
    pushes=st.lists(st.integers(0, 60), min_size=1, max_size=6),
    chunk_frames=st.one_of(st.none(), st.integers(1, 10)),
    left_chunks=st.one_of(st.none(), st.integers(0, 4)),
    kind=st.sampled_from(["stateless", "lstm"]),
    seed=st.integers(0, 1000),
)
def test_equals_greedy_over_the_masked_encoder(pushes, chunk_frames, left_chunks, kind, seed):
    model = MODELS[kind]
    generator = torch.Generator().manual_seed(seed)
    features = 3 * torch.randn(sum(pushes), 16, generator=generator)
    with torch.no_grad():
        lengths = torch.tensor([len(features)])
        enc, enc_lengths = model.encode(features[None], lengths, chunk_frames, left_chunks)
        (expected,) = greedy_decode(model, enc, enc_lengths)
    decoder = StreamingDecoder(model, chunk_frames, left_chunks)
    tokens = [token for piece in features.split(pushes) for token in decoder.push(piece)]
    tokens += decoder.finish()
    assert tokens == decoder.hypothesis.tokens == expected.tokens
    assert decoder.hypothesis.frames == expected.frames
    assert decoder.hypothesis.score == pytest.approx(expected.score, abs=1e-3)


def test_tokens_come_when_their_chunk_is_full():
    model = MODELS["stateless"]
    torch.manual_seed(1)
    features = 3 * torch.randn(95, 16)
    decoder = StreamingDecoder(model, chunk_frames=4, left_chunks=2)
    came = []
    for count, feature in enumerate(features, 1):
        came += [count] * len(decoder.push(feature[None]))
    frames = decoder.hypothesis.frames
    assert len(frames) > 5
    assert came == [4 * (frame // 4 + 1) * 4 + 3 for frame in frames]


def test_nothing_said():
    decoder = StreamingDecoder(MODELS["stateless"], 4, 2)
    assert decoder.push(torch.zeros(5, 16)) == []
    assert decoder.finish() == []
    assert decoder.hypothesis.tokens == []
    assert decoder.hypothesis.score == 0.0


def test_finished_stream_is_refused():
    decoder = StreamingDecoder(MODELS["stateless"], 4, 2)
    decoder.finish()
    message = r"^`state` belongs to a stream that was finished; start with None\.$"
    with pytest.raises(ValueError, match=message):
        decoder.push(torch.zeros(5, 16))
