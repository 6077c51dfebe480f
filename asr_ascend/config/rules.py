"""What each key of a config may hold, and the sentence a wrong value gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asr_ascend.config.values import (
    CHUNK_MS,
    FLAG,
    PATHS,
    TEXT,
    Rule,
    choice,
    either,
    integer,
    list_of,
    number,
    optional,
)


class ConfigError(ValueError):
    """A config that can't be run; the message is one sentence for the user."""


SHARE_BELOW_1 = Rule(
    "a number of at least 0 and below 1", lambda value: number(0).accepts(value) and value < 1
)
SNR_DB = number(-200, 200)
LIMIT = Rule(
    "an integer of at least 1, or -1 for no limit",
    lambda value: integer(-1).accepts(value) and value != 0,
)
PRECISIONS = ("32-true", "16-mixed", "bf16-mixed", "64-true", "16-true", "bf16-true")

LOSS = {
    "blank": integer(),
    "clamp": number(),
    "reduction": choice("sum", "mean"),
    "joiner": choice("fused", "packed"),
    "fused_log_softmax": FLAG,
    "fastemit_lambda": number(0),
    "dtype": choice("float32", "float16", "bfloat16", "float64"),
    "reuse_logits": FLAG,
    "backend": optional(choice("cpu", "npu", "reference")),
    "normalize_by": choice("utterances", "tokens"),
    "ctc_weight": number(0),
    "ctc_first": number(0, 1),
    "alignment_frames": optional(list_of(integer(0), 2)),
}
DISTILLATION = {
    "teacher": optional(TEXT),
    "weight": number(0),
    "block_bytes": integer(1),
}
OPTIMIZER = {
    "lr": number(above=0),
    "betas": list_of(SHARE_BELOW_1, 2),
    "weight_decay": number(0),
    "warmup_steps": integer(0),
    "cosine_last": number(0, 1),
    "final_lr_ratio": number(0, 1),
    "layer_decay": optional(
        Rule("a number above 0 and at most 1", lambda v: number(above=0).accepts(v) and v <= 1)
    ),
    "lr_factors": optional(
        Rule(
            "names of modules, each with a number above 0",
            lambda v: isinstance(v, dict) and all(number(above=0).accepts(f) for f in v.values()),
        )
    ),
}
TRAINER = {
    "max_steps": LIMIT,
    "max_epochs": LIMIT,
    "accelerator": TEXT,
    "devices": either(integer(1), TEXT),
    "strategy": TEXT,
    "precision": choice(*PRECISIONS),
    "num_threads": optional(integer(1, 1024)),
    "accumulate_grad_batches": integer(1),
    "gradient_clip_val": optional(number(0)),
    "ramp_epochs": integer(0),
    "ramp_db": number(0),
    "chunk_frames": list_of(integer(0)),
    "left_chunks": list_of(integer(0)),
    "val_every_steps": integer(1),
    "val_chunk_ms": CHUNK_MS,
    "checkpoint_every_steps": integer(1),
    "save_top_k": integer(0),
    "average_top_k": integer(0),
    "early_stop_patience": optional(integer(1)),
    "early_stop_min_delta": number(0),
    "freeze": optional(list_of(TEXT)),
    "progress_bar": FLAG,
}
DATA = {
    "train_manifest": TEXT,
    "valid_manifest": TEXT,
    "replay_manifest": optional(TEXT),
    "replay_share": Rule(
        "a number above 0 and below 1", lambda value: number(above=0).accepts(value) and value < 1
    ),
    "tokenizer_type": choice("char", "bpe", "unigram"),
    "tokenizer_vocab_size": optional(integer(3)),
    "sample_rate_hz": Rule(
        "a multiple of 100 of at least 8000",  # frames are 10 ms
        lambda value: integer(8000).accepts(value) and value % 100 == 0,
    ),
    "num_mel_bins": integer(7),
    "max_batch_seconds": number(above=0),
    "max_lattice_bytes": integer(1),
    "max_utterance_seconds": number(above=0),
    "num_workers": integer(0),
    "seed": integer(0),
    "noise_probability": number(0, 1),
    "snr_db": list_of(SNR_DB, 2),
    "noise_kinds": list_of(TEXT),
    "noise_clips": integer(1),
    "noise_clip_seconds": number(0.1),
    "mains_hz": choice(50, 60),
    "noise_banks": optional(list_of(TEXT)),
    "noise_weights": optional(list_of(number(0))),
    "valid_snr_db": optional(SNR_DB),
    "valid_noise_banks": optional(list_of(TEXT)),
    "rooms_dir": optional(TEXT),
    "room_probability": number(0, 1),
    "speed_factors": list_of(number(0.5, 2)),
    "spec_augment": optional(Rule("a group of keys", lambda v: isinstance(v, dict))),
    "cache_audio_bytes": integer(0),
}
SPEC_AUGMENT = {
    "num_freq_masks": integer(0),
    "max_freq_bins": integer(0),
    "num_time_masks": integer(0),
    "max_time_frames": integer(0),
    "max_time_fraction": number(0, 1),
    "fill": number(),
}
TRAIN = {
    "name": TEXT,
    "seed": integer(0),
    "output_dir": TEXT,
    "init_from": optional(TEXT),
    "init_vocabulary": choice("strict", "skip", "extend", "train"),
    "ckpt_path": optional(TEXT),
    "resume": FLAG,
    "force": FLAG,
}
EVALUATE = {
    "checkpoint": TEXT,
    "baseline": optional(TEXT),
    "manifest": PATHS,
    "snr_db": list_of(either(SNR_DB, choice("clean"))),
    "chunk_ms": CHUNK_MS,
    "left_chunks": integer(0),
    "full_context": optional(FLAG),
    "decoder": choice("greedy", "beam"),
    "beam_width": integer(1),
    "noise_banks": optional(list_of(TEXT)),
    "noise_kinds": list_of(TEXT),
    "unseen_noise_kinds": Rule("a list of kinds of noise", lambda v: isinstance(v, list)),
    "noise_seed": integer(0),
    "max_utterances": optional(integer(1)),
    "batch_seconds": number(above=0),
    "worst": integer(0),
    "out_dir": optional(TEXT),
    "num_threads": optional(integer(1, 1024)),
    "progress_bar": FLAG,
}
TRANSCRIBE = {
    "checkpoint": TEXT,
    "wav": TEXT,
    "chunk_ms": CHUNK_MS,
    "left_chunks": integer(0),
    "sample_rate_hz": integer(1000),
    "format": choice("text", "json"),
    "times": FLAG,
    "plot_dir": optional(TEXT),
    "num_threads": optional(integer(1, 1024)),
}


