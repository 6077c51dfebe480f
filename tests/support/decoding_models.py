"""Models for the decoders' tests."""

import copy
import functools

import torch
import torchaudio
from torch import nn

from asr_ascend.config.model_options import ModelOptions
from asr_ascend.models import Transducer, build_transducer

CONFIG = {
    "num_mel_bins": 16,
    "subsampling_channels": 4,
    "encoder_dim": 16,
    "num_layers": 1,
    "num_heads": 2,
    "feedforward_dim": 24,
    "conv_kernel": 5,
    "dropout": 0.1,
    "max_relative_position": 6,
    "predictor_dim": 12,
    "predictor_dropout": 0.2,
    "joiner_dim": 32,
}


def random_transducer(
    vocab_size: int = 7,
    blank: int = 0,
    predictor: str = "stateless",
    seed: int = 0,
    peak: float = 4.0,
    blank_bias: float = 2.0,
) -> Transducer:
    """Untrained, in evaluation mode; `peak` sharpens its decisions, `blank_bias` spaces tokens."""
    torch.manual_seed(seed)
    size = {"predictor_context": 2} if predictor == "stateless" else {"predictor_layers": 1}
    options = ModelOptions.read({**CONFIG, **size, "predictor": predictor})
    model = build_transducer(vocab_size, blank, options)
    with torch.no_grad():
        model.joiner.encoder_projection.weight.mul_(3)
        model.joiner.output.weight.mul_(peak)
        model.joiner.output.bias[model.blank] += blank_bias
    return model.eval()


def move_blank(model: Transducer, blank: int) -> tuple[Transducer, list[int]]:
    """The same model with its blank at another id, and the new id of each old one."""
    new_ids = [i for i in range(model.vocab_size) if i != blank]
    new_ids.insert(model.blank, blank)
    old_of_new = torch.tensor(new_ids).argsort()
    moved = copy.deepcopy(model)
    moved.blank = blank
    if hasattr(moved.predictor, "blank"):
        moved.predictor.blank = blank
    with torch.no_grad():
        for weight in (
            moved.predictor.embedding.weight,
            moved.joiner.output.weight,
            moved.joiner.output.bias,
        ):
            weight.copy_(weight[old_of_new])
    return moved, new_ids


class TableJoiner(nn.Module):
    """Looks logits up by (frame, last token); frames and tokens are 1-wide "encodings"."""

    def __init__(self, table: dict[tuple[int, int], list[float]]) -> None:
        super().__init__()
        self.table = table
        self.encoder_projection = nn.Identity()
        self.predictor_projection = nn.Identity()

    def forward(self, encoded, predicted):
        pairs = zip(encoded.flatten().tolist(), predicted.flatten().tolist(), strict=True)
        return torch.tensor([self.table[int(t), int(token)] for t, token in pairs]).log()


class LastToken(nn.Module):
    """A predictor whose output is the last token."""

    def forward(self, tokens, state=None):
        return tokens.float().unsqueeze(-1), [[tokens[:, -1:]]]


class TableTransducer(nn.Module):
    """Just enough of a transducer for greedy decoding, with probabilities written out."""

    def __init__(self, blank: int, table: dict[tuple[int, int], list[float]]) -> None:
        super().__init__()
        self.blank = blank
        self.joiner = TableJoiner(table)
        self.predictor = LastToken()
        self.register_buffer("feature_mean", torch.zeros(1))


def spoken_encodings(model: Transducer, count: int, frames: int, seed: int):
    """Encoder frames in which some frames say a token and the rest are silence, and the tokens."""
    generator = torch.Generator().manual_seed(seed)
    others = [i for i in range(model.vocab_size) if i != model.blank]
    enc = 0.3 * torch.randn(count, frames, model.encoder.output_dim, generator=generator)
    texts = []
    for b in range(count):
        says = (torch.rand(frames, generator=generator) < 0.4).nonzero().flatten().tolist()
        says = says[: len(others)]  # no token twice, so that two last tokens tell what was said
        drawn = torch.randperm(len(others), generator=generator).tolist()[: len(says)]
        for frame, index in zip(says, drawn, strict=True):
            enc[b, frame, index] += 4.0
        texts.append([others[index] for index in drawn])
    return enc, texts


@functools.cache
def trained_transducer(predictor: str = "stateless", blank: int = 0) -> Transducer:
    """Predictor and joiner trained for a second or two to spell out `spoken_encodings`."""
    model = random_transducer(blank=blank, predictor=predictor, peak=1.0, blank_bias=0.0)
    parameters = [*model.predictor.parameters(), *model.joiner.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    for step in range(200):
        enc, texts = spoken_encodings(model, count=16, frames=8, seed=step)
        targets = nn.utils.rnn.pad_sequence([torch.tensor(t) for t in texts], batch_first=True)
        start = torch.full((16, 1), model.blank)
        target_lengths = torch.tensor([len(t) for t in texts])
        context, _, _ = model.predict(torch.cat([start, targets], dim=1).long(), target_lengths)
        logits, lengths, _ = model.join(enc, torch.full((16,), 8), context, target_lengths)
        loss = torchaudio.functional.rnnt_loss(
            logits, targets.int(), lengths.int(), target_lengths.int(), blank=model.blank
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model
