"""The torchaudio plug on NPU tensors, behind an operator of the same schema. On the stand-in."""

from __future__ import annotations

import sys
import types

import pytest
import torch

from asr_ascend import plugins
from asr_ascend.losses import pack_logits, rnnt_loss
from tests.support import oracles
from tests.support.npu_cases import batch_of

CASE = oracles.make_case([(7, 3), (4, 2), (9, 1)], 11, blank=3)
# https://github.com/pytorch/audio/blob/v2.11.0/src/libtorchaudio/rnnt/compute.cpp
SCHEMA = (
    "rnnt_loss_forward(Tensor logits, Tensor targets, Tensor logit_lengths, "
    "Tensor target_lengths, int blank, float clamp, bool fused_log_softmax) -> (Tensor, Tensor)"
)


def test_the_operator_of_torchaudio_on_npu_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    library = torch.library.Library("torchaudio", "FRAGMENT")
    if not hasattr(torch.ops.torchaudio, "rnnt_loss_forward"):
        library.define(SCHEMA)
    torchaudio = types.ModuleType("torchaudio")
    torchaudio.__version__ = "2.11.1"
    monkeypatch.setitem(sys.modules, "torchaudio", torchaudio)
    targets, *lengths = batch_of(CASE, "npu")
    assert all(index.device.type == "npu" for index in (targets, *lengths))
    upstream = torch.tensor([1.0, -2.0, 0.5])

    expected, gradient = oracles.run(CASE, "cpu", upstream=upstream)
    logits = CASE.padded_logits().npu().requires_grad_()
    with plugins.installed("torchaudio"):
        costs, _ = torch.ops.torchaudio.rnnt_loss_forward(
            logits, targets.int(), *(index.int() for index in lengths), 3, -1.0, True
        )
        (costs * upstream.npu()).sum().backward()
        assert plugins.active()["torchaudio"].calls == 1
    assert logits.grad is not None
    torch.testing.assert_close(costs.detach().cpu(), expected, rtol=1e-6, atol=1e-6)
    packed = pack_logits(logits.grad.cpu(), CASE.logit_lengths, CASE.target_lengths)
    torch.testing.assert_close(packed, gradient, rtol=1e-5, atol=1e-6)
    assert rnnt_loss(logits, targets, *lengths, blank=3).device.type == "npu"
