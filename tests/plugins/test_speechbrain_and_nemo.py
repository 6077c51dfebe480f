"""SpeechBrain's and NeMo's losses as ours: values and gradients by their public formulas.

tests/plugins/test_peers.py compares with the real packages.
https://github.com/speechbrain/speechbrain/blob/develop/speechbrain/integrations/numba/
transducer_loss.py: the value is cost / T_b, the gradient that of the cost; "mean" and "sum" reduce
the value and multiply every gradient by the same upstream number.
https://github.com/NVIDIA/NeMo/blob/main/nemo/collections/asr/parts/numba/rnnt_loss/rnnt_pytorch.py
"""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from asr_ascend import plugins
from asr_ascend.losses import rnnt_loss
from asr_ascend.plugins.nemo import NemoLoss
from asr_ascend.plugins.speechbrain import transducer_loss
from tests.support.tiny_transducer import (
    LABELS,
    LOGIT_LENGTHS,
    TARGET_LENGTHS,
    TARGETS,
    Transducer,
    features,
)

INPUT_LENS, TARGET_LENS = LOGIT_LENGTHS / 9, TARGET_LENGTHS / 4


def make_logits() -> Tensor:
    torch.manual_seed(3)
    return Transducer()(features(), TARGETS).detach().mul(3).requires_grad_()


def called(loss: Any, upstream: Tensor | float = 1.0) -> tuple[Tensor, Tensor]:
    logits = make_logits()
    value = loss(logits)
    return value.detach(), torch.autograd.grad((value * upstream).sum(), logits)[0]


def costs_and_gradient(weights: Tensor | float, **options: Any) -> tuple[Tensor, Tensor]:
    return called(lambda x: rnnt_loss(x, *LABELS, 0, reduction="none", **options), weights)


def speechbrain(logits: Tensor, **options: Any) -> Tensor:
    return transducer_loss(logits, TARGETS, INPUT_LENS, TARGET_LENS, 0, **options)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_speechbrains_value_and_gradient(reduction: str) -> None:
    upstream = torch.tensor([1.0, -2.0, 0.5]) if reduction == "none" else torch.tensor(0.25)
    costs, gradient = costs_and_gradient(upstream)
    shares = costs / LOGIT_LENGTHS
    expected = {"mean": shares.mean(), "sum": shares.sum(), "none": shares}[reduction]
    actual = called(lambda x: speechbrain(x, reduction=reduction), upstream)
    torch.testing.assert_close(actual, (expected, gradient), rtol=1e-6, atol=1e-7)


def test_the_exact_mean_has_the_gradient_of_its_value() -> None:
    costs, gradient = costs_and_gradient(1 / (3 * LOGIT_LENGTHS))
    actual = called(lambda x: speechbrain(x, exact_mean=True))
    expected = (costs / LOGIT_LENGTHS).mean(), gradient
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-7)


def test_a_share_is_rounded_to_the_nearest_length() -> None:
    expected = speechbrain(make_logits())
    rough = transducer_loss(make_logits(), TARGETS, INPUT_LENS + 0.04, TARGET_LENS - 0.1, 0)
    assert torch.equal(rough, expected)


def test_absolute_lengths_are_refused() -> None:
    with pytest.raises(
        TypeError, match=r"^`input_lens` must be floats, shares of the whole, but i"
    ):
        transducer_loss(make_logits(), *LABELS, 0)
    with pytest.raises(ValueError, match=r'^`reduction` must be "none", "mean" or "sum", but is'):
        speechbrain(make_logits(), reduction="batchmean")


def test_speechbrains_name_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def theirs(logits, targets, input_lens, target_lens, blank_index, reduction="mean"):
        raise AssertionError

    package = types.ModuleType("speechbrain")
    package.__version__ = "1.1.0"
    losses = types.ModuleType("speechbrain.nnet.losses")
    losses.transducer_loss = theirs
    for module in (package, types.ModuleType("speechbrain.nnet"), losses):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for exact_mean in (False, True):
        with plugins.installed("speechbrain", exact_mean=exact_mean):
            actual = called(
                lambda x: losses.transducer_loss(x, TARGETS, INPUT_LENS, TARGET_LENS, 0)
            )
            expected = called(lambda x, e=exact_mean: speechbrain(x, exact_mean=e))
            torch.testing.assert_close(actual, expected, rtol=0, atol=0)
            assert plugins.active()["speechbrain"].calls == 1
    assert losses.transducer_loss is theirs


