"""The Emformer: streaming equals the whole, padding changes nothing, other chunks are refused."""

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asr_ascend.config.model_options import ModelOptions
from asr_ascend.models import Transducer, build_transducer
from tests.support.tiny_models import TINY

SEGMENTS = {
    "segment_frames": 3,
    "left_segments": 2,
    "right_context_frames": 2,
    "memory_segments": 2,
}
TINY_EMFORMER = {k: v for k, v in TINY.items() if k not in ("conv_kernel", "max_relative_position")}
TINY_EMFORMER |= {"encoder": "emformer", **SEGMENTS}


def tiny_emformer(**changes: int) -> Transducer:
    """In evaluation mode, with CMVN and biases away from their neutral start."""
    torch.manual_seed(0)
    model = build_transducer(7, 0, ModelOptions.read({**TINY_EMFORMER, **changes}))
    for name, parameter in model.encoder.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)
    model.set_cmvn(torch.randn(16), torch.rand(16) + 0.5)
    return model.eval()


MODEL = tiny_emformer()
CHUNKS = MODEL.encoder.fixed_chunks


def stream(model, features, pushes):
    """Encoder frames of a stream fed in pieces of the given sizes."""
    state, outputs = None, []
    for piece in features.split(pushes, dim=1):
        out, state = model.encode_step(piece, state, *model.encoder.fixed_chunks)
        assert out.shape[1] % model.encoder.fixed_chunks[0] == 0
        outputs.append(out)
    out, state = model.encode_step(features[:, :0], state, *model.encoder.fixed_chunks, True)
    assert state.encoder_frames == sum(o.shape[1] for o in [*outputs, out])
    return torch.cat([*outputs, out], dim=1)


