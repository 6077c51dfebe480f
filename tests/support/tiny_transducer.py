"""A tiny transducer, and five steps of its training with any loss: what two losses must share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

V = 7
TARGETS = torch.tensor([[1, 4, 2, 2], [3, 5, 1, 1], [4, 3, 1, 5]], dtype=torch.int32)
LOGIT_LENGTHS = torch.tensor([9, 7, 8], dtype=torch.int32)
TARGET_LENGTHS = torch.tensor([3, 2, 4], dtype=torch.int32)
LABELS = TARGETS, LOGIT_LENGTHS, TARGET_LENGTHS

Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class Training(NamedTuple):
    """The value of each step, the first step's gradients, and the parameters after the last."""

    values: Tensor
    gradients: dict[str, Tensor]
    parameters: dict[str, Tensor]


class Transducer(nn.Module):
    """Encoder, predictor and joiner of one layer each; blank is 0 and starts each utterance."""

    def __init__(self, hidden: int = 8) -> None:
        super().__init__()
        self.encoder = nn.Linear(5, hidden)
        self.predictor = nn.Embedding(V, hidden)
        self.output = nn.Linear(hidden, V)

    def hidden(self, features: Tensor, targets: Tensor) -> Tensor:
        """(B, T, U + 1, H)."""
        started = nn.functional.pad(targets.long(), (1, 0))
        return torch.tanh(self.encoder(features)[:, :, None] + self.predictor(started)[:, None])

    def forward(self, features: Tensor, targets: Tensor) -> Tensor:
        """Logits (B, T, U + 1, V)."""
        logits: Tensor = self.output(self.hidden(features, targets))
        return logits


def features() -> Tensor:
    """(B, T, 5), the same each time."""
    return torch.randn(3, 9, 5, generator=torch.Generator().manual_seed(2))


def train(loss: Loss, steps: int = 5) -> Training:
    """Trains with ``loss(logits, targets, logit_lengths, target_lengths)``, blank 0."""
    torch.manual_seed(1)
    model = Transducer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    values, gradients = [], {}
    for step in range(steps):
        value = loss(model(features(), TARGETS), *LABELS)
        optimizer.zero_grad()
        value.sum().backward()
        if step == 0:
            gradients = {
                name: parameter.grad.clone()
                for name, parameter in model.named_parameters()
                if parameter.grad is not None
            }
        optimizer.step()
        values.append(value.detach().sum())
    assert len(gradients) == 5
    assert all(gradient.abs().max() > 0 for gradient in gradients.values())
    return Training(torch.stack(values), gradients, dict(model.state_dict()))


def assert_same_training(ours: Training, theirs: Training) -> None:
    """Equal to the rounding of a float32 lattice of 9 frames and of five steps."""
    assert theirs.values[-1] < theirs.values[0]
    torch.testing.assert_close(ours.values, theirs.values.float(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.gradients, theirs.gradients, rtol=1e-4, atol=2e-5)
    torch.testing.assert_close(ours.parameters, theirs.parameters, rtol=1e-4, atol=2e-5)
