"""Where the evaluation's noise comes from: simulated kinds, equipment, banks on disk."""

from dataclasses import replace

import pytest
import soundfile
import torch

from asr_ascend.config.command_options import EvaluateOptions
from asr_ascend.config.rules import ConfigError
from asr_ascend.data.manifest import Utterance
from asr_ascend.data.noise import StoredBank, make_noise_bank, simulated_noise, substation_noise
from asr_ascend.data.seeding import seeded_generator
from asr_ascend.evaluate import _speak

OPTIONS = EvaluateOptions(
    checkpoint="a.ckpt", noise_kinds=("hum", "fan"), unseen_noise_kinds=("hum", "corona")
)


@pytest.fixture
def utterances(tmp_path):
    soundfile.write(tmp_path / "u.wav", torch.ones(4000).numpy() * 0.1, 16000)
    return [("set", Utterance(f"u{n}", tmp_path / "u.wav", "a", 0.25)) for n in range(2)]


def generator(number):
    return seeded_generator("evaluate", 7, "set", f"u{number}")


def test_half_of_the_utterances_get_kinds_that_training_does_not_hear(utterances):
    known, unseen = _speak(utterances, OPTIONS, 16000)
    assert (known.noise_kind, unseen.noise_kind) == ("known", "unseen")
    assert torch.equal(
        known.noise, substation_noise(4000, generator=generator(0), kinds=["hum", "fan"])
    )
    assert torch.equal(
        unseen.noise, substation_noise(4000, generator=generator(1), kinds=["hum", "corona"])
    )


def test_equipment_is_a_kind_of_noise(utterances):
    kinds = ("oil_transformer", "line_corona")
    _, unseen = _speak(utterances, replace(OPTIONS, unseen_noise_kinds=kinds), 16000)
    assert torch.equal(unseen.noise, simulated_noise(kinds, 4000, 16000, generator(1)))
    with pytest.raises(
        ConfigError, match=r"^Kinds of noise must be one or more of .*\['rain'\]\.$"
    ):
        list(_speak(utterances, replace(OPTIONS, unseen_noise_kinds=("rain",)), 16000))


def test_a_bank_takes_the_place_of_the_known_kinds(utterances, tmp_path):
    make_noise_bank(tmp_path / "bank", 2, 1.0)
    bank = StoredBank(tmp_path / "bank")
    options = replace(OPTIONS, noise_banks=(str(tmp_path / "bank"),))
    known, unseen = _speak(utterances, options, 16000)
    assert torch.equal(known.noise, bank.crop(4000, generator(0)))
    assert unseen.noise_kind == "unseen"
    _, second = _speak(utterances, replace(options, unseen_noise_kinds=()), 16000)
    assert second.noise_kind == "known"
    assert torch.equal(second.noise, bank.crop(4000, generator(1)))
