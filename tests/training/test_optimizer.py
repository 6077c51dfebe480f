"""Frozen modules, the rate of each parameter, and the rate over the steps."""

import math
import re

import pytest
import torch

from asr_ascend.config.composing import compose_config
from asr_ascend.config.rules import ConfigError
from asr_ascend.config.train_options import OptimizerOptions
from asr_ascend.data.tokenizer import Tokenizer
from asr_ascend.models import build_transducer
from asr_ascend.training.optimizer import (
    describe_training,
    frozen_modules,
    learning_rate_factor,
    parameter_groups,
)
from tests.training.test_training_step import assert_same_gradients, make_batch, one_step


@pytest.fixture
def tokenizer():
    return Tokenizer.train(["甲乙丙丁戊"], blank=0)


@pytest.fixture
def model():
    sizes = "model.encoder_dim=16", "model.num_layers=3", "model.feedforward_dim=8"
    return build_transducer(7, 0, compose_config("train", ["experiment=smoke", *sizes]).model)


def rates(model, **changes):
    """Rate of each parameter by name."""
    groups = parameter_groups(model, OptimizerOptions(**{"lr": 1.0, **changes}))
    by_id = {id(p): group["lr"] for group in groups for p in group["params"]}
    return {name: by_id.get(id(p)) for name, p in model.named_parameters()}


def test_without_more_there_is_one_group_of_everything(model):
    (group,) = parameter_groups(model, OptimizerOptions(lr=0.5))
    assert group["lr"] == 0.5
    assert [id(p) for p in group["params"]] == [id(p) for p in model.parameters()]


def test_what_trains_at_what_rates_is_a_sentence(model):
    plain = OptimizerOptions(lr=2e-4)
    total = sum(p.numel() for p in model.parameters())
    head = sum(p.numel() for p in model.ctc_head.parameters())
    assert describe_training(model, plain) == ""
    assert describe_training(model, OptimizerOptions(lr=2e-4, layer_decay=0.5)) == (
        f"Trains {total:,} of {total:,} parameters, at a rate of 1.3e-05 to 0.0002"
    )
    frozen_modules(model, ["encoder", "predictor", "joiner"])
    assert describe_training(model, plain) == (
        f"Trains {head:,} of {total:,} parameters, at a rate of 0.0002"
    )


def test_layer_decay_falls_from_the_top_of_the_encoder(model):
    found = {}
    for name, rate in rates(model, lr=2.0, layer_decay=0.5).items():
        parts = name.split(".")
        place = ".".join(parts[: 3 if parts[1] == "layers" else 2])
        found.setdefault(place if parts[0] == "encoder" else parts[0], set()).add(rate)
    assert found == {
        "encoder.subsampling": {2.0 / 16},
        "encoder.layers.0": {2.0 / 8},
        "encoder.layers.1": {2.0 / 4},
        "encoder.layers.2": {2.0 / 2},
        "predictor": {2.0},
        "joiner": {2.0},
        "ctc_head": {2.0},
    }


def test_the_longest_name_gives_the_factor(model):
    found = rates(model, lr_factors={"encoder": 0.1, "encoder.layers.1": 0.5, "joiner": 2.0})
    assert {r for n, r in found.items() if n.startswith("encoder.layers.0.")} == {0.1}
    assert {r for n, r in found.items() if n.startswith("encoder.layers.1.")} == {0.5}
    assert {r for n, r in found.items() if n.startswith("joiner.")} == {2.0}
    assert {r for n, r in found.items() if n.startswith("predictor.")} == {1.0}


