"""SpeechBrain 1.1: its loss, on numba's simulator of CUDA, and ours, chosen by a yaml."""

from __future__ import annotations

import io
import os

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"  # before numba is imported

import pytest
import speechbrain
import torch
from hyperpyyaml import load_hyperpyyaml
from speechbrain.nnet.losses import transducer_loss as theirs
from torch import Tensor

from asr_ascend import plugins
from tests.support.tiny_transducer import (
    LOGIT_LENGTHS,
    TARGET_LENGTHS,
    TARGETS,
    Training,
    assert_same_training,
    train,
)

# As recipes/LibriSpeech/ASR/transducer/hparams/conformer_transducer.yaml of SpeechBrain has it.
NAMED = """
transducer_cost: !name:speechbrain.nnet.losses.transducer_loss
    blank_index: 0
"""
OURS = NAMED.replace("speechbrain.nnet.losses", "asr_ascend.plugins.speechbrain")


def trained(yaml: str) -> Training:
    cost = load_hyperpyyaml(io.StringIO(yaml))["transducer_cost"]

    def loss(logits: Tensor, *_: Tensor) -> Tensor:
        return cost(logits, TARGETS.long(), LOGIT_LENGTHS / 9, TARGET_LENGTHS / 4)

    return train(loss)


@pytest.fixture(scope="module")
def their_training() -> Training:
    return trained(NAMED)


def test_it_is_the_real_one() -> None:
    assert speechbrain.__version__.startswith("1.1.")
    assert theirs.__module__ == "speechbrain.nnet.losses"


def test_five_steps_after_an_install(their_training: Training) -> None:
    # The name above is bound already.
    with (
        pytest.warns(plugins.PluginWarning, match=r"peer_speechbrain.theirs` still is the old one"),
        plugins.installed("speechbrain"),
    ):
        ours = trained(NAMED)
        assert plugins.active()["speechbrain"].calls == 5
    assert_same_training(ours, their_training)


def test_five_steps_of_a_yaml_that_names_ours(their_training: Training) -> None:
    assert_same_training(trained(OURS), their_training)


def test_an_exact_mean_trains_otherwise(their_training: Training) -> None:
    ours = trained(OURS + "    exact_mean: true\n")
    torch.testing.assert_close(ours.values[0], their_training.values[0], rtol=1e-5, atol=1e-6)
    ratio = their_training.gradients["output.bias"].norm() / ours.gradients["output.bias"].norm()
    assert 3 * 7 < ratio < 3 * 9  # B times a length