def assert_streaming_equals_whole(model, features, pushes):
    lengths = torch.full((features.shape[0],), features.shape[1])
    whole, whole_lengths = model.encode(features, lengths, *model.encoder.fixed_chunks)
    streamed = stream(model, features, pushes)
    assert streamed.shape == whole.shape
    assert whole_lengths.tolist() == [whole.shape[1]] * features.shape[0]
    torch.testing.assert_close(streamed, whole, rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("num_features", [0, 6, 7, 10, 11, *range(14, 40), 63, 64, 65, 66, 101])
def test_every_length_of_the_last_segment(num_features):
    torch.manual_seed(num_features)
    assert_streaming_equals_whole(MODEL, torch.randn(1, num_features, 16), [num_features])


@torch.no_grad()
@pytest.mark.parametrize(
    "changes",
    [
        {"memory_segments": 0},
        {"left_segments": 0},
        {"right_context_frames": 0},
        {"left_segments": 0, "memory_segments": 0, "right_context_frames": 0},
        {"segment_frames": 1, "right_context_frames": 5},
        {"segment_frames": 8, "memory_segments": 9},
    ],
)
def test_every_kind_of_context(changes):
    model = tiny_emformer(**changes)
    for num_features in (7, 30, 47, 90, 101):
        torch.manual_seed(num_features)
        assert_streaming_equals_whole(model, torch.randn(2, num_features, 16), [num_features])


@settings(max_examples=40, deadline=None)
@given(pushes=st.lists(st.integers(0, 37), min_size=1, max_size=8), batch=st.integers(1, 3))
def test_any_sizes_of_pushes(pushes, batch):
    features = torch.randn(batch, sum(pushes), 16, generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        assert_streaming_equals_whole(MODEL, features, pushes)


@torch.no_grad()
def test_the_stream_is_torchaudios_own_inference():
    torch.manual_seed(0)
    features = torch.randn(1, 4 * 17 + 3, 16)  # 17 frames: five segments of 3 with 2 after the last
    normalised = (features - MODEL.feature_mean) / MODEL.feature_std
    frames = MODEL.encoder.subsampling(normalised)
    state, expected = None, []
    for start in range(0, 15, 3):
        out, lengths, state = MODEL.encoder.emformer.infer(
            frames[:, start : start + 5], torch.tensor([5]), state
        )
        assert lengths.tolist() == [3]
        expected.append(out)
    torch.testing.assert_close(
        stream(MODEL, features, [71])[:, :15], torch.cat(expected, 1), rtol=1e-5, atol=1e-5
    )


@torch.no_grad()
@pytest.mark.parametrize(
    "lengths", [(101, 58, 7, 31), (40, 101), (0, 101, 5), (43,), (9, 11), (6,)]
)
def test_padding_changes_nothing(lengths):
    torch.manual_seed(0)
    features = torch.full((len(lengths), 107, 16), float("nan"))
    for row, length in zip(features, lengths, strict=True):
        row[:length] = torch.randn(length, 16)
    together, out_lengths = MODEL.encode(features, torch.tensor(lengths), *CHUNKS)
    assert together.shape == (len(lengths), 26, 16)
    assert together.isfinite().all()
    for b, length in enumerate(lengths):
        alone, alone_lengths = MODEL.encode(
            features[b : b + 1, :length], torch.tensor([length]), *CHUNKS
        )
        assert out_lengths[b] == alone_lengths[0] == alone.shape[1] == max(0, (length - 3) // 4)
        torch.testing.assert_close(
            together[b, : alone.shape[1]], alone[0], rtol=1e-5, atol=1e-5, msg=f"sample {b}"
        )


@torch.no_grad()
def test_it_looks_no_further_ahead_than_the_right_context():
    torch.manual_seed(0)
    features = torch.randn(1, 83, 16)
    changed = features.clone()
    changed[:, 4 * (6 + 2) + 3 :] += 100.0  # two segments of 3 frames and 2 after them
    (out, _), (other, _) = (
        MODEL.encode(given, torch.tensor([83]), *CHUNKS) for given in (features, changed)
    )
    torch.testing.assert_close(out[:, :6], other[:, :6], rtol=0, atol=1e-5)
    assert (out[:, 6:] - other[:, 6:]).abs().amin(dim=(0, 2)).max() > 0.01


@torch.no_grad()
def test_left_context_and_memory_bound_what_it_remembers():
    """Layer by layer, frame 0 reaches at most as many segments as left context or memory do."""
    torch.manual_seed(0)
    features = torch.randn(1, 4 * 60 + 3, 16)
    changed = features.clone()
    changed[:, :3] += 10.0
    (out, _), (other, _) = (
        MODEL.encode(given, torch.tensor([243]), *CHUNKS) for given in (features, changed)
    )
    segments = (out - other).abs().amax(dim=(0, 2)).view(-1, 3).amax(dim=1)
    reach = 2 * 2  # two layers of two segments each
    assert (segments[: reach + 1] > 1e-4).all()
    assert (segments[reach + 1 :] < 1e-5).all()


@torch.no_grad()
def test_a_state_can_be_continued_twice_and_is_bounded():
    torch.manual_seed(0)
    first, second = torch.randn(1, 40, 16), torch.randn(1, 40, 16)
    state = None
    for _ in range(30):
        _, state = MODEL.encode_step(torch.randn(1, 13, 16), state, *CHUNKS)
        assert state.features.shape[1] < 4 * (3 + 2) + 3
    for memory, key, value, _ in state.layers:
        assert memory.shape == (2, 1, 16)
        assert key.shape == value.shape == (6, 1, 16)
    once, _ = MODEL.encode_step(first, state, *CHUNKS)
    MODEL.encode_step(second, state, *CHUNKS)
    again, _ = MODEL.encode_step(first, state, *CHUNKS)
    assert torch.equal(once, again)


def test_every_parameter_learns():
    model = tiny_emformer().train()
    out, _ = model.encode(torch.randn(2, 90, 16), torch.tensor([90, 71]), *CHUNKS)
    out.square().sum().backward()
    for name, parameter in model.encoder.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("chunks", [(None, None), (4, 2), (3, 4), (3, None)])
def test_other_chunks_are_one_sentence(chunks):
    message = (
        "`chunk_frames` and `left_chunks` must be (3, 2), which the encoder was built with, "
        f"but are {chunks}."
    )
    features = torch.randn(1, 30, 16)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        MODEL.encode(features, torch.tensor([30]), *chunks)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        MODEL.encode_step(features, None, *chunks)
