"""Subsampling: lengths, receptive field, short input."""

import pytest
import torch

from asr_ascend.config.frames import features_for_frames
from asr_ascend.models.subsampling import ConvSubsampling, subsampled_lengths


def test_lengths_table():
    features = torch.tensor([0, 1, 2, 3, 6, 7, 10, 11, 14, 15, 398, 399])
    expected = torch.tensor([0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 98, 99])
    assert torch.equal(subsampled_lengths(features), expected)


def test_chunk_of_frames_needs_exactly_its_features():
    for frames in range(1, 200):
        features = features_for_frames(frames)
        assert features == 4 * frames + 3
        counts = subsampled_lengths(torch.tensor([features - 1, features]))
        assert counts.tolist() == [frames - 1, frames]


@pytest.mark.parametrize("num_features", [0, 1, 6, 7, 8, 50, 51, 52, 53])
def test_output_has_the_promised_length(num_features):
    subsampling = ConvSubsampling(num_mel_bins=20, channels=3, output_dim=5)
    out = subsampling(torch.randn(2, num_features, 20))
    frames = int(subsampled_lengths(torch.tensor(num_features)))
    assert out.shape == (2, frames, 5)


def test_frame_sees_seven_feature_frames_from_four_times_its_index():
    torch.manual_seed(0)
    subsampling = ConvSubsampling(num_mel_bins=20, channels=3, output_dim=5)
    features = torch.randn(1, 23, 20, requires_grad=True)
    for t in range(5):
        (gradient,) = torch.autograd.grad(subsampling(features)[0, t].square().sum(), features)
        seen = gradient[0].abs().sum(-1).nonzero().flatten().tolist()
        assert seen == list(range(4 * t, 4 * t + 7))


def test_too_few_mel_bins():
    with pytest.raises(ValueError, match=r"^`num_mel_bins` must be at least 7, but is 6\.$"):
        ConvSubsampling(num_mel_bins=6, channels=3, output_dim=5)


@pytest.mark.parametrize(("mel_bins", "num_features"), [(80, 57), (20, 7), (7, 9), (21, 30)])
def test_the_first_convolution_is_the_one_its_weights_describe(mel_bins, num_features):
    torch.manual_seed(0)
    subsampling = ConvSubsampling(mel_bins, channels=4, output_dim=5).double()
    features = torch.randn(3, num_features, mel_bins, dtype=torch.float64)
    found = subsampling._first_convolution(features)
    expected = subsampling.conv1(features[:, None])
    torch.testing.assert_close(found, expected)
    upstream = torch.randn_like(expected)
    parameters = list(subsampling.conv1.parameters())
    for got, wanted in zip(
        torch.autograd.grad(found, parameters, upstream),
        torch.autograd.grad(expected, parameters, upstream),
        strict=True,
    ):
        torch.testing.assert_close(got, wanted)


def test_the_second_convolution_gets_its_channels_last():
    """Its time on a CPU is half of what it is with channels first."""
    seen = []
    subsampling = ConvSubsampling(num_mel_bins=80, channels=32, output_dim=16)
    subsampling.conv2.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    subsampling(torch.randn(2, 60, 80))
    assert seen[0].shape == (2, 32, 29, 39)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    assert not seen[0].is_contiguous()
