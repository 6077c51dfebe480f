"""The typed options: what conf/ composes is what they default to, and what a checkpoint keeps."""

import re

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from asr_ascend.config.command_options import EvaluateOptions, TranscribeOptions
from asr_ascend.config.composing import compose_config, conf_dir
from asr_ascend.config.data_options import DataOptions, SpecAugmentOptions
from asr_ascend.config.keys import ConfigError
from asr_ascend.config.loss_options import LossOptions
from asr_ascend.config.model_options import EmformerOptions, LSTMOptions, ModelOptions
from asr_ascend.config.rules import read_options
from asr_ascend.config.train_options import OptimizerOptions, TrainOptions

EXPERIMENTS = sorted(path.stem for path in (conf_dir() / "experiment").glob("*.yaml"))


def composed(command, *overrides):
    """The config as plain Python, before it is read."""
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return OmegaConf.to_container(compose(command, overrides=list(overrides)), resolve=True)


def test_the_defaults_in_conf_are_those_of_the_options():
    assert compose_config("train", []) == TrainOptions()
    assert compose_config("evaluate", ["checkpoint=a"]) == EvaluateOptions(checkpoint="a")
    given = TranscribeOptions(checkpoint="a", wav="b")
    assert compose_config("transcribe", ["checkpoint=a", "wav=b"]) == given


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("conformer_lstm", ModelOptions(predictor=LSTMOptions())),
        ("emformer", ModelOptions(encoder=EmformerOptions())),
    ],
)
def test_the_models_in_conf_are_those_of_the_options(name, options):
    assert ModelOptions.read(composed("train", f"model={name}")["model"]) == options


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_checkpoint_keeps_the_config_that_was_composed(experiment):
    config = composed("train", f"experiment={experiment}")
    options = read_options("train", config)
    assert options.plain() == config
    assert TrainOptions.read(options.plain(), saved=True) == options


def test_an_older_config_has_defaults_for_what_it_lacks():
    old = {
        "seed": 5,
        "model": {"predictor": "stateless", "num_layers": 2, "gone": 1},
        "loss": {"blank": -1, "gone": 1},
        "data": {"spec_augment": None},
        "gone": {"x": 1},
    }
    options = TrainOptions.read(old, saved=True)
    assert options.seed == 5
    assert options.loss == LossOptions(blank=-1)
    assert options.optimizer == OptimizerOptions()
    assert options.data == DataOptions(spec_augment=None)
    assert (options.model.encoder.kind, options.model.encoder.num_layers) == ("conformer", 2)


def test_options_are_checked_as_they_are_made():
    message = "`loss.clamp` must be a number, but is 'x'."
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        LossOptions(clamp="x")
    message = "`data.snr_db` must be a lowest and a highest SNR, but is [5, -5]."
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        DataOptions(snr_db=[5, -5])


def test_a_group_within_a_group_may_name_some_of_its_keys():
    options = DataOptions.read({**DataOptions().plain(), "spec_augment": {"max_freq_bins": 3}})
    assert options.spec_augment == SpecAugmentOptions(max_freq_bins=3)
    assert "fill" not in options.plain()["spec_augment"]
    filled = DataOptions(spec_augment=SpecAugmentOptions(fill=0.5))
    assert filled.plain()["spec_augment"]["fill"] == 0.5


def test_every_key_says_what_it_is():
    for kind in (TrainOptions, EvaluateOptions, TranscribeOptions):
        keys = [*kind.keys()]
        for group, _ in kind.groups().values():
            keys += [*group.keys()]
        for key in keys:
            assert re.match(r"^[`A-Z][^\n]*[.)]$", key.about), key
