"""Subsampling: lengths, receptive field, short input."""

import pytest
import torch

from asr_ascend.models.subsampling import ConvSubsampling, features_for_frames, subsampled_lengths


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
