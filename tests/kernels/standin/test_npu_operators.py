"""The operators as torch sees them: schema, fakes, autograd, compiled callers. On the stand-in."""

from __future__ import annotations

import warnings

import pytest
import torch

from asr_ascend.losses import rnnt_loss
from asr_ascend.losses.backends import npu, npu_library
from tests.support import emulated_operator as emulated
from tests.support import oracles
from tests.support.npu_cases import batch_of

CASE = oracles.make_case([(7, 3), (4, 2), (12, 5)], 11, blank=3)
OPTIONS = 3, -1.0, True, 0.0, 0.0, False, None, None
OPS = torch.ops.asr_ascend


@pytest.fixture(autouse=True)
def loaded() -> None:
    npu_library.load()


def arguments(dtype: torch.dtype = torch.float32) -> tuple[object, ...]:
    return (CASE.logits.to(dtype).npu(), *batch_of(CASE, "npu"), *OPTIONS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("needs_grad", [True, False])
def test_fakes_have_the_metadata_of_the_results(needs_grad: bool, dtype: torch.dtype) -> None:
    """Which ties the Python formula of the state's size to that of the kernel's headers."""
    checks = ("test_faketensor", "test_autograd_registration")
    given = arguments(dtype)
    torch.library.opcheck(
        OPS.rnnt_loss_forward.default, (*given, needs_grad, False), test_utils=checks
    )
    torch.library.opcheck(OPS.rnnt_loss_fused.default, given, test_utils=checks)
    costs, state = OPS.rnnt_loss_forward(*given, True, False)
    logits, *rest = given
    backward = costs, logits, state, *rest
    torch.library.opcheck(OPS.rnnt_loss_backward.default, backward, test_utils=checks)
    torch.library.opcheck(
        OPS.rnnt_loss_backward_.default, backward, test_utils=("test_faketensor",)
    )


def test_state_is_float32_and_of_the_size_of_the_documents() -> None:
    for needs_grad in (True, False):
        _, state = OPS.rnnt_loss_forward(*arguments(), needs_grad, False)
        expected = npu.state_size(CASE.logits.shape[0], 3) if needs_grad else 0
        assert state.shape == (expected,) and state.dtype == torch.float32


def test_writing_in_place_is_seen_by_autograd() -> None:
    given = arguments()
    costs, state = OPS.rnnt_loss_forward(*given, True, True)
    logits, *rest = given
    version, address = logits._version, logits.data_ptr()
    assert OPS.rnnt_loss_backward_(torch.ones_like(costs), logits, state, *rest) is None
    assert logits._version == version + 1 and logits.data_ptr() == address
    _, expected = oracles.exact(CASE)
    oracles.assert_gradient(logits.cpu(), expected, torch.float32)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("lengths_on", ["cpu", "npu"])
def test_a_compiled_caller_in_one_graph(lengths_on: str, backend: str) -> None:
    compiled = torch.compile(rnnt_loss, fullgraph=True, backend=backend)
    leaf = CASE.logits.npu().requires_grad_()
    value = compiled(leaf, *batch_of(CASE, lengths_on), CASE.blank, reduction="sum")
    value.backward()
    costs, expected = oracles.exact(CASE)
    emulated.assert_costs(value.detach().cpu(), costs.sum())
    oracles.assert_gradient(leaf.grad.cpu(), expected, torch.float32)


def test_vmap_is_refused() -> None:
    logits = CASE.logits.npu()[None]
    with pytest.raises(RuntimeError, match=r"^`rnnt_loss` can't run under torch\.vmap"):
        torch.vmap(lambda rows: rnnt_loss(rows, *batch_of(CASE), CASE.blank))(logits)


def test_nothing_warns() -> None:
    leaf = CASE.logits.npu().requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rnnt_loss(leaf, *batch_of(CASE), CASE.blank).backward()
        rnnt_loss(leaf * 1, *batch_of(CASE), CASE.blank, reuse_logits=True).backward()