def check(config_name: str, config: Mapping[str, Any]) -> None:
    """Checks every key and value of a composed config.

    Args:
        config_name: `train`, `evaluate` or `transcribe`.
        config: the composed config as plain Python.

    Raises:
        ConfigError: the first key that isn't known or value that breaks its rule.
    """
    if config_name != "train":
        _check_group("", config, EVALUATE if config_name == "evaluate" else TRANSCRIBE)
        return
    groups = {
        "loss": LOSS,
        "distillation": DISTILLATION,
        "optimizer": OPTIMIZER,
        "trainer": TRAINER,
        "data": DATA,
    }
    top = {key: value for key, value in config.items() if key not in {*groups, "model"}}
    _check_group("", top, TRAIN)
    if config.get("loss", {}).get("reduction") == "none":
        raise ConfigError(
            "`loss.reduction` must be one of sum, mean in training, which needs a single number to "
            "minimise, but is 'none'."
        )
    for group, rules in groups.items():
        _check_group(f"{group}.", config[group], rules)
    if config["data"]["spec_augment"] is not None:
        _check_group("data.spec_augment.", config["data"]["spec_augment"], SPEC_AUGMENT, False)
    _check_combinations(config)


def _check_combinations(config: Mapping[str, Any]) -> None:
    """Values that are right one by one, but not together."""
    if config["loss"]["joiner"] == "fused" and not config["loss"]["fused_log_softmax"]:
        raise ConfigError(
            "`loss.joiner` must be packed where `loss.fused_log_softmax` is false, but is 'fused'."
        )
    if config["distillation"]["teacher"] is not None:
        _check_distillation(config["loss"])
    _check_model(config["model"])
    _check_features(config["model"], config["data"])
    _check_chunks(config["model"], config["trainer"])
    trainer = config["trainer"]
    if trainer["average_top_k"] > trainer["save_top_k"]:
        raise ConfigError(
            f"`trainer.average_top_k` must be at most `trainer.save_top_k` "
            f"({trainer['save_top_k']}), but is {trainer['average_top_k']}."
        )
    if trainer["max_steps"] == -1 and trainer["max_epochs"] == -1:
        raise ConfigError(
            "One of `trainer.max_steps` and `trainer.max_epochs` must be set, but both are -1."
        )


