"""A data module that changes nothing of the speech, unless a test says so."""

from typing import Any

from asr_ascend.config.data_options import DataOptions
from asr_ascend.data.datamodule import SpeechDataModule

QUIET = {"noise_probability": 0.0, "valid_snr_db": None, "spec_augment": None, "seed": 0}
ARGUMENTS = ("tokenizer", "blank", "bytes_per_logit", "cmvn")


def make_data_module(train: Any, valid: Any, **changes: Any) -> SpeechDataModule:
    """Before `setup`; `changes` are keys of `data` and arguments of the module."""
    arguments = {"blank": 0, **{k: v for k, v in changes.items() if k in ARGUMENTS}}
    keys = {k: v for k, v in changes.items() if k not in ARGUMENTS}
    paths = {"train_manifest": str(train), "valid_manifest": str(valid)}
    options = DataOptions.read({**DataOptions().plain(), **QUIET, **paths, **keys})
    return SpeechDataModule(options, **arguments)