def test_frozen_parameters_are_in_no_group(model):
    frozen = frozen_modules(model, ["encoder.subsampling", "encoder.layers.0"])
    assert frozen == [model.encoder.subsampling, model.encoder.layers[0]]
    without = [name for name, rate in rates(model, layer_decay=0.9).items() if rate is None]
    assert without == [
        name
        for name, _ in model.named_parameters()
        if name.startswith(("encoder.subsampling.", "encoder.layers.0."))
    ]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("encodr", "'encodr', but the model has encoder, predictor, joiner, ctc_head."),
        ("encoder.layer.0", "'encoder.layer.0', but `encoder` has subsampling, layers."),
        ("encoder.layers.3", "'encoder.layers.3', but `encoder.layers` has 0, 1, 2."),
        ("ctc_head.bias", "'ctc_head.bias', but `ctc_head` has no modules."),
    ],
)
def test_an_unknown_name_lists_those_there_are(model, name, sentence):
    with pytest.raises(ConfigError, match=f"^{re.escape('`trainer.freeze` names ' + sentence)}$"):
        frozen_modules(model, [name])
    message = re.escape("`optimizer.lr_factors` names " + sentence)
    with pytest.raises(ConfigError, match=f"^{message}$"):
        rates(model, lr_factors={name: 0.1})


def test_freezing_everything_is_one_sentence(model):
    message = "`trainer.freeze` must leave something to train, but leaves nothing."
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        frozen_modules(model, ["encoder", "predictor", "joiner", "ctc_head"])


@pytest.mark.parametrize(
    ("frozen", "joiner"),
    [
        ("encoder", "fused"),
        ("joiner.output", "fused"),
        ("predictor", "packed"),
        ("joiner", "packed"),
    ],
)
def test_the_others_train_as_they_would_without(tokenizer, frozen, joiner):
    settings = f"loss.joiner={joiner}", "loss.alignment_frames=null"
    whole = one_step(tokenizer, [make_batch([0, 1])], *settings)
    part = one_step(tokenizer, [make_batch([0, 1])], *settings, f"trainer.freeze=[{frozen}]")
    names = [n for n, _ in part.named_parameters() if n.startswith(f"model.{frozen}.")]
    assert names
    for name in names:
        assert part.gradients.pop(name) is None
        assert whole.gradients.pop(name) is not None
    assert_same_gradients(part, whole)


def test_frozen_modules_hear_no_dropout_and_do_not_change(tokenizer):
    settings = "model.dropout=0.5", "model.predictor_dropout=0.5", "trainer.freeze=[encoder]"
    module = one_step(tokenizer, [make_batch([0, 1])], *settings)
    encoder = module.model.encoder
    assert not any(part.training for part in encoder.modules())
    assert module.model.predictor.dropout.training
    module.eval()
    assert not module.model.predictor.training
    module.train()
    assert module.model.predictor.training and not encoder.training
    batch = make_batch([0, 1])
    first, second = (module.model.encode(batch.features, batch.feature_lengths) for _ in range(2))
    assert torch.equal(first[0], second[0])


def test_an_empty_step_gives_what_trains_a_zero_gradient(tokenizer):
    from tests.training.test_training_step import empty_batch

    module = one_step(tokenizer, [empty_batch()], "trainer.freeze=[encoder]")
    for name, gradient in module.gradients.items():
        assert (gradient is None) == name.startswith("model.encoder."), name
        assert gradient is None or not gradient.any()


def test_steps_of_ctc_alone_train_with_a_frozen_encoder_and_head(tokenizer):
    frozen = "trainer.freeze=[encoder,ctc_head]"
    module = one_step(tokenizer, [make_batch([0, 1])], "loss.ctc_first=1.0", frozen)
    assert module.last_step_metrics["grad_norm"] == 0
    assert module.last_step_metrics["ctc_loss"] > 0


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 1 / 60),
        (29, 0.5),
        (59, 1.0),
        (60, 1.0),
        (600, 1.0),  # the cosine starts here
        (800, 0.02 + 0.98 * 0.5),
        (700, 0.02 + 0.98 * 0.5 * (1 + math.sqrt(0.5))),
        (1000, 0.02),
        (1100, 0.02),
    ],
)
def test_warm_up_level_and_cosine(step, expected):
    factor = learning_rate_factor(step, 1000, warmup_steps=60, cosine_last=0.4, final_ratio=0.02)
    assert factor == pytest.approx(expected, rel=1e-12)


def test_without_warm_up_or_cosine_the_rate_stays():
    assert [learning_rate_factor(step, 10, 0, 0.0, 0.0) for step in range(10)] == [1.0] * 10
