"""Small transducers for tests."""

import torch

from asr_ascend.config.model_options import ModelOptions
from asr_ascend.models import Transducer, build_transducer

TINY = {
    "num_mel_bins": 16,
    "subsampling_channels": 4,
    "encoder_dim": 16,
    "num_layers": 2,
    "num_heads": 2,
    "feedforward_dim": 24,
    "conv_kernel": 5,
    "dropout": 0.1,
    "max_relative_position": 6,
    "predictor": "stateless",
    "predictor_dim": 12,
    "predictor_context": 2,
    "predictor_dropout": 0.2,
    "joiner_dim": 10,
}
TINY_LSTM = {key: value for key, value in TINY.items() if key != "predictor_context"}
TINY_LSTM |= {"predictor": "lstm", "predictor_layers": 2}


def tiny_transducer(
    vocab_size: int = 7, blank: int = 0, predictor: str = "stateless", seed: int = 0
) -> Transducer:
    """In evaluation mode, with relative biases and CMVN away from their neutral start."""
    torch.manual_seed(seed)
    options = ModelOptions.read(TINY if predictor == "stateless" else TINY_LSTM)
    model = build_transducer(vocab_size, blank, options)
    for layer in model.encoder.layers:
        torch.nn.init.normal_(layer.attention.relative_bias)
    model.set_cmvn(torch.randn(16), torch.rand(16) + 0.5)
    return model.eval()
