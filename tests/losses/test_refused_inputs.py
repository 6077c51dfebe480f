"""Tensors that no loss can read and transforms that none takes: one sentence each, everywhere."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode

from asr_ascend.losses import (
    RNNTLoss,
    joiner_rnnt_loss,
    pack_logits,
    rnnt_alignment,
    rnnt_loss,
    rnnt_loss_and_grad,
    unpack_logits,
)
from asr_ascend.losses.distillation import (
    collapsed_log_probs,
    distillation_loss,
    distilled_rnnt_loss,
)

TARGETS = torch.tensor([[1, 2], [3, 0]])
LENGTHS = torch.tensor([3, 2]), torch.tensor([2, 1])
BATCH = TARGETS, *LENGTHS
ROWS, V, H = 3 * 3 + 2 * 2, 5, 4
LOGITS = torch.randn(ROWS, V, generator=torch.Generator().manual_seed(0))
PADDED = torch.zeros(2, 3, 3, V)
COLLAPSED = torch.zeros(ROWS, 3)
ENCODED, PREDICTED, WEIGHT = torch.zeros(2, 3, H), torch.zeros(2, 3, H), torch.zeros(V, H)


def joined(value: Tensor, **options: Any) -> Tensor:
    return joiner_rnnt_loss(value, PREDICTED, WEIGHT, None, *BATCH, 4, **options)


# The function of one tensor, that tensor's name, one that it takes.
FUNCTIONS: dict[str, tuple[Callable[..., Any], str, Tensor]] = {
    "rnnt_loss": (lambda z, **o: rnnt_loss(z, *BATCH, **o), "logits", LOGITS),
    "RNNTLoss": (lambda z, **o: RNNTLoss(**o)(z, *BATCH), "logits", LOGITS),
    "rnnt_loss_and_grad": (lambda z, **o: rnnt_loss_and_grad(z, *BATCH, **o), "logits", LOGITS),
    "rnnt_alignment": (lambda z, **o: rnnt_alignment(z, *BATCH, **o), "logits", LOGITS),
    "joiner_rnnt_loss": (joined, "encoder_out", ENCODED),
    "pack_logits": (lambda z: pack_logits(z, *LENGTHS), "logits", PADDED),
    "unpack_logits": (lambda z: unpack_logits(z, *LENGTHS), "packed", LOGITS),
    "collapsed_log_probs": (lambda z: collapsed_log_probs(z, *BATCH), "logits", LOGITS),
    "distilled_rnnt_loss": (
        lambda z: distilled_rnnt_loss(z, COLLAPSED, *BATCH),
        "logits",
        LOGITS,
    ),
    "distillation_loss": (
        lambda z: distillation_loss(z, COLLAPSED, *LENGTHS),
        "student",
        COLLAPSED,
    ),
}
WITH_BACKEND = ("rnnt_loss", "RNNTLoss", "rnnt_loss_and_grad", "rnnt_alignment")
each_function = pytest.mark.parametrize("name", FUNCTIONS)


def message_of(error: type[Exception], call: Callable[[], Any]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about prototypes
        with pytest.raises(error) as raised:
            call()
    assert type(raised.value) is error
    return str(raised.value)


KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "sparse_coo": lambda z: z.to_sparse(),
    "nested": lambda z: torch.nested.nested_tensor([z[:1], z[1:]]),
    "mkldnn": lambda z: z.contiguous().to_mkldnn(),
}


@each_function
@pytest.mark.parametrize("kind", KINDS)
def test_tensors_that_are_not_dense(kind: str, name: str) -> None:
    function, argument, given = FUNCTIONS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = KINDS[kind](given)
    assert message_of(ValueError, lambda: function(value)) == (
        f"`{argument}` must be a dense tensor, but is {kind}."
    )


@pytest.mark.parametrize("position", range(3))
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_indices_that_are_not_dense(backend: str, position: int) -> None:
    batch = list(BATCH)
    batch[position] = batch[position].to_sparse()
    name = ("targets", "logit_lengths", "target_lengths")[position]
    assert message_of(ValueError, lambda: rnnt_loss(LOGITS, *batch, backend=backend)) == (
        f"`{name}` must be a dense tensor, but is sparse_coo."
    )


@each_function
def test_tensors_without_values(name: str) -> None:
    function, argument, given = FUNCTIONS[name]
    expected = f"`{argument}` must have values, but is on meta."
    assert message_of(ValueError, lambda: function(given.to("meta"))) == expected
    if name in WITH_BACKEND:
        message = message_of(ValueError, lambda: function(given.to("meta"), backend="reference"))
        assert message == expected


@pytest.mark.parametrize("name", ["rnnt_loss", "rnnt_alignment"])
def test_logits_on_another_device(name: str) -> None:
    """One that torch knows and that isn't here: all that it needs is a name."""
    function = {"rnnt_loss": rnnt_loss, "rnnt_alignment": rnnt_alignment}[name]
    with FakeTensorMode():
        logits = torch.empty(ROWS, V, device="cuda")
        batch = [torch.empty(index.shape, dtype=index.dtype, device="cuda") for index in BATCH]
    assert message_of(RuntimeError, lambda: function(logits, *batch)) == (
        f"`{name}` has no native backend for logits on cuda:0; "
        'backend="reference" works there, slowly.'
    )
    assert message_of(ValueError, lambda: function(logits, *batch, backend="cpu")) == (
        '`logits` must be on the CPU for backend="cpu", but is on cuda:0.'
    )


