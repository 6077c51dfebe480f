"""Peak memory of joiner_rnnt_loss: one sample's logits, or a chunk's."""

import pytest

from tests.support.peak_memory import needs_linux, peak_bytes

pytestmark = needs_linux

JOINER = """
from asr_ascend.losses import joiner_rnnt_loss

torch.set_grad_enabled(options.pop("grad", True))

def problem(B, T, U, V, H):
    inputs = [torch.randn(B, T, H), torch.randn(B, U + 1, H), torch.randn(V, H), torch.randn(V)]
    lengths = torch.full((B,), T), torch.full((B,), U)
    return [x.requires_grad_() for x in inputs], (torch.randint(1, V, (B, U)), *lengths, 0)

def leaves(inputs, rest):
    return inputs

def run(inputs, rest, options):
    loss = joiner_rnnt_loss(*inputs, *rest, **options)
    if loss.requires_grad:
        loss.sum().backward()
"""
V, H = 5000, 32


@pytest.mark.parametrize("grad", [True, False], ids=("training", "evaluation"))
def test_sample_by_sample_takes_one_sample(grad):
    B, T, U = 6, 120, 24
    one_sample = T * (U + 1) * V * 4  # 60 MB
    peak = peak_bytes(JOINER, (B, T, U, V, H), {"grad": grad, "reduction": "mean"})
    assert 0.95 * one_sample < peak < 1.25 * one_sample


def test_chunk_by_chunk_takes_a_fiftieth():
    B, T, U = 2, 250, 50
    logits = B * T * (U + 1) * V * 4  # 510 MB
    peak = peak_bytes(JOINER, (B, T, U, V, H), {"reduction": "none", "max_bytes": 2**22})
    assert peak < 0.02 * logits