def nemo(logits: Tensor, **options: Any) -> Tensor:
    targets, act_lens, label_lens = (index.long() for index in LABELS)
    loss = NemoLoss(0, **options)
    return loss(acts=logits, labels=targets, act_lens=act_lens, label_lens=label_lens)


@pytest.mark.parametrize("fastemit_lambda", [0.0, 0.25])
def test_nemos_value_counts_fastemit_and_its_gradient_is_ours(fastemit_lambda: float) -> None:
    weights = torch.tensor([1.0, -2.0, 0.5])
    costs, gradient = costs_and_gradient(weights, fastemit_lambda=fastemit_lambda)
    actual = called(lambda x: nemo(x, reduction=None, fastemit_lambda=fastemit_lambda), weights)
    expected = costs * (1 + fastemit_lambda), gradient
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-7)


def test_nemos_clamp_comes_before_the_upstream_gradient() -> None:
    _, gradient = costs_and_gradient(0.5, clamp=0.1)
    assert gradient.abs().max() == pytest.approx(0.05)
    actual = called(lambda x: nemo(x, reduction="none", clamp=0.1), 0.5)
    torch.testing.assert_close(actual[1], gradient, rtol=0, atol=0)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_nemos_reductions(reduction: str) -> None:
    costs, gradient = costs_and_gradient(1 / 3 if reduction == "mean" else 1.0)
    expected = costs.mean() if reduction == "mean" else costs.sum()
    actual = called(lambda x: nemo(x, reduction=reduction))
    torch.testing.assert_close(actual, (expected, gradient), rtol=1e-6, atol=1e-7)


@dataclass
class RNNTLossConfig:
    loss_name: str
    lib_name: str
    is_available: bool = False
    force_float32: bool = True


@pytest.fixture
def nemo_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """NeMo's table of losses, and the function that chooses one."""
    module = types.ModuleType("nemo.collections.asr.losses.rnnt")

    def resolve_rnnt_loss(loss_name, blank_idx, loss_kwargs=None):
        return loss_name, blank_idx, loss_kwargs

    module.RNNTLossConfig = RNNTLossConfig
    module.RNNT_LOSS_RESOLVER = {"pytorch": RNNTLossConfig("pytorch", "torch", True)}
    module.resolve_rnnt_loss = resolve_rnnt_loss
    package = types.ModuleType("nemo")
    package.__version__ = "3.0.0"
    parents = ("nemo.collections", "nemo.collections.asr", "nemo.collections.asr.losses")
    for each in (package, module, *(types.ModuleType(name) for name in parents)):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    return module


def test_nemos_table_gets_an_entry_and_loses_it(nemo_module: Any) -> None:
    theirs = nemo_module.resolve_rnnt_loss
    with plugins.installed("nemo", blank_in_targets="allow"):
        config = nemo_module.RNNT_LOSS_RESOLVER["asr_ascend"]
        assert config == RNNTLossConfig("asr_ascend", "asr_ascend", True, force_float32=False)
        loss = nemo_module.resolve_rnnt_loss(
            "asr_ascend", blank_idx=1, loss_kwargs={"fastemit_lambda": 0.25, "clamp": 0.1}
        )
        assert (loss.blank, loss.reduction, loss.fastemit_lambda, loss.clamp) == (
            1,
            "none",
            0.25,
            0.1,
        )
        loss(make_logits(), *LABELS)
        assert plugins.active()["nemo"].calls == 1
        assert nemo_module.resolve_rnnt_loss("pytorch", 3) == ("pytorch", 3, None)
        with pytest.raises(ValueError, match=r"^`asr_ascend_kwargs` must have no keys but fastemi"):
            nemo_module.resolve_rnnt_loss("asr_ascend", 1, {"sigma": 0.1})
    assert list(nemo_module.RNNT_LOSS_RESOLVER) == ["pytorch"]
    assert nemo_module.resolve_rnnt_loss is theirs
