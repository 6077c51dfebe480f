"""The stand-in for warprnnt_pytorch: both forks' arguments, defaults and shapes.

The rules are those of the two public sources:
https://github.com/HawkAaron/warp-transducer/blob/master/pytorch_binding/warprnnt_pytorch/__init__.py
https://github.com/csukuangfj/warp-transducer/blob/master/pytorch_binding/warprnnt_pytorch/__init__.py
"""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import sys
import types
from typing import Any

import pytest
import torch
from torch import Tensor

from asr_ascend import plugins
from asr_ascend.losses import rnnt_loss
from tests.support.tiny_transducer import LABELS, TARGETS, Transducer, features

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("warprnnt_pytorch") is not None, reason="the real one is installed"
)
FORKS = ("HawkAaron", "csukuangfj")


def make_logits() -> Tensor:
    torch.manual_seed(3)
    return Transducer()(features(), TARGETS).detach().mul(3).requires_grad_()


def called(loss: Any) -> tuple[Tensor, Tensor]:
    logits = make_logits()
    value = loss(logits, *LABELS)
    return value.detach(), torch.autograd.grad(value.sum(), logits)[0]


def expected(**options: Any) -> tuple[Tensor, Tensor]:
    options = {"blank": 0, **options}
    value, gradient = called(lambda *inputs: rnnt_loss(*inputs, **options))
    return value if value.dim() else value.unsqueeze(-1), gradient


def check(actual: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor]) -> None:
    torch.testing.assert_close(actual, wanted, rtol=0, atol=0)


def test_it_is_a_module_only_while_it_is_installed() -> None:
    with pytest.raises(ImportError):
        importlib.import_module("warprnnt_pytorch")
    with plugins.installed("warprnnt_pytorch"):
        module = importlib.import_module("warprnnt_pytorch")
        assert importlib.util.find_spec("warprnnt_pytorch") is module.__spec__
        assert plugins.active()["warprnnt_pytorch"].version == "stand-in"
    with pytest.raises(ImportError):
        importlib.import_module("warprnnt_pytorch")


def test_its_module_can_be_pickled() -> None:
    with plugins.installed("warprnnt_pytorch"):
        module = importlib.import_module("warprnnt_pytorch")
        loaded = pickle.loads(pickle.dumps(module.RNNTLoss(3, reduction="sum")))
        assert (type(loaded), loaded.blank, loaded.reduction) == (module.RNNTLoss, 3, "sum")


def test_blank_is_0_by_default_and_the_mean_is_over_the_batch() -> None:
    """ESPnet leaves `blank` out."""
    with plugins.installed("warprnnt_pytorch"):
        from warprnnt_pytorch import RNNTLoss
        from warprnnt_pytorch import rnnt_loss as function

        for loss in (RNNTLoss(), function):
            value, gradient = called(loss)
            assert value.shape == (1,)
            check((value, gradient), expected(reduction="mean"))
        assert plugins.active()["warprnnt_pytorch"].calls == 2
        del RNNTLoss, function


@pytest.mark.parametrize("fork", FORKS)
@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((5, "sum"), {"blank": 5, "reduction": "sum"}),
        ((5, "sum", 0.2), {"blank": 5, "reduction": "sum", "fastemit_lambda": 0.2}),
        ((5, 0.2), {"blank": 5, "fastemit_lambda": 0.2}),
        ((5, 0.2, "none"), {"blank": 5, "reduction": "none", "fastemit_lambda": 0.2}),
        ((5, 0.2, None), {"blank": 5, "reduction": None, "fastemit_lambda": 0.2}),
    ],
    ids=str,
)
def test_both_orders_of_arguments(
    arguments: tuple[Any, ...], options: dict[str, Any], fork: str
) -> None:
    targets = TARGETS.where(TARGETS != 5, 6)
    defaults = {"fastemit_lambda": 0.001 if fork == "csukuangfj" else 0.0}
    with plugins.installed("warprnnt_pytorch", fork=fork):
        module = sys.modules["warprnnt_pytorch"]
        loss = module.RNNTLoss(*arguments)
        actual = called(lambda logits, _, *lengths: loss(logits, targets, *lengths))
    wanted = called(
        lambda logits, _, *lengths: rnnt_loss(logits, targets, *lengths, **{**defaults, **options})
    )
    check((actual[0].squeeze(-1), actual[1]), wanted)
    assert actual[0].shape == ((3,) if options.get("reduction", "mean") in (None, "none") else (1,))


@pytest.mark.parametrize("fork", FORKS)
def test_the_default_of_fastemit_is_the_forks(fork: str) -> None:
    wanted = expected(fastemit_lambda=0.001 if fork == "csukuangfj" else 0.0)
    assert not torch.equal(wanted[1], expected(fastemit_lambda=0.5)[1])
    with plugins.installed("warprnnt_pytorch", fork=fork):
        module = sys.modules["warprnnt_pytorch"]
        check(called(module.RNNTLoss()), wanted)
        check(called(module.RNNTLoss(blank=0, reduction="mean")), wanted)
        check(called(module.rnnt_loss), wanted)


def test_the_reduction_may_change_between_calls() -> None:
    """NeMo sets it to None for a call, and names the arguments."""
    with plugins.installed("warprnnt_pytorch"):
        loss = sys.modules["warprnnt_pytorch"].RNNTLoss(blank=0, reduction="mean")
        loss.reduction = None
        targets, logit_lengths, target_lengths = (index.long() for index in LABELS)

        def named(logits: Tensor, *_: Tensor) -> Tensor:
            return loss(
                acts=logits, labels=targets, act_lens=logit_lengths, label_lens=target_lengths
            )

        check(called(named), expected(reduction="none"))


def test_wrong_arguments_are_said() -> None:
    with plugins.installed("warprnnt_pytorch"):
        module = sys.modules["warprnnt_pytorch"]
        with pytest.raises(ValueError, match='`reduction` must be "none", "mean" or "sum"'):
            module.RNNTLoss(0, "batchmean")(make_logits(), *LABELS)
        with pytest.raises(ValueError, match="`targets` must not contain `blank`"):
            module.RNNTLoss(1)(make_logits(), *LABELS)
        with pytest.raises(ValueError, match="must not be a leaf"):
            plugins.uninstall()
            plugins.install("warprnnt_pytorch", reuse_logits=True)
            sys.modules["warprnnt_pytorch"].rnnt_loss(make_logits(), *LABELS)
    with pytest.raises(ValueError, match=r'^`fork` must be "HawkAaron" or "csukuangfj", but is'):
        plugins.install("warprnnt_pytorch", fork="b-flo")


def test_the_names_of_a_real_one_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def theirs(acts, labels, act_lens, label_lens, blank=0, reduction="mean"):
        raise AssertionError

    real = types.ModuleType("warprnnt_pytorch")
    real.rnnt_loss, real.RNNTLoss, real.__version__ = theirs, type("RNNTLoss", (), {}), "0.1"
    monkeypatch.setitem(sys.modules, "warprnnt_pytorch", real)
    names = dict(vars(real))
    with plugins.installed("warprnnt_pytorch"):
        check(called(real.rnnt_loss), expected())
        check(called(real.RNNTLoss()), expected())
        assert plugins.active()["warprnnt_pytorch"].version == "0.1"
    assert dict(vars(real)) == names
