"""Convolutional subsampling: four 10 ms feature frames become one 40 ms encoder frame."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from asr_ascend.config.frames import (
    FEATURE_FRAMES_OVERLAP,
    FEATURE_FRAMES_PER_ENCODER_FRAME,
    features_for_frames,
)


def subsampled_lengths(feature_lengths: Tensor) -> Tensor:
    """Returns the number of encoder frames for numbers of feature frames.

    Encoder frame t sees feature frames 4t to 4t + 6, so fewer than 7 feature frames give none.

    Args:
        feature_lengths: any shape, integer, in feature frames.

    Returns:
        Same shape and dtype, (F - 3) // 4, never below 0.
    """
    rest = feature_lengths - FEATURE_FRAMES_OVERLAP
    whole = torch.div(rest, FEATURE_FRAMES_PER_ENCODER_FRAME, rounding_mode="floor")
    return whole.clamp(min=0)


class ConvSubsampling(nn.Module):
    """Two 3x3 convolutions of stride 2, a projection and a LayerNorm; no padding in time.

    Args:
        num_mel_bins: width of a feature frame, at least 7.
        channels: channels of both convolutions.
        output_dim: width of an encoder frame.
    """

    def __init__(self, num_mel_bins: int, channels: int, output_dim: int) -> None:
        super().__init__()
        if num_mel_bins < 7:
            raise ValueError(f"`num_mel_bins` must be at least 7, but is {num_mel_bins}.")
        self.conv1 = nn.Conv2d(1, channels, kernel_size=3, stride=2)
        self.conv2 = nn.Conv2d(channels, channels, kernel_size=3, stride=2)
        self.activation = nn.SiLU()
        mel_bins_out = ((num_mel_bins - 1) // 2 - 1) // 2
        self.projection = nn.Linear(channels * mel_bins_out, output_dim)
        self.norm = nn.LayerNorm(output_dim)

    def forward(self, features: Tensor) -> Tensor:
        """Computes encoder frames (B, T, D) of normalised features (B, F, num_mel_bins).

        T is `subsampled_lengths` of F.
        """
        num_features = features.shape[1]
        missing = features_for_frames(1) - num_features
        if missing > 0:
            features = nn.functional.pad(features, (0, 0, 0, missing))
        x = self.activation(self._first_convolution(features))
        x = self.activation(self.conv2(x))
        x = x.permute(0, 2, 3, 1).flatten(2)  # (B, T, mel_bins_out * channels)
        x = self.norm(self.projection(x))
        return x[:, :0] if missing > 0 else x

    def _first_convolution(self, features: Tensor) -> Tensor:
        """Applies `conv1` to (B, F, num_mel_bins): (B, channels, F', bins'), channels last on a
        CPU.

        On a CPU it is a matrix product, which takes a quarter of the convolution's time, forward
        and backward. With one input channel the convolution can't tell that channels come last. It
        would return channels first, which makes the second convolution twice as slow.
        """
        if features.device.type != "cpu":
            return self.conv1(features.unsqueeze(1).contiguous(memory_format=torch.channels_last))
        windows = features.unfold(1, 3, 2).unfold(2, 3, 2)  # (B, F', bins', 3, 3)
        # Transposed: its gradient is then the faster one of two ways to write the same product.
        weight = self.conv1.weight.flatten(1).t().contiguous()
        assert self.conv1.bias is not None
        rows = torch.addmm(self.conv1.bias, windows.reshape(-1, weight.shape[0]), weight)
        return rows.view(*windows.shape[:3], -1).permute(0, 3, 1, 2)
