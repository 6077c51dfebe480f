"""NeMo 3.0: its numba loss on the CPU and ours, chosen by `loss_name`."""

from __future__ import annotations

from typing import Any

import nemo
import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor

from asr_ascend import plugins

# NeMo looks for warprnnt_pytorch while it is imported.
with plugins.installed("warprnnt_pytorch"):
    from nemo.collections.asr.losses.rnnt import RNNT_LOSS_RESOLVER, RNNTLoss
    from nemo.collections.asr.models.rnnt_models import EncDecRNNTModel

from tests.support.tiny_transducer import (
    LABELS,
    TARGETS,
    Training,
    Transducer,
    V,
    assert_same_training,
    features,
    train,
)


def loss_of(config: dict[str, Any], reduction: str | None = "mean_batch") -> RNNTLoss:
    """As NeMo's models make it of `model.loss`; blank is the last symbol."""
    name, kwargs = EncDecRNNTModel.extract_rnnt_loss_cfg(None, OmegaConf.create(config))
    return RNNTLoss(num_classes=V - 1, loss_name=name, loss_kwargs=kwargs, reduction=reduction)


def trained(config: dict[str, Any], reduction: str = "mean_batch") -> Training:
    loss = loss_of(config, reduction)

    def named(logits: Tensor, *labels: Tensor) -> Tensor:
        targets, input_lengths, target_lengths = labels
        return loss(
            log_probs=logits,
            targets=targets,
            input_lengths=input_lengths,
            target_lengths=target_lengths,
        )

    return train(named)


def test_it_is_the_real_one() -> None:
    assert nemo.__version__.startswith("3.0.")
    assert "asr_ascend" not in RNNT_LOSS_RESOLVER


def test_the_plug_says_that_nothing_else_is_bound() -> None:
    with plugins.installed("nemo"):
        assert "asr_ascend" in RNNT_LOSS_RESOLVER
    assert "asr_ascend" not in RNNT_LOSS_RESOLVER
    with pytest.raises(ValueError, match="asr_ascend not in list of available RNNT losses"):
        loss_of({"loss_name": "asr_ascend"})


@pytest.mark.parametrize("reduction", ["mean_batch", "mean", "mean_volume", "sum"])
def test_five_steps(reduction: str) -> None:
    theirs = trained({"loss_name": "warprnnt_numba"}, reduction)
    with plugins.installed("nemo"):
        ours = trained({"loss_name": "asr_ascend"}, reduction)
        assert plugins.active()["nemo"].calls == 5
    assert_same_training(ours, theirs)


@pytest.mark.parametrize("kwargs", [{"fastemit_lambda": 0.2}, {"clamp": 0.1}], ids=str)
def test_fastemit_and_clamp_by_the_config(kwargs: dict[str, float]) -> None:
    """Of a sum: NeMo's CPU clips after the upstream gradient, which is 1 there."""
    theirs = trained({"loss_name": "warprnnt_numba", "warprnnt_numba_kwargs": kwargs}, "sum")
    with plugins.installed("nemo"):
        ours = trained({"loss_name": "asr_ascend", "asr_ascend_kwargs": kwargs}, "sum")
    assert_same_training(ours, theirs)


def test_five_steps_of_the_warprnnt_stand_in() -> None:
    theirs = trained({"loss_name": "warprnnt_numba"})
    assert_same_training(trained({"loss_name": "warprnnt"}), theirs)


def test_bfloat16_arrives_without_a_float32_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    from asr_ascend.plugins import nemo as plug

    seen, function = [], plug.rnnt_loss

    def recording(logits: Tensor, *arguments: Any, **options: Any) -> Tensor:
        seen.append(logits.dtype)
        return function(logits, *arguments, **options)

    monkeypatch.setattr(plug, "rnnt_loss", recording)
    torch.manual_seed(1)
    logits = Transducer()(features(), TARGETS).detach().bfloat16()
    targets, input_lengths, target_lengths = LABELS
    with plugins.installed("nemo"):
        value = loss_of({"loss_name": "asr_ascend"})(
            log_probs=logits,
            targets=targets,
            input_lengths=input_lengths,
            target_lengths=target_lengths,
        )
    assert (seen, value.dtype) == ([torch.bfloat16], torch.float32)
