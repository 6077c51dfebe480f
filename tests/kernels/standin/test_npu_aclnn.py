"""Return codes and messages of the three aclnn functions, as their documents give them.

CANN generates these functions; here the stand-in makes them of the operators' definition, tiling
and kernel, so what is tested is that those refuse what the documents say they refuse.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support import aclnn, oracles
from tests.support import emulated_operator as emulated

CASE = oracles.make_case([(4, 2), (3, 1)], 5, blank=4)
ROWS, VOCAB, BATCH, COLUMNS = 18, 5, 2, 2


def state_size(needs_grad: bool = True) -> int:
    """The formula of docs/aclnnRnntLossForward.md."""
    plane = -(-4 * ROWS // 64) * 64
    flags = -(-((9 if needs_grad else 4) * plane + 32 * BATCH) // 64) * 64
    return -(-(flags + 32 * 65) // 64) * 64 // 4


def floats(*shape: int) -> Tensor:
    return torch.empty(shape).npu()


def operands(dtype: torch.dtype = torch.float32) -> dict[str, dict[str, Any]]:
    """Valid arguments of each function, in order."""
    inputs = {
        "logits": CASE.logits.to(dtype).npu(),
        "targets": CASE.targets.int().npu(),
        "logit_lengths": CASE.logit_lengths.int().npu(),
        "target_lengths": CASE.target_lengths.int().npu(),
    }
    loss = {"loss": floats(BATCH)}
    status = {"status": torch.empty(BATCH, dtype=torch.int32).npu()}
    grad = {"grad": torch.empty(ROWS, VOCAB, dtype=dtype).npu()}
    blank, clamp, fused = {"blank": 4}, {"clamp": -1.0}, {"fused_log_softmax": True}
    allowed = {"blank_in_targets": False}
    restrictions = {"band": None, "emission_windows": None}
    return {
        "RnntLossFused": {
            **inputs,
            **restrictions,
            **blank,
            **clamp,
            **fused,
            **allowed,
            **loss,
            **grad,
            **status,
        },
        "RnntLossForward": {
            **inputs,
            **restrictions,
            **blank,
            **fused,
            "needs_grad": True,
            **allowed,
            **loss,
            "state": floats(state_size()),
            **status,
        },
        "RnntLossBackward": {
            **inputs,
            "state": floats(state_size()),
            "grad_loss": torch.ones(BATCH).npu(),
            **restrictions,
            **blank,
            **clamp,
            **fused,
            "fastemit_lambda": 0.0,
            **allowed,
            **grad,
        },
    }


FUNCTIONS = tuple(operands())
each_function = pytest.mark.parametrize("name", FUNCTIONS)


def call(name: str, **changes: Any) -> aclnn.Call:
    arguments = operands()[name]
    assert changes.keys() <= arguments.keys()
    return aclnn.Call(f"aclnn{name}", list({**arguments, **changes}.values()))


def workspace_of(prepared: aclnn.Call) -> Tensor:
    return torch.empty(prepared.workspace_bytes.value, dtype=torch.uint8, device="npu")


@pytest.mark.parametrize("dtype", emulated.DTYPES, ids=["float32", "float16", "bfloat16"])
def test_values(dtype: torch.dtype) -> None:
    """Both phases by hand, forward's state handed to backward."""
    arguments = operands(dtype)
    arguments["RnntLossBackward"]["state"] = arguments["RnntLossForward"]["state"]
    for name, values in arguments.items():
        prepared = aclnn.Call(f"aclnn{name}", list(values.values()))
        assert prepared.prepare() == aclnn.SUCCESS, aclnn.message()
        workspace = workspace_of(prepared)
        torch.npu.synchronize()
        assert prepared.launch(workspace) == aclnn.SUCCESS
        torch.npu.synchronize()
    costs, gradient = oracles.exact(CASE.with_logits(CASE.logits.to(dtype)))
    for name in ("RnntLossFused", "RnntLossForward"):
        emulated.assert_costs(arguments[name]["loss"].cpu(), costs)
        assert arguments[name]["status"].tolist() == [0, 0]
    for name in ("RnntLossFused", "RnntLossBackward"):
        oracles.assert_gradient(arguments[name]["grad"].cpu(), gradient, dtype)


def test_status_may_be_left_out() -> None:
    for name in ("RnntLossFused", "RnntLossForward"):
        prepared = call(name, status=None)
        assert prepared.prepare() == aclnn.SUCCESS
        torch.npu.synchronize()
        assert prepared.launch(workspace_of(prepared)) == aclnn.SUCCESS
        torch.npu.synchronize()


@each_function
def test_null(name: str) -> None:
    for operand, value in operands()[name].items():
        if isinstance(value, Tensor) and operand != "status":
            assert call(name, **{operand: None}).prepare() == aclnn.NULL_POINTER
            assert aclnn.message() == f"{name}: `{operand}` must not be nullptr."
    for missing in ("sizes", "executor"):
        assert call(name).prepare(**{missing: False}) == aclnn.NULL_POINTER
        expected = f"{name}: `workspaceSize` and `executor` must not be nullptr."
        assert aclnn.message() == expected


