"""torchaudio's own functions, with our kernel behind their operator or our function behind them."""

from __future__ import annotations

import io
import re
import warnings
from typing import Any

import pytest
import torch
import torchaudio
from torch import Tensor

from asr_ascend import plugins
from asr_ascend.losses import rnnt_loss
from tests.support.tiny_transducer import LABELS, TARGETS, assert_same_training, features, train
from tests.support.tiny_transducer import Transducer as Tiny

OPERATOR = "torchaudio::rnnt_loss_forward"


def has_kernel(key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(OPERATOR, key)


def make_logits(dtype: torch.dtype = torch.float32) -> Tensor:
    torch.manual_seed(3)
    return Tiny()(features(), TARGETS).detach().mul(3).to(dtype).requires_grad_()


def called(loss: Any, logits: Tensor | None = None) -> tuple[Tensor, Tensor]:
    logits = make_logits() if logits is None else logits
    value = loss(logits, *LABELS)
    return value.detach().clone(), torch.autograd.grad(value.sum(), logits)[0]


def script(function: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer releases call torch.jit.script deprecated
        return torch.jit.script(function)


def wenet(logits: Tensor, *labels: Tensor) -> Tensor:
    """WeNet's call: the name is looked up each time; lengths int32, blank 0, mean.

    https://github.com/wenet-e2e/wenet/blob/main/wenet/models/transducer/transducer.py
    """
    targets, logit_lengths, target_lengths = labels
    return torchaudio.functional.rnnt_loss(
        logits,
        targets.to(torch.int32),
        logit_lengths.to(torch.int32),
        target_lengths.to(torch.int32),
        blank=0,
        reduction="mean",
    )


def icefall(logits: Tensor, *labels: Tensor) -> Tensor:
    """icefall's call, with a sum over the batch.

    https://github.com/k2-fsa/icefall/blob/master/egs/librispeech/ASR/transducer/model.py
    """
    targets, logit_lengths, target_lengths = labels
    return torchaudio.functional.rnnt_loss(
        logits=logits,
        targets=targets,
        logit_lengths=logit_lengths,
        target_lengths=target_lengths,
        blank=0,
        reduction="sum",
    )


@pytest.mark.parametrize("options", [{"cpu": True}, {"patch": True}], ids=str)
@pytest.mark.parametrize(
    "loss", [wenet, icefall, torchaudio.transforms.RNNTLoss(blank=0)], ids=["wenet", "icefall", ""]
)
def test_five_steps_of_a_call_site(loss: Any, options: dict[str, bool]) -> None:
    theirs = train(loss)
    with plugins.installed("torchaudio", **options):
        ours = train(loss)
        assert plugins.active()["torchaudio"].calls == 5
    assert_same_training(ours, theirs)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("clamp", [-1.0, 0.05])
@pytest.mark.parametrize("blank", [0, -1])
def test_the_operator_gives_our_numbers(blank: int, clamp: float, reduction: str) -> None:
    arguments = blank, clamp, reduction
    expected = called(lambda *inputs: rnnt_loss(*inputs, *arguments))
    with plugins.installed("torchaudio", cpu=True):
        for loss in (
            torchaudio.transforms.RNNTLoss(*arguments),
            lambda *inputs: torchaudio.functional.rnnt_loss(*inputs, *arguments),
        ):
            # The upstream gradient multiplies in another order.
            torch.testing.assert_close(called(loss), expected, rtol=1e-6, atol=1e-7)
        assert plugins.active()["torchaudio"].calls == 2


def test_only_the_npu_by_default_and_everything_is_taken_back() -> None:
    theirs = called(torchaudio.functional.rnnt_loss)
    before = torch._C._dispatch_dump(OPERATOR)
    plugins.install("torchaudio")
    assert has_kernel("PrivateUse1")
    assert torch.equal(called(torchaudio.functional.rnnt_loss)[1], theirs[1])
    assert plugins.active()["torchaudio"].calls == 0
    plugins.uninstall("torchaudio")
    assert torch._C._dispatch_dump(OPERATOR) == before
    with plugins.installed("torchaudio", cpu=True):
        assert not torch.equal(called(torchaudio.functional.rnnt_loss)[1], theirs[1])
    assert torch.equal(called(torchaudio.functional.rnnt_loss)[1], theirs[1])
    assert torch._C._dispatch_dump(OPERATOR) == before


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
def test_a_scripted_loss_has_a_gradient() -> None:
    """Without the plug torchaudio's scripted loss has a value alone."""
    expected = called(rnnt_loss)
    with plugins.installed("torchaudio", cpu=True):
        scripted = script(torchaudio.transforms.RNNTLoss())
        torch.testing.assert_close(called(scripted), expected, rtol=1e-6, atol=1e-7)
        file = io.BytesIO()
        torch.jit.save(scripted, file)
        file.seek(0)
        torch.testing.assert_close(called(torch.jit.load(file)), expected, rtol=1e-6, atol=1e-7)
        assert plugins.active()["torchaudio"].calls == 2


@pytest.mark.slow  # the first use of the compiler takes seconds
@pytest.mark.parametrize("options", [{"cpu": True}, {"patch": True}], ids=str)
def test_a_compiled_loss_is_one_graph(options: dict[str, bool]) -> None:
    expected = called(rnnt_loss)
    with plugins.installed("torchaudio", **options):
        torch._dynamo.reset()
        compiled = torch.compile(
            torchaudio.transforms.RNNTLoss(), fullgraph=True, backend="aot_eager"
        )
        for _ in range(2):
            torch.testing.assert_close(called(compiled), expected, rtol=1e-6, atol=1e-7)
        # Calls of the operator are counted in a graph, calls of a function are not.
        assert plugins.active()["torchaudio"].calls == (2 if "cpu" in options else 0)
    torch._dynamo.reset()


def test_patched_names_are_ours_everywhere_and_put_back() -> None:
    theirs = torchaudio.functional.rnnt_loss
    with plugins.installed("torchaudio", patch=True):
        ours = torchaudio.functional.rnnt_loss
        assert ours is torchaudio.functional.functional.rnnt_loss
        assert ours is torchaudio.transforms._transforms.rnnt_loss
        assert plugins.active()["torchaudio"].changed[1:] == (
            "torchaudio.functional.rnnt_loss",
            "torchaudio.functional.functional.rnnt_loss",
            "torchaudio.transforms._transforms.rnnt_loss",
        )
        expected = called(rnnt_loss)
        torch.testing.assert_close(called(ours), expected, rtol=0, atol=0)
        torch.testing.assert_close(
            called(torchaudio.transforms.RNNTLoss()), expected, rtol=0, atol=0
        )
        assert plugins.active()["torchaudio"].calls == 2
    assert torchaudio.functional.rnnt_loss is theirs
    assert torchaudio.transforms._transforms.rnnt_loss is theirs


def test_patched_names_give_a_float32_cost_and_refuse_a_second_derivative() -> None:
    half = make_logits(torch.float16)
    exact = rnnt_loss(half.double(), *LABELS).item()
    with plugins.installed("torchaudio", patch=True):
        value, gradient = called(torchaudio.functional.rnnt_loss, half)
        assert (value.dtype, gradient.dtype) == (torch.float32, torch.float16)
        assert value.item() == pytest.approx(exact, rel=1e-6)
        logits = make_logits()
        loss = torchaudio.functional.rnnt_loss(logits, *LABELS)
        (gradient,) = torch.autograd.grad(loss, logits, create_graph=True)
        with pytest.raises(RuntimeError, match="has no second derivative"):
            gradient.square().sum().backward()
    with plugins.installed("torchaudio", cpu=True):
        assert called(torchaudio.functional.rnnt_loss, half)[0].dtype == torch.float16


def test_patched_names_cannot_be_scripted() -> None:
    message = '`rnnt_loss` can\'t be scripted: install("torchaudio", cpu=True) can be.'
    with (
        plugins.installed("torchaudio", patch=True),
        pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"),
    ):
        script(torchaudio.functional.rnnt_loss)


@pytest.mark.parametrize("options", [{"cpu": True}, {"patch": True}], ids=str)
def test_blank_among_the_targets(options: dict[str, bool]) -> None:
    """An error unless it is allowed; then the gradient is that of the definition."""

    def loss(logits: Tensor, *labels: Tensor) -> Tensor:
        return torchaudio.functional.rnnt_loss(logits, *labels, blank=1)

    with (
        plugins.installed("torchaudio", **options),
        pytest.raises(ValueError, match="`targets` must not contain `blank`"),
    ):
        loss(make_logits(), *LABELS)
    expected = called(
        lambda *inputs: rnnt_loss(*inputs, blank=1, blank_in_targets="allow", backend="reference")
    )
    with plugins.installed("torchaudio", **options, blank_in_targets="allow"):
        torch.testing.assert_close(called(loss), expected, rtol=1e-5, atol=1e-6)
