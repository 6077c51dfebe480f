"""Keys of the group `data`: manifests, tokenizer, features, batches and what changes speech."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from asr_ascend.config.keys import ConfigError, Options, group, key
from asr_ascend.config.values import TEXT, Rule, choice, integer, list_of, number, optional

SNR_DB = number(-200, 200)


@dataclass(frozen=True, kw_only=True)
class SpecAugmentOptions(Options):
    """Bands and spans of the features that training hides from the model."""

    prefix: ClassVar[str] = "data.spec_augment."
    partial: ClassVar[bool] = True

    num_freq_masks: int = key(2, integer(0), "Bands hidden in an utterance.")
    max_freq_bins: int = key(15, integer(0), "Widest band, in mel bands.")
    num_time_masks: int = key(2, integer(0), "Spans hidden in an utterance.")
    max_time_frames: int = key(20, integer(0), "Longest span, in feature frames of 10 ms.")
    max_time_fraction: float = key(
        0.125, number(0, 1), "Longest span, as a share of the utterance."
    )
    fill: float | None = key(
        None,
        optional(number()),
        "Value of what is hidden; null: the training set's mean of each band.",
        omitted=True,
    )


@dataclass(frozen=True, kw_only=True)
class DataOptions(Options):
    """The group `data`."""

    prefix: ClassVar[str] = "data."

    train_manifest: str = key(
        "data/demo/train.jsonl", TEXT, "Manifest (JSONL) of the training utterances."
    )
    valid_manifest: str = key(
        "data/demo/valid.jsonl", TEXT, "Manifest (JSONL) of the validation utterances."
    )
    replay_manifest: str | None = key(
        None,
        optional(TEXT),
        "Older data mixed back in when fine-tuning, so that the model does not forget it. It is "
        "heard without noise or room. null: none.",
    )
    replay_share: float = key(
        0.2,
        Rule("a number above 0 and below 1", lambda v: number(above=0).accepts(v) and v < 1),
        "Share of an epoch's utterances that come from `replay_manifest`; each epoch takes others.",
    )
    tokenizer_type: str = key(
        "char",
        choice("char", "bpe", "unigram"),
        "`char`: every character of the training texts is a token. `bpe`, `unigram`: with "
        "`tokenizer_vocab_size`.",
    )
    tokenizer_vocab_size: int | None = key(
        None, optional(integer(3)), "Tokens of a `bpe` or `unigram` tokenizer, blank included."
    )
    sample_rate_hz: int = key(
        16000,
        Rule(
            "a multiple of 100 in [8000, 384000]",  # frames are 10 ms
            lambda value: integer(8000, 384_000).accepts(value) and value % 100 == 0,
        ),
        "Audio is resampled to this rate.",
    )
    num_mel_bins: int = key(80, integer(7), "Mel bands of a feature frame: `model.num_mel_bins`.")
    max_batch_seconds: float = key(
        20.0, number(above=0), "Longest padded audio of a batch, in seconds."
    )
    max_lattice_bytes: int = key(
        256 * 2**20,
        integer(1),
        "Largest joiner output of a batch, in bytes. Where `loss.band` leaves cells out, only the "
        "others count, by the most that they can be.",
    )
    max_utterance_seconds: float = key(
        20.0, number(above=0), "Longer utterances are skipped and counted."
    )
    num_workers: int = key(
        0,
        integer(0),
        "Processes that prepare batches; 0 costs least for a small model on a CPU.",
    )
    seed: int = key(
        1, integer(0), "Seed of batch order, noise, room, speed and SpecAugment: `seed`."
    )
    noise_probability: float = key(
        0.8, number(0, 1), "Share of the training utterances with noise."
    )
    snr_db: tuple[float, float] = key(
        (-5.0, 20.0), list_of(SNR_DB, 2), "Lowest and highest SNR of that noise, drawn uniformly."
    )
    noise_kinds: tuple[str, ...] = key(
        ("hum", "fan", "impulse"), list_of(TEXT), "Kinds of the simulated noise."
    )
    noise_clips: int = key(160, integer(1), "Clips of simulated noise, made in memory.")
    noise_clip_seconds: float = key(8.0, number(0.1), "Length of each of these clips.")
    mains_hz: int = key(50, choice(50, 60), "Mains frequency of the simulated noise.")
    noise_banks: tuple[str, ...] | None = key(
        None,
        optional(list_of(TEXT)),
        "Folders of noise banks in place of the simulated noise, which the four keys above "
        "describe (`python -m asr_ascend.data.noise --help` makes them).",
    )
    noise_weights: tuple[float, ...] | None = key(
        None, optional(list_of(number(0))), "How often each bank is drawn; null: equally often."
    )
    valid_snr_db: float | None = key(
        5.0, optional(SNR_DB), "SNR of the validation set's noise; null: clean."
    )
    valid_noise_banks: tuple[str, ...] | None = key(
        None, optional(list_of(TEXT)), "As `noise_banks`, for the validation set."
    )
    rooms_dir: str | None = key(
        None,
        optional(TEXT),
        "Folder of room responses (`python -m asr_ascend.data.rooms --help` makes it); null: none.",
    )
    room_probability: float = key(
        0.5, number(0, 1), "Share of the training utterances that are heard in a room."
    )
    speed_factors: tuple[float, ...] = key(
        (1.0,),
        list_of(number(0.5, 2)),
        "Speeds of the training utterances, drawn equally often: `[0.9,1.0,1.1]`.",
    )
    spec_augment: SpecAugmentOptions | None = group(
        SpecAugmentOptions,
        "Bands and spans of the features that training hides from the model; null: none.",
        optional=True,
    )
    cache_audio_bytes: int = key(
        512 * 2**20,
        integer(0),
        "Bytes of decoded training audio kept in memory (without workers).",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.snr_db
        if low > high:
            raise ConfigError(
                f"`data.snr_db` must be a lowest and a highest SNR, but is {[low, high]}."
            )
        if self.noise_weights is not None and not self.noise_banks:
            raise ConfigError(
                "`data.noise_weights` must be null without `data.noise_banks`, but is given."
            )