DIFFERENTIABLE = ("rnnt_loss", "RNNTLoss", "joiner_rnnt_loss", "collapsed_log_probs")


def own_name(name: str) -> str:
    return "rnnt_loss" if name in ("RNNTLoss", "rnnt_loss_and_grad") else name


@pytest.mark.parametrize("name", DIFFERENTIABLE)
@pytest.mark.parametrize(
    "transform", [torch.func.grad, torch.func.vjp, torch.func.jacrev], ids=lambda f: f.__name__
)
def test_func_gradients(transform: Callable[..., Any], name: str) -> None:
    function, _, given = FUNCTIONS[name]

    def loss(value: Tensor) -> Tensor:
        return function(value).sum()

    call = (lambda: torch.func.vjp(loss, given)) if transform is torch.func.vjp else None
    assert message_of(RuntimeError, call or (lambda: transform(loss)(given))) == (
        f"`{own_name(name)}` has no torch.func derivative (grad, vjp, jacrev, hessian): only "
        "torch.autograd's backward gives its gradient."
    )


def test_the_reference_has_a_func_gradient() -> None:
    gradient = torch.func.grad(lambda z: rnnt_loss(z, *BATCH, backend="reference"))(LOGITS)
    leaf = LOGITS.clone().requires_grad_()
    rnnt_loss(leaf, *BATCH).backward()
    torch.testing.assert_close(gradient, leaf.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_forward_mode(name: str) -> None:
    function, _, given = FUNCTIONS[name]
    assert message_of(RuntimeError, lambda: torch.func.jvp(function, (given,), (given,))) == (
        f"`{own_name(name)}` has no forward-mode derivative (torch.func.jvp and jacfwd, "
        "torch.autograd.forward_ad): only backward gives its gradient."
    )


@pytest.mark.parametrize("backend", [None, "reference"])
@pytest.mark.parametrize("name", [*WITH_BACKEND, "joiner_rnnt_loss", "collapsed_log_probs"])
def test_vmap(name: str, backend: str | None) -> None:
    function, _, given = FUNCTIONS[name]
    options = {} if name == "collapsed_log_probs" else {"backend": backend}
    values = torch.stack([given, given])
    assert message_of(
        RuntimeError, lambda: torch.vmap(lambda z: function(z, **options))(values)
    ) == (
        f"`{own_name(name)}` can't run under torch.vmap: it takes a whole batch already, so call "
        "it once with all samples along the batch dimension."
    )


@pytest.mark.parametrize("name", ["joiner_rnnt_loss", "rnnt_alignment", "collapsed_log_probs"])
def test_vmap_over_lengths(name: str) -> None:
    def call(lengths: Tensor) -> Any:
        batch = TARGETS, lengths, LENGTHS[1]
        if name == "joiner_rnnt_loss":
            return joiner_rnnt_loss(ENCODED, PREDICTED, WEIGHT, None, *batch, 4)
        function = {"rnnt_alignment": rnnt_alignment}.get(name, collapsed_log_probs)
        return function(LOGITS, *batch)

    lengths = torch.stack([LENGTHS[0], LENGTHS[0]])
    assert message_of(RuntimeError, lambda: torch.vmap(call)(lengths)) == (
        f"`{name}` can't run under torch.vmap: it takes a whole batch already, so call it once "
        "with all samples along the batch dimension."
    )


def test_second_derivatives_of_collapsed_log_probs() -> None:
    """A gradient without a graph would take part in a penalty with a derivative of 0."""
    leaf = LOGITS.clone().requires_grad_()
    collapsed = collapsed_log_probs(leaf, *BATCH)
    call = lambda: torch.autograd.grad(collapsed[:, 0].sum(), leaf, create_graph=True)  # noqa: E731
    assert message_of(RuntimeError, call) == (
        "`collapsed_log_probs` can't run backward with create_graph=True: it has no second "
        "derivative."
    )


DISTILLATION_ERRORS = [
    (TypeError, {"student": [0.0]}, "`student` must be a Tensor, but is a list."),
    (
        TypeError,
        {"teacher": COLLAPSED.half()},
        "`teacher` must be float32 or float64, but is float16.",
    ),
    (
        ValueError,
        {"teacher": COLLAPSED.to("meta")},
        "`teacher` must be on cpu as `student`, but is on meta.",
    ),
    (
        TypeError,
        {"logit_lengths": LENGTHS[0].float()},
        "`logit_lengths` must be int32 or int64, but is float32.",
    ),
    (
        ValueError,
        {"target_lengths": LENGTHS[1][:1]},
        "`target_lengths` must have shape (2,), but has shape (1,).",
    ),
]


@pytest.mark.parametrize(("error", "changes", "message"), DISTILLATION_ERRORS)
def test_distillation_loss(error: type[Exception], changes: dict[str, Any], message: str) -> None:
    lengths = dict(zip(("logit_lengths", "target_lengths"), LENGTHS, strict=True))
    given = {"student": COLLAPSED, "teacher": COLLAPSED, **lengths, **changes}
    assert message_of(error, lambda: distillation_loss(**given)) == message


def test_block_bytes() -> None:
    assert message_of(ValueError, lambda: collapsed_log_probs(LOGITS, *BATCH, block_bytes="x")) == (
        '`block_bytes` must be an int of at least 1, but is "x".'
    )
