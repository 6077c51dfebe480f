"""A step of a tiny transducer on the NPU, over the stand-in runtime, beside the same on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from asr_ascend.losses import rnnt_loss

LOGIT_LENGTHS, TARGET_LENGTHS = torch.tensor([5, 3]), torch.tensor([2, 1])
TARGETS = torch.tensor([[1, 3], [2, 0]])
FEATURES = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))  # rows of both samples
VOCAB = 7


def joined_rows() -> tuple[Tensor, Tensor]:
    """For each packed row its frame among all frames, and its column among all columns."""
    frames, columns = [], []
    for b, (T, U) in enumerate(zip(LOGIT_LENGTHS.tolist(), TARGET_LENGTHS.tolist(), strict=True)):
        first_frame, first_column = (
            int(LOGIT_LENGTHS[:b].sum()),
            int((TARGET_LENGTHS[:b] + 1).sum()),
        )
        for t in range(T):
            frames += [first_frame + t] * (U + 1)
            columns += range(first_column, first_column + U + 1)
    return torch.tensor(frames), torch.tensor(columns)


class TinyTransducer(nn.Module):
    """Linear encoder, one vector for each column, joiner over the packed rows alone."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(6, 8)
        self.columns = nn.Parameter(torch.randn(5, 8))
        self.output = nn.Linear(8, VOCAB)

    def forward(self, features: Tensor, frames: Tensor, columns: Tensor) -> Tensor:
        joined = self.encoder(features).index_select(0, frames) + self.columns.index_select(
            0, columns
        )
        return self.output(joined.tanh())


def train(device: str, steps: int, **options: object) -> tuple[list[float], dict[str, Tensor]]:
    torch.manual_seed(1)
    model = TinyTransducer().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    features, targets = FEATURES.to(device), TARGETS.to(device)
    rows = [index.to(device) for index in joined_rows()]
    losses = []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        logits = model(features, *rows)
        loss = rnnt_loss(logits, targets, LOGIT_LENGTHS, TARGET_LENGTHS, blank=6, **options)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: value.detach().cpu() for name, value in model.named_parameters()}


@pytest.mark.parametrize(
    "options",
    [{}, {"reuse_logits": True}, {"clamp": 0.1, "reduction": "sum"}, {"fastemit_lambda": 0.01}],
    ids=str,
)
def test_npu_learns_what_the_cpu_learns(options: dict[str, object]) -> None:
    losses, weights = train("npu", 4, **options)
    expected_losses, expected = train("cpu", 4, **options)
    assert losses[-1] < losses[0]
    torch.testing.assert_close(
        torch.tensor(losses), torch.tensor(expected_losses), rtol=2e-5, atol=0
    )
    for name, value in expected.items():
        torch.testing.assert_close(weights[name], value, rtol=1e-4, atol=2e-6, msg=name)


def test_half_logits_from_float_weights() -> None:
    """As under autocast: the loss takes the half type and gives float32."""
    torch.manual_seed(2)
    model = TinyTransducer().npu()
    rows = [index.npu() for index in joined_rows()]
    for dtype in (torch.float16, torch.bfloat16):
        logits = model(FEATURES.npu(), *rows).to(dtype)
        loss = rnnt_loss(logits, TARGETS.npu(), LOGIT_LENGTHS, TARGET_LENGTHS, blank=6)
        assert loss.dtype == torch.float32
        (gradient,) = torch.autograd.grad(loss, model.output.weight)
        assert gradient.dtype == torch.float32
        on_cpu = logits.detach().cpu().float()
        expected = rnnt_loss(on_cpu, TARGETS, LOGIT_LENGTHS, TARGET_LENGTHS, blank=6)
        assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
