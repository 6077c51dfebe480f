"""From two manifests to training and validation batches, a tokenizer and CMVN statistics."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning
import torch

from asr_ascend.config.data_options import DataOptions
from asr_ascend.data import filtering, noise, replay
from asr_ascend.data.augment import SpecAugment, speed_perturbation
from asr_ascend.data.dataset import Batch, NoiseMix, SpeechDataset
from asr_ascend.data.features import FeatureStatistics, LogMel
from asr_ascend.data.loader import BatchLoader, FixedBatches
from asr_ascend.data.manifest import Utterance, load_manifest
from asr_ascend.data.rooms import room_mix
from asr_ascend.data.sampler import LatticeCostBatchSampler
from asr_ascend.data.tokenizer import Tokenizer
from asr_ascend.losses.problem import on_device

__all__ = ["Batch", "SpeechDataModule"]

_CMVN_UTTERANCES = 200
_LISTED = 20


class SpeechDataModule(lightning.LightningDataModule):
    """Batches of raw log-mel and token ids, bounded by lattice cost.

    After `setup`: `tokenizer`, `cmvn`, `log_mel`, `train_dataset`, `valid_dataset`, and `skipped`,
    which counts the utterances left out of each manifest by reason.

    Args:
        options: of the data.
        tokenizer: None: one is trained on the training texts. A function makes one of them.
        blank: of a tokenizer trained here, in [-V, V-1].
        bytes_per_logit: of the joiner's output: 4 for float32, 2 for half precision.
        bound: of the lattice cells that the loss computes.
        cmvn: None: statistics of the first 200 training utterances, clean.

    Raises:
        ValueError: a folder of rooms that is none.
    """

    def __init__(
        self,
        options: DataOptions,
        *,
        tokenizer: Tokenizer | Callable[[Iterable[str]], Tokenizer] | None = None,
        blank: int = -1,
        bytes_per_logit: int = 4,
        bound: filtering.LatticeBound = filtering.FULL_LATTICE,
        cmvn: FeatureStatistics | None = None,
    ) -> None:
        super().__init__()
        self.options = options
        self.manifests = {
            name: Path(path).expanduser()
            for name, path in (
                ("train", options.train_manifest),
                ("valid", options.valid_manifest),
                ("replay", options.replay_manifest),
            )
            if path is not None
        }
        self.tokenizer: Any = tokenizer
        self.blank = blank
        self.cmvn = cmvn
        self.bytes_per_logit = bytes_per_logit
        self.bound = bound
        self.max_utterance_seconds = min(options.max_utterance_seconds, options.max_batch_seconds)
        rate_hz = options.sample_rate_hz
        self.rooms = room_mix(options.rooms_dir, options.room_probability, rate_hz)
        self.speed = speed_perturbation(options.speed_factors, rate_hz)
        self.log_mel = LogMel(rate_hz, options.num_mel_bins)
        self.train_dataset: SpeechDataset | None = None
        self.valid_dataset: SpeechDataset | None = None
        self.rotation: list[list[int]] = []
        self.skipped: dict[str, dict[str, int]] = {}

    def setup(self, stage: str | None = None) -> None:
        """Reads both manifests, then makes the tokenizer and the statistics that were not given.

        Later calls do nothing.

        Raises:
            ManifestError: a manifest can't be used; the message lists its problems.
            ValueError: a manifest has no usable utterance.
        """
        if self.train_dataset is not None:
            return
        options, manifests = self.options, self.manifests
        utterances, valid = load_manifest(manifests["train"]), load_manifest(manifests["valid"])
        older = load_manifest(manifests["replay"]) if "replay" in manifests else []
        self.tokenizer = self._tokenizer(utterance.text for utterance in [*utterances, *older])
        train = self._training_set(utterances, older)
        train.speed, train.rooms = self.speed, self.rooms
        if self.cmvn is None:
            self.cmvn = FeatureStatistics.from_utterances(train.clean_features(_CMVN_UTTERANCES))
        if options.noise_probability > 0:
            banks = options.noise_banks, options.noise_weights
            bank = self._bank(*banks, options.noise_clips, options.seed)
            train.noise = NoiseMix(bank, options.snr_db, options.noise_probability)
        if options.spec_augment is not None:
            train.spec_augment = SpecAugment(
                **{"fill": self.cmvn.mean.clone(), **options.spec_augment.plain()}
            )
        # Unknown characters stay in validation: the model can't write them, and that is an error.
        valid, targets = self._usable(valid, "valid", None)
        self.valid_dataset = self._dataset(valid, targets, None)
        if options.valid_snr_db is not None:
            bank = self._bank(options.valid_noise_banks, None, 16, options.seed + 1)
            self.valid_dataset.noise = NoiseMix(bank, (options.valid_snr_db, options.valid_snr_db))
        self.train_dataset = train

    def train_dataloader(self) -> BatchLoader:
        """Returns the shuffled training batches of this rank.

        The loader's `state_dict` lets training resume within an epoch.
        """
        dataset = self._ready(self.train_dataset)
        return BatchLoader(dataset, self._sampler(dataset, shuffle=True), self.options.num_workers)

    def val_dataloader(self) -> FixedBatches:
        """Returns this rank's validation batches, by length, with the same noise every time."""
        dataset = self._ready(self.valid_dataset)
        return FixedBatches(dataset, self._sampler(dataset, shuffle=False))

    def transfer_batch_to_device(
        self, batch: Batch, device: torch.device, dataloader_idx: int
    ) -> Batch:
        """Moves features and targets to the device, without a wait.

        Lengths stay on the host, which reads them.
        """
        if device.type == "cpu":
            return batch
        features, targets = on_device(batch.features, device), on_device(batch.targets, device)
        return replace(batch, features=features, targets=targets)

    def describe(self) -> str:
        """Returns lines to print before training.

        They tell sizes, the bound of memory, and the skipped utterances by reason.
        """
        train, valid = self._ready(self.train_dataset), self._ready(self.valid_dataset)
        return "\n".join(
            [
                f"Training: {self._sampler(train, shuffle=True).describe()}",
                f"Validation: {self._sampler(valid, shuffle=False).describe()}",
                f"Vocabulary: {self.tokenizer.vocab_size}, blank {self.tokenizer.blank}",
                *(
                    f"Skipped of {name}: {filtering.describe_skipped(counts, self._limit_keys())}"
                    for name, counts in self.skipped.items()
                    if counts
                ),
                *self._unknown_in_validation(),
            ]
        )

    def _limit_keys(self) -> dict[str, str]:
        """Which key makes a reason to skip, and its value."""
        key, seconds = "max_utterance_seconds", self.max_utterance_seconds
        if seconds < self.options.max_utterance_seconds:
            key = "max_batch_seconds"
        most_bytes = self.options.max_lattice_bytes
        return {
            filtering.TOO_LONG: f"`data.{key}` is {seconds:g}",
            filtering.LATTICE_TOO_LARGE: f"`data.max_lattice_bytes` is {most_bytes}",
        }

    def _unknown_in_validation(self) -> list[str]:
        """A line about the characters of the validation set that the model can't write."""
        texts = [utterance.text for utterance in self._ready(self.valid_dataset).utterances]
        found = [self.tokenizer.unknown_characters(text) for text in texts]
        characters = list(dict.fromkeys(character for part in found for character in part))
        if not characters:
            return []
        listed = ", ".join(map(repr, characters[:_LISTED])) + (
            f" and {len(characters) - _LISTED} more" if len(characters) > _LISTED else ""
        )
        return [
            f"Unknown in valid: {sum(map(bool, found))} of {len(texts)} utterances have characters "
            f"that the vocabulary lacks ({listed}), so that the CER can't fall to 0"
        ]

    def _tokenizer(self, texts: Iterable[str]) -> Tokenizer:
        given = self.tokenizer
        if isinstance(given, Tokenizer):
            return given
        if given is not None:
            made: Tokenizer = given(texts)
            return made
        kind, size = self.options.tokenizer_type, self.options.tokenizer_vocab_size
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
        wanted = replay.replay_count(self.options.replay_share, len(new))
        groups = replay.rotation(len(older), wanted, self.options.seed)
        self.rotation = [[len(new) + index for index in group] for group in groups]
        return self._dataset([*new, *older], [*targets, *older_targets], unk, len(new))

    def _usable(
        self, utterances: list[Utterance], name: str, unk: int | None
    ) -> tuple[list[Utterance], list[list[int]]]:
        """Utterances within the limits, with targets; the others are counted and told."""
        limits, encode = self._limits(unk), self.tokenizer.encode
        kept, targets, skipped = filtering.usable(utterances, limits, encode, self._frames)
        self.skipped[name] = skipped
        described = filtering.describe_skipped(skipped, self._limit_keys())
        told = f"{described} of {len(utterances)} utterances of {self.manifests[name]}"
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
            self.options.max_lattice_bytes,
            unk,
            self.bound,
        )

    def _dataset(
        self,
        utterances: list[Utterance],
        targets: list[list[int]],
        unk: int | None,
        clean_from: int | None = None,
    ) -> SpeechDataset:
        alone = self.options.num_workers == 0
        return SpeechDataset(
            utterances,
            targets,
            self.log_mel,
            self._limits(unk),
            seed=self.options.seed,
            cache_audio_bytes=self.options.cache_audio_bytes if alone else 0,
            clean_from=clean_from,
        )

    def _sampler(self, dataset: SpeechDataset, shuffle: bool) -> LatticeCostBatchSampler:
        return LatticeCostBatchSampler(
            dataset.costs(),
            vocab_size=self.tokenizer.vocab_size,
            max_lattice_bytes=self.options.max_lattice_bytes,
            max_batch_seconds=self.options.max_batch_seconds,
            bytes_per_logit=self.bytes_per_logit,
            bound=self.bound,
            seed=self.options.seed,
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
        options = self.options
        if banks:
            stored = [noise.StoredBank(folder, options.sample_rate_hz) for folder in banks]
            return noise.WeightedBanks(stored, weights)
        kinds = options.noise_clip_seconds, options.noise_kinds
        return noise.NoiseBank(clips, *kinds, seed, options.sample_rate_hz, options.mains_hz)

    def _ready(self, dataset: SpeechDataset | None) -> SpeechDataset:
        if dataset is None:
            raise RuntimeError("`setup` must be called before batches are asked for.")
        return dataset
