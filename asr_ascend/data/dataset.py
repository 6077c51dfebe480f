"""A batch, and the dataset that makes one from a list of utterances."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from asr_ascend.config.frames import encoder_frames
from asr_ascend.data import filtering
from asr_ascend.data.audio import AudioError, read_utterance
from asr_ascend.data.augment import SpecAugment, SpeedPerturbation
from asr_ascend.data.features import LogMel
from asr_ascend.data.manifest import Utterance
from asr_ascend.data.noise import NoiseSource, mix_at_snr
from asr_ascend.data.rooms import RoomMix
from asr_ascend.data.sampler import UtteranceCost
from asr_ascend.data.seeding import integer, seeded_generator, uniform
from asr_ascend.system.threads import single_thread

_TOLERANCE_SECONDS = 0.05


@dataclass
class Batch:
    """Padded utterances; B may be 0 when every utterance of a batch had to be skipped.

    Args:
        features: (B, F, num_mel_bins) float32 raw log-mel, 0 beyond each length.
        feature_lengths: (B,) int64 frames.
        targets: (B, U) int64 token ids, 0 beyond each length.
        target_lengths: (B,) int64.
        ids: of the utterances, B of them.
        num_skipped: utterances that belong here but could not be used, by reason.
    """

    features: Tensor
    feature_lengths: Tensor
    targets: Tensor
    target_lengths: Tensor
    ids: list[str]
    num_skipped: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class NoiseMix:
    """How noise is added.

    Args:
        bank: where clips come from.
        snr_db: lowest and highest ratio, drawn uniformly.
        probability: of adding any.
    """

    bank: NoiseSource
    snr_db: tuple[float, float]
    probability: float = 1.0


class SpeechDataset:
    """Batches by (epoch, indices); an utterance's draws depend only on (seed, epoch, id).

    Args:
        utterances: all that may be asked for.
        targets: token ids of each utterance.
        log_mel: features.
        limits: what audio must meet once it is read.
        seed: of every draw.
        speed: None for none.
        rooms: None for none.
        noise: None for clean.
        spec_augment: None for none.
        cache_audio_bytes: decoded audio kept in memory, 0 for none.
        clean_from: utterances from this index on get neither noise nor a room; None: all may.
    """

    def __init__(
        self,
        utterances: Sequence[Utterance],
        targets: Sequence[Sequence[int]],
        log_mel: LogMel,
        limits: filtering.Limits,
        *,
        seed: int = 0,
        speed: SpeedPerturbation | None = None,
        rooms: RoomMix | None = None,
        noise: NoiseMix | None = None,
        spec_augment: SpecAugment | None = None,
        cache_audio_bytes: int = 0,
        clean_from: int | None = None,
    ) -> None:
        self.utterances = list(utterances)
        self.targets = [list(target) for target in targets]
        self.log_mel = log_mel
        self.limits = limits
        self.seed = seed
        self.speed = speed
        self.rooms = rooms
        self.noise = noise
        self.spec_augment = spec_augment
        self.clean_from = len(self.utterances) if clean_from is None else clean_from
        self._cache_left = cache_audio_bytes
        self._cache: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return len(self.utterances)

    def __getitem__(self, work: tuple[int, Sequence[int]]) -> Batch:
        """Returns the batch of the utterances `work[1]` as they are in epoch `work[0]`."""
        epoch, indices = work
        kept: list[int] = []
        features: list[Tensor] = []
        skipped: Counter[str] = Counter()
        with single_thread(), torch.no_grad():
            for index in indices:
                found = self._features(index, epoch)
                if isinstance(found, Tensor):
                    kept.append(index)
                    features.append(found)
                else:
                    skipped[found] += 1
        return collate(
            features,
            [self.targets[index] for index in kept],
            [self.utterances[index].id for index in kept],
            dict(skipped),
            self.log_mel.num_mel_bins,
        )

    def audio(self, index: int) -> Tensor:
        """Returns the waveform of one utterance, (samples,) float32 at the rate of `log_mel`.

        A fault of its file that still lets it be used gives a warning.

        Raises:
            AudioError: the file cannot be read, or is known to lack a part of the utterance.
        """
        if index in self._cache:
            return self._cache[index]
        utterance = self.utterances[index]
        recording = read_utterance(utterance, self.log_mel.sample_rate_hz)
        waveform = recording.waveform
        missing = utterance.duration - waveform.numel() / self.log_mel.sample_rate_hz
        if recording.lost and missing > _TOLERANCE_SECONDS:
            raise AudioError(utterance.audio_path, "; ".join(recording.warnings))
        for sentence in recording.warnings:
            warnings.warn(f"{utterance.audio_path}: {sentence}", stacklevel=2)
        size = waveform.numel() * waveform.element_size()
        if size <= self._cache_left:
            self._cache_left -= size
            self._cache[index] = waveform
        return waveform

    def clean_features(self, count: int) -> Iterator[Tensor]:
        """Yields log-mel features (frames, num_mel_bins) of the first `count` utterances.

        No augmentation is applied. Utterances that can't be read are left out.
        """
        for index in range(min(count, len(self))):
            try:
                with single_thread(), torch.no_grad():
                    features: Tensor = self.log_mel(self.audio(index))
                    yield features
            except AudioError:
                continue  # counted when its batch comes

    def costs(self) -> list[UtteranceCost]:
        """Returns the cost of each utterance at its slowest speed."""
        rate_hz = self.log_mel.sample_rate_hz
        costs = []
        for index, utterance in enumerate(self.utterances):
            seconds = self.longest_seconds(index)
            frames = encoder_frames(self.log_mel.num_frames(round(seconds * rate_hz)))
            costs.append(UtteranceCost(utterance.id, seconds, frames, len(self.targets[index])))
        return costs

    def _features(self, index: int, epoch: int) -> Tensor | str:
        utterance = self.utterances[index]
        try:
            waveform = self.audio(index)
        except AudioError as error:
            warnings.warn(f"Skipped utterance '{utterance.id}': {error}", stacklevel=2)
            return filtering.UNREADABLE
        reason = self._reason_to_skip(index, waveform.numel())
        if reason is not None:
            warnings.warn(f"Skipped utterance '{utterance.id}': {reason}", stacklevel=2)
            return reason
        waveform = self._changed(index, epoch, waveform)
        generator = seeded_generator("augmentation", self.seed, epoch, utterance.id)
        noise = self.noise if index < self.clean_from else None
        if noise is not None and uniform(0, 1, generator) < noise.probability:
            snr_db = uniform(*noise.snr_db, generator)
            clip = noise.bank.crop(waveform.numel(), generator)
            waveform = mix_at_snr(waveform, clip, snr_db, self.log_mel.sample_rate_hz)
        features: Tensor = self.log_mel(waveform)
        return self.spec_augment(features, generator) if self.spec_augment else features

    def speeds(self, index: int, seconds: float | None = None) -> list[float]:
        """Returns the speeds at which an utterance is within all limits, [1.0] where none is.

        Args:
            index: of the utterance.
            seconds: its duration; None: as the manifest states.
        """
        if self.speed is None:
            return [1.0]
        utterance = self.utterances[index]
        seconds = utterance.duration if seconds is None else seconds
        fitting = []
        for factor in self.speed.factors:
            duration = seconds / factor
            frames = self.log_mel.num_frames(int(duration * self.log_mel.sample_rate_hz))
            target = self.targets[index]
            if self.limits.reason_to_skip(utterance.text, target, duration, frames) is None:
                fitting.append(factor)
        return fitting or [1.0]

    def longest_seconds(self, index: int) -> float:
        """Returns the duration in seconds of an utterance at its slowest speed.

        A batch must have room for that.
        """
        return self.utterances[index].duration / min(self.speeds(index))

    def _changed(self, index: int, epoch: int, waveform: Tensor) -> Tensor:
        """Returns the waveform at a drawn speed and in a drawn room.

        Both draws have their own generators, so the draws of noise and SpecAugment don't depend on
        them.
        """
        utterance = self.utterances[index]
        if self.speed is not None:
            generator = seeded_generator("speed", self.seed, epoch, utterance.id)
            stated = self.speeds(index)
            factor = stated[integer(0, len(stated) - 1, generator)]
            seconds = waveform.numel() / self.log_mel.sample_rate_hz
            if factor in self.speeds(index, seconds):
                waveform = self.speed(waveform, factor)
        if self.rooms is not None and index < self.clean_from:
            generator = seeded_generator("room", self.seed, epoch, utterance.id)
            if uniform(0, 1, generator) < self.rooms.probability:
                waveform = self.rooms.responses.apply(waveform, generator)
        return waveform

    def _reason_to_skip(self, index: int, num_samples: int) -> str | None:
        utterance = self.utterances[index]
        seconds = num_samples / self.log_mel.sample_rate_hz
        # The batch was made for the duration that the manifest states: its bound must hold.
        if seconds > utterance.duration + _TOLERANCE_SECONDS:
            return filtering.LONGER_THAN_STATED
        frames = self.log_mel.num_frames(num_samples)
        stated = min(seconds, utterance.duration)
        return self.limits.reason_to_skip(utterance.text, self.targets[index], stated, frames)


def collate(
    features: Sequence[Tensor],
    targets: Sequence[Sequence[int]],
    ids: Sequence[str],
    num_skipped: dict[str, int],
    num_mel_bins: int,
) -> Batch:
    """Pads the features and targets of B utterances into a `Batch`; B may be 0.

    Args:
        features: B of (frames, num_mel_bins) float32.
        targets: B lists of token ids.
        ids: of the B utterances.
        num_skipped: utterances left out of this batch, by reason.
        num_mel_bins: width of the result where B is 0.
    """
    feature_lengths = torch.tensor([len(item) for item in features], dtype=torch.int64)
    target_lengths = torch.tensor([len(item) for item in targets], dtype=torch.int64)
    most_frames = max((len(item) for item in features), default=0)
    most_tokens = max((len(item) for item in targets), default=0)
    padded = torch.zeros(len(features), most_frames, num_mel_bins)
    padded_targets = torch.zeros(len(targets), most_tokens, dtype=torch.int64)
    for row, item in enumerate(features):
        padded[row, : len(item)] = item
    for row, target in enumerate(targets):
        padded_targets[row, : len(target)] = torch.tensor(target, dtype=torch.int64)
    return Batch(padded, feature_lengths, padded_targets, target_lengths, list(ids), num_skipped)
