"""From two manifests to training and validation batches, a tokenizer and CMVN statistics."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning

from asr_ascend.data import augment_options, filtering, noise, replay
from asr_ascend.data.augment import SpecAugment
from asr_ascend.data.dataset import Batch, NoiseMix, SpeechDataset
from asr_ascend.data.features import CMVN, LogMel
from asr_ascend.data.loader import BatchLoader, FixedBatches
from asr_ascend.data.manifest import Utterance, load_manifest
from asr_ascend.data.sampler import LatticeCostBatchSampler
from asr_ascend.data.tokenizer import Tokenizer

__all__ = ["Batch", "SpeechDataModule"]

_CMVN_UTTERANCES = 200


class SpeechDataModule(lightning.LightningDataModule):
    """Batches of raw log-mel and token ids, bounded by lattice cost.

    After `setup`: `tokenizer`, `cmvn`, `log_mel`, `train_dataset`, `valid_dataset`, and `skipped`,
    which counts the utterances left out of each manifest by reason.

    Args:
        train_manifest: JSONL file.
        valid_manifest: JSONL file.
        tokenizer: None: one is trained on the training texts. A function makes one of them.
        blank: of a tokenizer trained here, in [-V, V-1].
        tokenizer_type: "char", "bpe" or "unigram", of a tokenizer trained here.
        tokenizer_vocab_size: V of a "bpe" or "unigram" tokenizer trained here.
        cmvn: None: statistics of the first 200 training utterances, clean.
        replay_manifest: JSONL file of older data mixed back in, without noise or room; None: none.
        replay_share: part of an epoch's utterances that come from it.
        max_lattice_bytes: bound of a batch's joiner output.
        bytes_per_logit: 4 for float32 logits, 2 for half precision.
        max_batch_seconds: bound of a batch's padded audio.
        max_utterance_seconds: longer utterances are skipped and counted.
        num_workers: processes that prepare batches; 0 costs least for a small model on a CPU.
        seed: of batch order and of every draw of noise, room, speed and SpecAugment.
        noise_probability: part of the training utterances with noise.
        snr_db: lowest and highest SNR of that noise, drawn uniformly.
        noise_kinds: see `asr_ascend.data.noise`; "corona" is left for evaluation.
        noise_clips: clips in the noise bank.
        noise_clip_seconds: length of each.
        mains_hz: 50 or 60.
        noise_banks: folders of banks on disk, in place of the one in memory; None for that.
        noise_weights: how often each of these banks is drawn; None: equally often.
        valid_snr_db: SNR of the validation set's fixed noise; None for clean.
        valid_noise_banks: as `noise_banks`, of the validation set.
        rooms_dir: folder of room responses (`asr_ascend.data.rooms`); None for none.
        room_probability: part of the training utterances that are heard in one of them.
        speed_factors: training speeds, drawn equally often; [1.0] for the recorded one.
        spec_augment: arguments of `SpecAugment`; None for none.
        cache_audio_bytes: decoded training audio kept in memory (without workers).
        sample_rate_hz: audio is resampled to it.
        num_mel_bins: features per frame.

    Raises:
        ValueError: an argument out of range.
    """

    def __init__(
        self,
        train_manifest: str,
        valid_manifest: str,
        *,
        tokenizer: Tokenizer | Callable[[Iterable[str]], Tokenizer] | None = None,
        blank: int = -1,
        tokenizer_type: str = "char",
        tokenizer_vocab_size: int | None = None,
        cmvn: CMVN | None = None,
        replay_manifest: str | None = None,
        replay_share: float = 0.2,
        max_lattice_bytes: int = 256 * 2**20,
        bytes_per_logit: int = 4,
        max_batch_seconds: float = 20.0,
        max_utterance_seconds: float = 20.0,
        num_workers: int = 0,
        seed: int = 0,
        noise_probability: float = 0.8,
        snr_db: Sequence[float] = (-5.0, 20.0),
        noise_kinds: Sequence[str] = noise.TRAINING_KINDS,
        noise_clips: int = 160,
        noise_clip_seconds: float = 8.0,
        mains_hz: float = 50.0,
        noise_banks: Sequence[str] | None = None,
        noise_weights: Sequence[float] | None = None,
        valid_snr_db: float | None = None,
        valid_noise_banks: Sequence[str] | None = None,
        rooms_dir: str | None = None,
        room_probability: float = 0.5,
        speed_factors: Sequence[float] = (1.0,),
        spec_augment: Mapping[str, Any] | None = None,
        cache_audio_bytes: int = 512 * 2**20,
        sample_rate_hz: int = 16000,
        num_mel_bins: int = 80,
    ) -> None:
        super().__init__()
        filtering.check_seconds(max_batch_seconds, max_utterance_seconds)
        augment_options.check_augmentation(
            noise_probability, snr_db, noise_banks, noise_weights, room_probability
        )
        self.train_manifest = Path(train_manifest).expanduser()
        self.valid_manifest = Path(valid_manifest).expanduser()
        self.replay_manifest = Path(replay_manifest).expanduser() if replay_manifest else None
        self.replay_share = replay_share
        replay.replay_count(replay_share, 0)  # a wrong share is told now, not after set-up
        self.tokenizer: Any = tokenizer
        self.blank = blank
        self.tokenizer_type = tokenizer_type
        self.tokenizer_vocab_size = tokenizer_vocab_size
        self.cmvn = cmvn
        self.max_lattice_bytes = max_lattice_bytes
        self.bytes_per_logit = bytes_per_logit
        self.max_batch_seconds = max_batch_seconds
        self.max_utterance_seconds = min(max_utterance_seconds, max_batch_seconds)
        self.num_workers = num_workers
        self.seed = seed
        self.noise_probability = noise_probability
        self.snr_db = (float(snr_db[0]), float(snr_db[1]))
        self.noise_kinds = tuple(noise_kinds)
        self.noise_clips = noise_clips
        self.noise_clip_seconds = noise_clip_seconds
        self.mains_hz = mains_hz
        self.noise_banks = noise_banks
        self.noise_weights = noise_weights
        self.valid_snr_db = valid_snr_db
        self.valid_noise_banks = valid_noise_banks
        self.rooms = augment_options.room_mix(rooms_dir, room_probability, sample_rate_hz)
        self.speed = augment_options.speed_perturbation(speed_factors, sample_rate_hz)
        self.spec_augment = None if spec_augment is None else dict(spec_augment)
        SpecAugment(**(self.spec_augment or {}))  # a wrong argument is told now, not after set-up
        self.cache_audio_bytes = cache_audio_bytes
        self.log_mel = LogMel(sample_rate_hz, num_mel_bins)
        self.train_dataset: SpeechDataset | None = None
        self.valid_dataset: SpeechDataset | None = None
        self.rotation: list[list[int]] = []
        self.skipped: dict[str, dict[str, int]] = {}

    def setup(self, stage: str | None = None) -> None:
        """Reads both manifests, trains what was not given; later calls do nothing.

        Raises:
            ManifestError: lists a manifest's problems.
            ValueError: a manifest without one usable utterance.
        """
        if self.train_dataset is not None:
            return
        utterances = load_manifest(self.train_manifest)
        valid = load_manifest(self.valid_manifest)
        older = load_manifest(self.replay_manifest) if self.replay_manifest else []
        self.tokenizer = self._tokenizer(utterance.text for utterance in [*utterances, *older])
        train = self._training_set(utterances, older)
        train.speed, train.rooms = self.speed, self.rooms
        if self.cmvn is None:
            self.cmvn = CMVN.from_utterances(train.clean_features(_CMVN_UTTERANCES))
        if self.noise_probability > 0:
            bank = self._bank(self.noise_banks, self.noise_weights, self.noise_clips, self.seed)
            train.noise = NoiseMix(bank, self.snr_db, self.noise_probability)
        if self.spec_augment is not None:
            fill = self.cmvn.mean.clone()
            train.spec_augment = SpecAugment(**{"fill": fill, **self.spec_augment})
        # Unknown characters stay in validation: the model can't write them, and that is an error.
        valid, targets = self._usable(valid, "valid", None)
        self.valid_dataset = self._dataset(valid, targets, None)
        if self.valid_snr_db is not None:
            bank = self._bank(self.valid_noise_banks, None, 16, self.seed + 1)
            self.valid_dataset.noise = NoiseMix(bank, (self.valid_snr_db, self.valid_snr_db))
        self.train_dataset = train

    def train_dataloader(self) -> BatchLoader:
        """Shuffled batches of this rank; its `state_dict` resumes within an epoch."""
        dataset = self._ready(self.train_dataset)
        return BatchLoader(dataset, self._sampler(dataset, shuffle=True), self.num_workers)

    def val_dataloader(self) -> FixedBatches:
        """This rank's validation batches by length, with the same noise every time."""
        dataset = self._ready(self.valid_dataset)
        return FixedBatches(dataset, self._sampler(dataset, shuffle=False))

    def describe(self) -> str:
        """Lines to print before training: sizes, memory bound, utterances skipped by reason."""
        train, valid = self._ready(self.train_dataset), self._ready(self.valid_dataset)
        return "\n".join(
            [
                f"Training: {self._sampler(train, shuffle=True).describe()}",
                f"Validation: {self._sampler(valid, shuffle=False).describe()}",
                f"Vocabulary: {self.tokenizer.vocab_size}, blank {self.tokenizer.blank}",
                *(
                    f"Skipped of {name}: {filtering.describe_skipped(counts)}"
                    for name, counts in self.skipped.items()
                ),
            ]
        )

    def _tokenizer(self, texts: Iterable[str]) -> Tokenizer:
        given = self.tokenizer
        if isinstance(given, Tokenizer):
            return given
        if given is not None:
            made: Tokenizer = given(texts)
            return made
        kind, size = self.tokenizer_type, self.tokenizer_vocab_size
        return Tokenizer.train(texts, blank=self.blank, model_type=kind, vocab_size=size)

    def _training_set(self, new: list[Utterance], older: list[Utterance]) -> SpeechDataset:
        """Training utterances, then those to replay: a group of them in each epoch."""
        unk = self.tokenizer.unk
        new, targets = self._usable(new, "train", unk)
        if not older:
            return self._dataset(new, targets, unk)
        # The same id may be in both manifests, and seeds draws.
        older = [replace(utterance, id=f"replay/{utterance.id}") for utterance in older]
        older, older_targets = self._usable(older, "replay", unk)
        wanted = replay.replay_count(self.replay_share, len(new))
        groups = replay.rotation(len(older), wanted, self.seed)
        self.rotation = [[len(new) + index for index in group] for group in groups]
        return self._dataset([*new, *older], [*targets, *older_targets], unk, len(new))

    def _usable(
        self, utterances: list[Utterance], name: str, unk: int | None
    ) -> tuple[list[Utterance], list[list[int]]]:
        """Utterances within the limits, with targets; the others are counted and told."""
        limits, encode = self._limits(unk), self.tokenizer.encode
        kept, targets, skipped = filtering.usable(utterances, limits, encode, self._frames)
        self.skipped[name] = skipped
        path = getattr(self, f"{name}_manifest")
        told = f"{filtering.describe_skipped(skipped)} of {len(utterances)} utterances of {path}"
        if not kept:
            raise ValueError(f"`{name}_manifest` must have a usable utterance, but skipped {told}.")
        if skipped:
            warnings.warn(f"Skipped {told}.", stacklevel=2)
        return kept, targets

    def _limits(self, unk: int | None) -> filtering.Limits:
        return filtering.Limits(
            self.max_utterance_seconds,
            self.tokenizer.vocab_size,
            self.bytes_per_logit,
            self.max_lattice_bytes,
            unk,
        )

    def _dataset(
        self,
        utterances: list[Utterance],
        targets: list[list[int]],
        unk: int | None,
        clean_from: int | None = None,
    ) -> SpeechDataset:
        return SpeechDataset(
            utterances,
            targets,
            self.log_mel,
            self._limits(unk),
            seed=self.seed,
            cache_audio_bytes=self.cache_audio_bytes if self.num_workers == 0 else 0,
            clean_from=clean_from,
        )

    def _sampler(self, dataset: SpeechDataset, shuffle: bool) -> LatticeCostBatchSampler:
        return LatticeCostBatchSampler(
            dataset.costs(),
            vocab_size=self.tokenizer.vocab_size,
            max_lattice_bytes=self.max_lattice_bytes,
            max_batch_seconds=self.max_batch_seconds,
            bytes_per_logit=self.bytes_per_logit,
            seed=self.seed,
            shuffle=shuffle,
            rank=self.trainer.global_rank if self.trainer else 0,
            world_size=self.trainer.world_size if self.trainer else 1,
            rotation=self.rotation if shuffle else (),
        )

    def _frames(self, seconds: float) -> int:
        return self.log_mel.num_frames(round(seconds * self.log_mel.sample_rate_hz))

    def _bank(
        self,
        banks: Sequence[str] | None,
        weights: Sequence[float] | None,
        clips: int,
        seed: int,
    ) -> noise.NoiseSource:
        simulated = (clips, self.noise_clip_seconds, self.noise_kinds, seed, self.mains_hz)
        rate_hz = self.log_mel.sample_rate_hz
        return augment_options.noise_source(banks, weights, rate_hz, simulated)

    def _ready(self, dataset: SpeechDataset | None) -> SpeechDataset:
        if dataset is None:
            raise RuntimeError("`setup` must be called before batches are asked for.")
        return dataset