@each_function
def test_types_that_are_not_in_the_table(name: str) -> None:
    for operand, value in operands()[name].items():
        if not isinstance(value, Tensor):
            continue
        wrong = torch.int64 if operand not in ("targets", "logit_lengths") else torch.float32
        changed = torch.empty(value.shape, dtype=wrong).npu()
        assert call(name, **{operand: changed}).prepare() == aclnn.INVALID
        allowed = {torch.float32: "FLOAT", torch.int32: "INT32"}[value.dtype]
        if operand in ("logits", "grad"):
            allowed = "FLOAT, FLOAT16 or BF16"
        actual = "INT64" if wrong == torch.int64 else "FLOAT"
        assert aclnn.message() == f"{name}: `{operand}` must be {allowed}, but is {actual}."


@each_function
def test_formats_other_than_nd(name: str) -> None:
    logits = aclnn.tensor(operands()[name]["logits"], aclnn.NCHW)
    assert call(name, logits=logits).prepare() == aclnn.INVALID
    assert aclnn.message() == f"{name}: `logits` must have format ND, but has aclFormat 0."


def int32(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.int32).npu()


# Changes of the arguments, and what the tiling says about them.
REFUSED_BY_TILING: list[tuple[dict[str, Any], str]] = [
    ({"logits": floats(ROWS)}, "`logits` must have shape (N, V), but has (18,)."),
    ({"targets": int32(4, 3)}, "`targets` must have shape (B, S) = (2, 3), but has (4, 3)."),
    ({"targets": int32(2)}, "`targets` must have shape (B, S), but has (2,)."),
    (
        {"target_lengths": int32(3)},
        "`target_lengths` must have shape (B,) = (2,), but has (3,).",
    ),
    ({"blank": 5}, "`blank` must be in [-5, 4], but is 5."),
    ({"blank": -6}, "`blank` must be in [-5, 4], but is -6."),
    (
        {"targets": int32(2, 1024)},
        "The number of columns of `targets` must be at most 1023, but is 1024.",
    ),
    ({"loss": floats(3)}, "`loss` must have shape (B,) = (2,), but has (3,)."),
    ({"grad": floats(17, 5)}, "`grad` must have shape (N, V) = (18, 5), but has (17, 5)."),
    (
        {"grad": torch.empty(ROWS, VOCAB, dtype=torch.float16).npu()},
        "`grad` must be float32, as `logits`, but is float16.",
    ),
    ({"status": int32(1)}, "`status` must have shape (B,) = (2,), but has (1,)."),
    (
        {"state": floats(7)},
        f"`state` must have shape (state size,) = ({state_size()},), but has (7,).",
    ),
    ({"grad_loss": floats(1)}, "`grad_loss` must have shape (B,) = (2,), but has (1,)."),
]


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        pytest.param(name, changes, message, id=f"{name}: {message[:40]}")
        for name, arguments in operands().items()
        for changes, message in REFUSED_BY_TILING
        if changes.keys() <= arguments.keys()
    ],
)
def test_shapes_blank_and_types_that_do_not_agree(
    name: str, changes: dict[str, Any], message: str
) -> None:
    assert call(name, **changes).prepare() == aclnn.TILING
    assert aclnn.message() == f"{name}: {message}"


def test_fastemit_lambda_out_of_range() -> None:
    assert call("RnntLossBackward", fastemit_lambda=-0.5).prepare() == aclnn.TILING
    assert "`fastemit_lambda` must be" in aclnn.message()


def test_state_without_a_gradient_is_smaller_and_refused_by_backward() -> None:
    small = floats(state_size(needs_grad=False))
    assert call("RnntLossForward", needs_grad=False, state=small).prepare() == aclnn.SUCCESS
    assert call("RnntLossBackward", state=small).prepare() == aclnn.TILING
    assert re.search(r"`state` must have shape \(state size,\)", aclnn.message())


@each_function
def test_too_small_a_workspace(name: str) -> None:
    for workspace_is_there, size_offset in ((True, -1), (False, 0)):
        prepared = call(name)
        assert prepared.prepare() == aclnn.SUCCESS
        wanted = prepared.workspace_bytes.value
        assert wanted > 0
        workspace = workspace_of(prepared) if workspace_is_there else None
        assert prepared.launch(workspace, wanted + size_offset) == aclnn.INVALID
        got = wanted - 1 if workspace_is_there else 0
        expected = f"aclnn{name}: `workspaceSize` must be at least {wanted}, but is {got}."
        assert aclnn.message() == expected


@each_function
def test_a_second_phase_without_a_first(name: str) -> None:
    assert call(name).launch(None) == aclnn.NULL_POINTER


@each_function
def test_outputs_must_be_contiguous(name: str) -> None:
    output = "loss" if name == "RnntLossForward" else "grad"
    shape = operands()[name][output].shape
    strided = torch.empty(*shape[:-1], 2 * shape[-1]).npu()[..., ::2]
    assert call(name, **{output: strided}).prepare() == aclnn.INVALID
    assert aclnn.message() == f"{name}: `{output}` must be contiguous."


def test_a_broken_rule_of_the_hardware_is_heard_at_the_next_wait() -> None:
    """Here an output that lies in an input's memory."""
    logits = CASE.logits.npu()
    prepared = call("RnntLossForward", logits=logits, loss=logits[0, :BATCH])
    assert prepared.prepare() == aclnn.SUCCESS
    workspace = workspace_of(prepared)
    torch.npu.synchronize()
    assert prepared.launch(workspace) == aclnn.SUCCESS
    assert aclnn.synchronize() == aclnn.FAULT
    assert aclnn.message().startswith("stand-in device: aclnnRnntLossForward: ")
    assert "`dst` writes GM `logits`, which is an input" in aclnn.message()
    assert aclnn.synchronize() == aclnn.SUCCESS
