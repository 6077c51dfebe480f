"""`encode_step` chunk by chunk equals `encode` over the whole, for every chunk size and length."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tiny_models import tiny_transducer

MODEL = tiny_transducer()


def stream(features, pushes, chunk_frames, left_chunks, final_with_last_push=False):
    """Encoder frames of a stream fed in pieces of the given sizes, and its last state."""
    state, outputs, start = None, [], 0
    for index, size in enumerate(pushes):
        final = final_with_last_push and index == len(pushes) - 1
        piece = features[:, start : start + size]
        out, state = MODEL.encode_step(piece, state, chunk_frames, left_chunks, final)
        if chunk_frames is None and not final:
            assert out.shape[1] == 0
        elif not final:
            assert out.shape[1] % chunk_frames == 0
        outputs.append(out)
        start += size
    assert start == features.shape[1]
    if not final_with_last_push:
        out, state = MODEL.encode_step(features[:, :0], state, chunk_frames, left_chunks, True)
        outputs.append(out)
    return torch.cat(outputs, dim=1), state


def assert_streaming_equals_whole(features, pushes, chunk_frames, left_chunks, last=False):
    lengths = torch.full((features.shape[0],), features.shape[1])
    whole, whole_lengths = MODEL.encode(features, lengths, chunk_frames, left_chunks)
    streamed, state = stream(features, pushes, chunk_frames, left_chunks, last)
    assert streamed.shape == whole.shape
    assert state.encoder_frames == whole.shape[1] == whole_lengths[0]
    torch.testing.assert_close(streamed, whole, rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("num_features", [*range(0, 20), 45, 46, 47, 48, 67])
def test_every_chunk_size_up_to_the_utterance(num_features):
    torch.manual_seed(num_features)
    features = torch.randn(1, num_features, 16)
    frames = int(MODEL.encoder_lengths(torch.tensor(num_features)))
    chunks = [*range(1, frames + 2), None]
    for chunk_frames, left_chunks in itertools.product(chunks, (0, 1, 3, None)):
        assert_streaming_equals_whole(features, [num_features], chunk_frames, left_chunks)


@settings(max_examples=60, deadline=None)
@given(
    pushes=st.lists(st.integers(0, 37), min_size=1, max_size=8),
    chunk_frames=st.one_of(st.none(), st.integers(1, 12)),
    left_chunks=st.one_of(st.none(), st.integers(0, 5)),
    batch=st.integers(1, 3),
    last=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_any_sizes_of_pushes(pushes, chunk_frames, left_chunks, batch, last, seed):
    features = torch.randn(batch, sum(pushes), 16, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        assert_streaming_equals_whole(features, pushes, chunk_frames, left_chunks, last)


@torch.no_grad()
def test_state_of_a_long_stream_is_bounded():
    chunk_frames, left_chunks = 3, 2
    state = None
    torch.manual_seed(0)
    for step in range(60):
        out, state = MODEL.encode_step(torch.randn(1, 13, 16), state, chunk_frames, left_chunks)
        assert state.features.shape[1] < 4 * chunk_frames + 3
        assert state.features.untyped_storage().nbytes() == state.features.numel() * 4
        if state.layers is None:
            assert step == 0 and out.shape[1] == 0
            continue
        for layer in state.layers:
            assert layer.attention[0].shape[2] <= left_chunks * chunk_frames
            assert layer.attention[1].shape == layer.attention[0].shape
            assert layer.convolution.shape == (1, 4, 16)
            # A view into more than one chunk and its past would keep old chunks alive.
            held = layer.attention[0].untyped_storage().nbytes()
            assert held <= 4 * 16 * (left_chunks + 1) * chunk_frames * 3
    assert state.encoder_frames == (60 * 13 - 3) // (4 * chunk_frames) * chunk_frames


@torch.no_grad()
def test_a_state_can_be_continued_twice():
    torch.manual_seed(0)
    start, first, second = (torch.randn(1, 40, 16) for _ in range(3))
    _, state = MODEL.encode_step(start, None, 2, 2)
    out_first, _ = MODEL.encode_step(first, state, 2, 2)
    MODEL.encode_step(second, state, 2, 2)
    again, _ = MODEL.encode_step(first, state, 2, 2)
    assert torch.equal(out_first, again)


@torch.no_grad()
def test_future_beyond_the_chunk_changes_nothing():
    torch.manual_seed(0)
    features = torch.randn(1, 83, 16)
    changed = features.clone()
    changed[:, 4 * 8 + 3 :] += 100.0
    lengths = torch.tensor([83])
    out, _ = MODEL.encode(features, lengths, 4, None)
    other, _ = MODEL.encode(changed, lengths, 4, None)
    torch.testing.assert_close(out[:, :8], other[:, :8], rtol=0, atol=1e-5)
    assert (out[:, 8:] - other[:, 8:]).abs().amin(dim=(0, 2)).max() > 0.01


@torch.no_grad()
def test_finished_stream_is_refused():
    _, state = MODEL.encode_step(torch.randn(1, 9, 16), None, 2, 2, final=True)
    message = r"^`state` belongs to a stream that was finished; start with None\.$"
    with pytest.raises(ValueError, match=message):
        MODEL.encode_step(torch.randn(1, 9, 16), state, 2, 2)


@torch.no_grad()
def test_chunks_that_change_are_refused():
    _, state = MODEL.encode_step(torch.randn(1, 9, 16), None, 2, 2)
    message = (
        r"^`chunk_frames` and `left_chunks` must stay what the stream was started with \(2, 2\), "
        r"but are \(3, None\)\.$"
    )
    with pytest.raises(ValueError, match=message):
        MODEL.encode_step(torch.randn(1, 9, 16), state, 3, None)
