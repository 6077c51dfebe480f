"""The `model` config group: the files in conf/, and messages for wrong values."""

import re
from pathlib import Path

import pytest
import torch
import yaml

from asr_ascend.config.model_options import ModelOptions
from asr_ascend.models import LSTMPredictor, StatelessPredictor, build_transducer
from tests.support.tiny_models import TINY, TINY_LSTM

CONF = Path(__file__).parents[2] / "conf" / "model"


@pytest.mark.parametrize(
    ("name", "predictor", "parameters"),
    [
        ("conformer_small", StatelessPredictor, 1_700_152),
        ("conformer_lstm", LSTMPredictor, 1_824_184),
        ("emformer", StatelessPredictor, 1_358_888),
    ],
)
def test_configs_build(name, predictor, parameters):
    config = yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))
    model = build_transducer(100, -1, ModelOptions.read(config))
    assert isinstance(model.predictor, predictor)
    assert sum(p.numel() for p in model.parameters()) == parameters
    enc, lengths = model.encode(torch.randn(1, 47, 80), torch.tensor([47]), 8, 4)
    assert enc.shape == (1, 11, 128)
    assert lengths.tolist() == [11]


def test_same_seed_same_weights():
    models = []
    for _ in range(2):
        torch.manual_seed(3)
        models.append(build_transducer(9, 0, ModelOptions.read(TINY)).state_dict())
    assert all(torch.equal(value, models[1][key]) for key, value in models[0].items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_layers": 0}, "`model.num_layers` must be an integer of at least 1, but is 0."),
        ({"num_heads": "4"}, "`model.num_heads` must be an integer of at least 1, but is '4'."),
        ({"num_heads": True}, "`model.num_heads` must be an integer of at least 1, but is True."),
        ({"conv_kernel": 1.5}, "`model.conv_kernel` must be an integer of at least 1, but is 1.5."),
        ({"dropout": 1.0}, "`model.dropout` must be a number in [0, 1), but is 1.0."),
        ({"encoder": "lstm"}, "`model.encoder` must be one of conformer, emformer, but is 'lstm'."),
        ({"predictor": "gru"}, "`model.predictor` must be one of stateless, lstm, but is 'gru'."),
        (
            {"num_heads": 3},
            "`model.encoder_dim` must be a multiple of `model.num_heads` (3), but is 16.",
        ),
        ({"joiner_dim": None}, "`model.joiner_dim` must be an integer of at least 1, but is null."),
        (
            {"heads": 4},
            "Unknown key `model.heads`; `model` has conv_kernel, dropout, encoder, encoder_dim, "
            "feedforward_dim, joiner_dim, max_relative_position, num_heads, num_layers, "
            "num_mel_bins, predictor, predictor_context, predictor_dim, predictor_dropout, "
            "subsampling_channels.",
        ),
    ],
)
def test_wrong_values(change, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        build_transducer(9, 0, ModelOptions.read({**TINY, **change}))


def test_missing_key():
    config = {key: value for key, value in TINY.items() if key != "encoder_dim"}
    with pytest.raises(ValueError, match=r"^`model\.encoder_dim` must be given, but is missing\.$"):
        build_transducer(9, 0, ModelOptions.read(config))


def test_a_config_without_an_encoder_is_a_conformers():
    torch.manual_seed(3)
    plain = build_transducer(9, 0, ModelOptions.read(TINY)).state_dict()
    torch.manual_seed(3)
    named = build_transducer(9, 0, ModelOptions.read({**TINY, "encoder": "conformer"})).state_dict()
    assert all(torch.equal(value, named[key]) for key, value in plain.items())


def test_an_encoder_has_no_key_of_the_other():
    message = r"^Unknown key `model\.conv_kernel`; `model` has "
    with pytest.raises(ValueError, match=message):
        build_transducer(9, 0, ModelOptions.read({**TINY, "encoder": "emformer"}))
    message = r"^Unknown key `model\.segment_frames`; `model` has "
    with pytest.raises(ValueError, match=message):
        build_transducer(9, 0, ModelOptions.read({**TINY, "segment_frames": 8}))


def test_lstm_has_no_context():
    with pytest.raises(ValueError, match=r"^Unknown key `model\.predictor_context`; `model` has "):
        build_transducer(9, 0, ModelOptions.read({**TINY_LSTM, "predictor_context": 2}))