def _check_model(values: Mapping[str, Any]) -> None:
    from asr_ascend.models import check_model_config

    try:
        check_model_config(values)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _check_features(model: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    if data["num_mel_bins"] != model["num_mel_bins"]:
        raise ConfigError(
            f"`data.num_mel_bins` must be `model.num_mel_bins` ({model['num_mel_bins']}), but is "
            f"{data['num_mel_bins']}."
        )


def _check_distillation(loss: Mapping[str, Any]) -> None:
    """A teacher's step has logits, and differentiates them once for both losses."""
    if loss["joiner"] == "fused":
        raise ConfigError(
            "`loss.joiner` must be packed where `distillation.teacher` is given, since a fused "
            "joiner has no logits to compare, but is 'fused'."
        )
    if loss["clamp"] > 0:
        raise ConfigError(
            "`loss.clamp` must be at most 0 where `distillation.teacher` is given, since the RNN-T "
            f"loss has no gradient of its own there, but is {loss['clamp']}."
        )


def _check_chunks(model: Mapping[str, Any], trainer: Mapping[str, Any]) -> None:
    """An Emformer serves the chunks that it is built with, and trains with no others."""
    if model.get("encoder") != "emformer":
        return
    segment, left = model["segment_frames"], model["left_segments"]
    wanted = {
        "chunk_frames": ([segment], "model.segment_frames"),
        "left_chunks": ([left], "model.left_segments"),
        "val_chunk_ms": (40 * segment, "40 ms times model.segment_frames"),
    }
    for key, (value, origin) in wanted.items():
        if trainer[key] != value:
            raise ConfigError(
                f"`trainer.{key}` must be {value} ({origin}) where `model.encoder` is emformer, "
                f"but is {trainer[key]}."
            )


def _check_group(
    prefix: str, values: Any, rules: Mapping[str, Rule], mandatory: bool = True
) -> None:
    if not isinstance(values, Mapping):
        raise ConfigError(f"`{prefix[:-1]}` must be a group of keys, but is {values!r}.")
    for key in rules if mandatory else ():
        if values.get(key, "???") == "???":  # OmegaConf's mark of a mandatory key
            raise ConfigError(f"`{prefix}{key}` must be given, but is missing.")
    for key, value in values.items():
        if key not in rules:
            owner = f"`{prefix[:-1]}`" if prefix else "the config"
            raise ConfigError(
                f"Unknown key `{prefix}{key}`; {owner} has {', '.join(sorted(rules))}."
            )
        if not rules[key].accepts(value):
            shown = "null" if value is None else repr(value)
            raise ConfigError(f"`{prefix}{key}` must be {rules[key].wanted}, but is {shown}.")
