"""ESPnet 202511: its transducer model with the numba loss that it carries, and with ours."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest
import torch
from espnet2.asr.transducer.rnnt_multi_blank.rnnt_multi_blank import RNNTLossNumba
from espnet2.asr_transducer.decoder.rnn_decoder import RNNDecoder
from espnet2.asr_transducer.encoder.encoder import Encoder
from espnet2.asr_transducer.espnet_transducer_model import ESPnetASRTransducerModel
from espnet2.asr_transducer.joint_network import JointNetwork

from asr_ascend import plugins

TOKENS = ["<blank>", "<unk>", "a", "b", "c", "d", "<sos/eos>"]
TEXT = torch.tensor([[2, 3, 5, 4], [5, 1, -1, -1], [4, 4, 2, -1]])
TEXT_LENGTHS = torch.tensor([4, 2, 3])
SPEECH_LENGTHS = torch.tensor([41, 37, 30])


def make_model(fastemit_lambda: float = 0.0) -> ESPnetASRTransducerModel:
    """Of the parts that ESPnet's yaml names; training mode has no dropout."""
    torch.manual_seed(4)
    block = {
        "block_type": "conformer",
        "hidden_size": 8,
        "linear_size": 8,
        "heads": 2,
        "conv_mod_kernel_size": 3,
    }
    encoder = Encoder(20, [block], input_conf={"vgg_like": False, "conv_size": 8})
    decoder = RNNDecoder(len(TOKENS), embed_size=8, hidden_size=8)
    return ESPnetASRTransducerModel(
        len(TOKENS),
        TOKENS,
        frontend=None,
        specaug=None,
        normalize=None,
        encoder=encoder,
        decoder=decoder,
        joint_network=JointNetwork(
            len(TOKENS), encoder.output_size, decoder.output_size, joint_space_size=8
        ),
        fastemit_lambda=fastemit_lambda,
    )


def train(fastemit_lambda: float, criterion: Any = None) -> tuple[list[float], dict[str, Any]]:
    """Five values, and the first gradient of every parameter."""
    model = make_model(fastemit_lambda)
    model.criterion_transducer = criterion  # None: imports warprnnt_pytorch
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    speech = torch.randn(3, 41, 20, generator=torch.Generator().manual_seed(2))
    values, gradients = [], {}
    for step in range(5):
        loss, _, _ = model(speech, SPEECH_LENGTHS, TEXT, TEXT_LENGTHS)
        optimizer.zero_grad()
        loss.sum().backward()
        if step == 0:
            gradients = {
                name: parameter.grad.clone()
                for name, parameter in model.named_parameters()
                if parameter.grad is not None
            }
        optimizer.step()
        values.append(loss.item())
    return values, gradients


def test_it_is_the_real_one() -> None:
    assert version("espnet") == "202511"


@pytest.mark.parametrize("fastemit_lambda", [0.0, 0.2])
def test_five_steps(fastemit_lambda: float) -> None:
    """The numba loss counts FastEmit in its value, warp-transducer and ours do not."""
    criterion = RNNTLossNumba(blank=0, reduction="mean", fastemit_lambda=fastemit_lambda)
    their_values, their_gradients = train(fastemit_lambda, criterion)
    with plugins.installed("warprnnt_pytorch"):
        values, gradients = train(fastemit_lambda)
        assert plugins.active()["warprnnt_pytorch"].calls == 5
    assert len(gradients) == len(their_gradients) > 20
    assert values[-1] < values[0]
    scaled = [value * (1 + fastemit_lambda) for value in values]
    assert scaled == pytest.approx(their_values, rel=2e-5)
    torch.testing.assert_close(gradients, their_gradients, rtol=1e-4, atol=2e-5)
