"""The public functions as other libraries' callers use them: NumPy's scalars, None, TorchScript."""

from __future__ import annotations

import io
import re
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from asr_ascend.losses import (
    RNNTLoss,
    joiner_rnnt_loss,
    rnnt_alignment,
    rnnt_loss,
    rnnt_loss_and_grad,
)
from tests.support.small_batch import BATCH, V, make_logits

FUNCTIONS = (rnnt_loss, rnnt_loss_and_grad, rnnt_alignment)


@pytest.mark.parametrize(
    "blank",
    [np.int64(4), np.int32(-1), np.array(4), torch.tensor(4), torch.tensor(-1, dtype=torch.int32)],
    ids=repr,
)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_integers_for_blank(function: Any, blank: Any) -> None:
    torch.testing.assert_close(
        function(make_logits(), *BATCH, blank), function(make_logits(), *BATCH, 4), rtol=0, atol=0
    )


def test_integers_for_blank_of_the_module_and_the_joiner() -> None:
    expected = rnnt_loss(make_logits(), *BATCH, 4)
    assert torch.equal(RNNTLoss(np.int64(4))(make_logits(), *BATCH), expected)
    inputs = torch.randn(3, 4, 6), torch.randn(3, 3, 6), torch.randn(V, 6), None
    values = [joiner_rnnt_loss(*inputs, *BATCH, blank) for blank in (np.int64(4), 4)]
    assert torch.equal(*values)


@pytest.mark.parametrize(
    ("blank", "shown"),
    [
        (True, "True"),
        (np.bool_(False), repr(np.bool_(False))),
        (torch.tensor(True), "tensor(True)"),
        (0.0, "0.0"),
        (np.float32(0), repr(np.float32(0))),
        ("0", '"0"'),
        (torch.tensor([4]), "tensor([4])"),
        (None, "None"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_integer_is_refused_for_blank(blank: Any, shown: str) -> None:
    """True among the positional arguments is another library's flag."""
    message = f"`blank` must be an int, but is {shown}."
    for function in FUNCTIONS:
        with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
            function(make_logits(), *BATCH, blank)
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        RNNTLoss(blank)


@pytest.mark.parametrize("name", ["clamp", "fastemit_lambda"])
@pytest.mark.parametrize(
    "number", [np.float32(0.25), np.float64(0.25), torch.tensor(0.25), 0.25], ids=repr
)
def test_numbers(number: Any, name: str) -> None:
    expected = rnnt_loss_and_grad(make_logits(), *BATCH, **{name: 0.25})
    actual = rnnt_loss_and_grad(make_logits(), *BATCH, **{name: number})
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def test_an_integer_of_numpy_for_clamp() -> None:
    expected = rnnt_loss_and_grad(make_logits(), *BATCH, clamp=1)
    actual = rnnt_loss_and_grad(make_logits(), *BATCH, clamp=np.int64(1))
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["clamp", "fastemit_lambda"])
@pytest.mark.parametrize(
    ("value", "shown"), [("1", '"1"'), (None, "None"), (True, "True"), (1j, "1j")], ids=str
)
def test_what_is_no_number_is_refused(value: Any, shown: str, name: str) -> None:
    message = f"`{name}` must be a float, but is {shown}."
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        rnnt_loss(make_logits(), *BATCH, **{name: value})


def test_no_reduction_is_none() -> None:
    expected = rnnt_loss(make_logits(), *BATCH, reduction="none")
    assert torch.equal(rnnt_loss(make_logits(), *BATCH, reduction=None), expected)
    assert torch.equal(RNNTLoss(reduction=None)(make_logits(), *BATCH), expected)
    inputs = torch.randn(3, 4, 6), torch.randn(3, 3, 6), torch.randn(V, 6), None
    assert joiner_rnnt_loss(*inputs, *BATCH, reduction=None).shape == (3,)


class Model(nn.Module):
    """A joiner and its loss, as a training model that is scripted whole."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.output = nn.Linear(V, V)
        self.loss = RNNTLoss(**options)

    def forward(
        self, hidden: Tensor, targets: Tensor, logit_lengths: Tensor, target_lengths: Tensor
    ) -> Tensor:
        return self.loss(self.output(hidden), targets, logit_lengths, target_lengths)

    @torch.jit.export
    def logits(self, hidden: Tensor) -> Tensor:
        """What an exported model is for."""
        return self.output(hidden)


def script(function: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer releases call torch.jit.script deprecated
        return torch.jit.script(function)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"reduction": "sum", "clamp": 0.1},
        {"reduction": "none", "fastemit_lambda": 0.2},
        {"reuse_logits": True, "blank": 4},
    ],
    ids=lambda options: "-".join(options) or "plain",
)
def test_a_scripted_module_gives_the_same(options: dict[str, Any], packed: bool) -> None:
    model = Model(**options)
    scripted = script(model)
    gradients = []
    for module in (model, scripted):
        value = module(make_logits(packed), *BATCH)
        gradients.append((value.detach(), torch.autograd.grad(value.sum(), model.output.weight)))
    torch.testing.assert_close(*gradients, rtol=0, atol=0)


def test_a_scripted_module_is_saved_and_loaded() -> None:
    model = Model(blank_in_targets="allow")
    file = io.BytesIO()
    torch.jit.save(script(model), file)
    file.seek(0)
    loaded = torch.jit.load(file)
    hidden = make_logits()
    assert torch.equal(loaded.logits(hidden), model.logits(hidden))
    assert torch.equal(loaded(hidden, *BATCH), model(hidden, *BATCH))


def test_a_scripted_loss_checks_values_and_refuses_the_reference() -> None:
    targets, *lengths = BATCH
    with pytest.raises(Exception, match="`targets` must not contain `blank`, but is 4"):
        script(RNNTLoss())(make_logits(), targets * 0 + 4, *lengths)
    with pytest.raises(Exception, match='backend="reference" can\'t run in TorchScript'):
        script(RNNTLoss(backend="reference"))(make_logits(), *BATCH)


def test_a_scripted_loss_refuses_the_options_that_the_function_refuses() -> None:
    with pytest.raises(Exception, match='`reduction` must be "none", "mean" or "sum"'):
        script(RNNTLoss(reduction="avg"))(make_logits(), *BATCH)
    with pytest.raises(Exception, match="`logits` must be on the device of `backend`"):
        script(RNNTLoss(backend="npu"))(make_logits(), *BATCH)
    with pytest.raises(Exception, match='`blank_in_targets` must be "error" or "allow"'):
        script(RNNTLoss(blank_in_targets="alow"))(make_logits(), *BATCH)
    leaf = make_logits().requires_grad_()
    with pytest.raises(Exception, match="`logits` must not be a leaf that requires grad"):
        script(RNNTLoss(reuse_logits=True))(leaf, *BATCH)


@pytest.mark.parametrize(
    ("function", "instead"),
    [
        (rnnt_loss, "hold an `RNNTLoss` in a module, which can be"),
        (rnnt_loss_and_grad, "call it outside of the scripted code"),
        (rnnt_alignment, "call it outside of the scripted code"),
        (joiner_rnnt_loss, "call it outside of the scripted code"),
    ],
)
def test_scripting_a_function_gives_one_sentence(function: Any, instead: str) -> None:
    message = f"`{function.__name__}` can't be scripted: {instead}."
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
        script(function)
