"""Log-mel features, at once and as a stream, and their normalisation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torchaudio.functional
from torch import Tensor, nn

from asr_ascend.config.frames import FEATURE_HOP_MS, FEATURE_WINDOW_MS


class LogMel(nn.Module):
    """Natural logarithm of mel filter-bank energies over causal 25 ms windows every 10 ms.

    Frame t reads samples [t * hop, t * hop + window) and nothing else: no padding, no look-ahead,
    so a stream gives the same frames (`FeatureStream`).

    Args:
        sample_rate_hz: rate of the waveforms.
        num_mel_bins: mel bands between `low_hz` and `high_hz` (default: 95% of the Nyquist rate).
        low_hz: lower edge of the lowest band.
        high_hz: upper edge of the highest band.
        floor: energy added before the logarithm; bounds the feature of digital silence.
    """

    window: Tensor
    mel_weights: Tensor

    def __init__(
        self,
        sample_rate_hz: int = 16000,
        num_mel_bins: int = 80,
        low_hz: float = 20.0,
        high_hz: float | None = None,
        floor: float = 1e-6,
    ) -> None:
        super().__init__()
        if sample_rate_hz < 1000:
            raise ValueError(f"`sample_rate_hz` must be at least 1000, but is {sample_rate_hz}.")
        high_hz = 0.475 * sample_rate_hz if high_hz is None else high_hz
        if not 0 <= low_hz < high_hz <= sample_rate_hz / 2:
            raise ValueError(
                f"`low_hz` and `high_hz` must be in order within [0, {sample_rate_hz / 2:g}], "
                f"but are {low_hz:g} and {high_hz:g}."
            )
        self.sample_rate_hz = sample_rate_hz
        self.num_mel_bins = num_mel_bins
        self.window_samples = sample_rate_hz * FEATURE_WINDOW_MS // 1000
        self.hop_samples = sample_rate_hz * FEATURE_HOP_MS // 1000
        self.fft_samples = 1 << (self.window_samples - 1).bit_length()
        self.floor = floor
        window = torch.hann_window(self.window_samples)
        weights = torchaudio.functional.melscale_fbanks(
            self.fft_samples // 2 + 1, low_hz, high_hz, num_mel_bins, sample_rate_hz
        )
        self.register_buffer("window", window, persistent=False)
        self.register_buffer("mel_weights", weights, persistent=False)

    def num_frames(self, num_samples: int) -> int:
        """Returns a waveform's frames: 1 + (samples - window) // hop, or 0 if it is too short."""
        return max(0, 1 + (num_samples - self.window_samples) // self.hop_samples)

    def forward(self, waveform: Tensor) -> Tensor:
        """Computes log-mel energies.

        Args:
            waveform: (..., samples) float, full scale at 1.

        Returns:
            (..., frames, num_mel_bins) of the same dtype; frames = `num_frames(samples)`.
        """
        if waveform.shape[-1] < self.window_samples:
            return waveform.new_zeros(*waveform.shape[:-1], 0, self.num_mel_bins)
        frames = waveform.unfold(-1, self.window_samples, self.hop_samples) * self.window
        spectrum = torch.fft.rfft(frames, n=self.fft_samples)
        power = spectrum.real.square() + spectrum.imag.square()
        return torch.matmul(power, self.mel_weights).add_(self.floor).log_()


class FeatureStream:
    """`LogMel` of a waveform that arrives in pieces; the frames equal those of the whole.

    Args:
        log_mel: the features to stream.
    """

    def __init__(self, log_mel: LogMel) -> None:
        self.log_mel = log_mel
        self._pending = torch.zeros(0)

    def push(self, samples: Tensor) -> Tensor:
        """Returns the frames (frames, num_mel_bins) that `samples` (n,) complete; often none.

        Raises:
            ValueError: `samples` is not 1-D.
        """
        if samples.dim() != 1:
            raise ValueError(f"`samples` must be 1-D, but has shape {tuple(samples.shape)}.")
        self._pending = torch.cat([self._pending.to(samples), samples])
        frames = self.log_mel.num_frames(self._pending.numel())
        features = self.log_mel(self._pending)
        self._pending = self._pending[frames * self.log_mel.hop_samples :].clone()
        return features

    def finish(self) -> Tensor:
        """Ends the stream and returns (0, num_mel_bins): an incomplete window gives no frame.

        The stream can then take another waveform.
        """
        empty = self._pending.new_zeros(0, self.log_mel.num_mel_bins)
        self._pending = self._pending[:0]
        return empty


@dataclass(frozen=True)
class FeatureStatistics:
    """Mean and standard deviation of each feature bin over a training set (CMVN).

    The model keeps them and normalises its input by them (`Transducer.set_cmvn`).

    Args:
        mean: (num_mel_bins,) float.
        std: (num_mel_bins,) float, positive.
    """

    mean: Tensor
    std: Tensor

    def __post_init__(self) -> None:
        if self.mean.dim() != 1 or self.mean.shape != self.std.shape:
            raise ValueError(
                "`mean` and `std` must be 1-D and of one length, but have shapes "
                f"{tuple(self.mean.shape)} and {tuple(self.std.shape)}."
            )
        if not bool((self.std > 0).all()):
            least = float(self.std.min())
            raise ValueError(f"`std` must be positive, but its minimum is {least:g}.")

    @classmethod
    def from_utterances(
        cls, features: Iterable[Tensor], min_std: float = 1e-2
    ) -> FeatureStatistics:
        """Computes the statistics over all frames of `features`.

        Args:
            features: log-mel of each utterance, (frames, num_mel_bins); frames may be 0.
            min_std: floor of the deviation, for a bin that hardly changes.

        Raises:
            ValueError: `features` hold no frame.
        """
        count = 0
        mean = square = torch.zeros(())
        for utterance in features:
            wide = utterance.to(torch.float64)
            count += wide.shape[0]
            mean = mean + wide.sum(0)
            square = square + wide.square().sum(0)
        if count == 0:
            raise ValueError("`features` must hold at least one frame, but hold none.")
        mean = mean / count
        variance = (square / count - mean.square()).clamp(min=0)
        std = variance.sqrt().clamp(min=min_std)
        return cls(mean.to(torch.float32), std.to(torch.float32))
