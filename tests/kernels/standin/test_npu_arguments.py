"""What is refused on an NPU, over the stand-in runtime: at once, when validated, or when asked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from asr_ascend.losses import available_backends, check_status, rnnt_loss, rnnt_loss_and_grad
from asr_ascend.losses.backends import npu_library
from tests.support import oracles
from tests.support.npu_cases import batch_of, run

LENGTHS = [(4, 2), (3, 1), (2, 0)]


def a_case() -> oracles.Case:
    return oracles.make_case(LENGTHS, 6, blank=5)


def loss(case: oracles.Case, lengths_on: str = "npu", **options: object) -> Tensor:
    return rnnt_loss(
        case.logits.npu(), *batch_of(case, lengths_on), case.blank, reduction="none", **options
    )


@pytest.fixture(autouse=True)
def no_status_is_left() -> None:
    try:
        check_status()
    except (ValueError, RuntimeError):
        check_status()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"logits": torch.zeros(17, 6, dtype=torch.float64)},
            TypeError,
            "`logits` on an NPU must be float32, float16 or bfloat16, but is float64.",
        ),
        (
            {"targets": torch.zeros(3, 1024, dtype=torch.int32)},
            ValueError,
            "`targets` on an NPU must have at most 1023 columns, but has 1024.",
        ),
        ({"blank": 6}, ValueError, "`blank` must be in [-6, 5], but is 6."),
        (
            {"logit_lengths": torch.tensor([4, 0, 2])},
            ValueError,
            "`logit_lengths` must be at least 1, but is 0 for sample 1.",
        ),
        (
            {"target_lengths": torch.tensor([3, 1, 0])},
            ValueError,
            "`target_lengths` must be in [0, 2], but is 3 for sample 0.",
        ),
        (
            {"target_lengths": torch.tensor([2, 1, 1])},
            ValueError,
            "packed `logits` must have sum(logit_lengths * (target_lengths + 1)) = 22 rows, "
            "but has 20.",
        ),
        (
            {"delay_penalty": 0.1},
            ValueError,
            "`delay_penalty` must be 0 on an NPU, whose operator has none yet, but is 0.1.",
        ),
        (
            {"backend": "cpu"},
            ValueError,
            '`logits` must be on the CPU for backend="cpu", but is on npu:0.',
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_refused_at_once(change: dict[str, object], error: type, message: str) -> None:
    """Lengths are on the CPU here, so they cost no wait."""
    case = a_case()
    arguments = {
        "logits": case.logits,
        "targets": case.targets,
        "logit_lengths": case.logit_lengths,
        "target_lengths": case.target_lengths,
        "blank": case.blank,
        **change,
    }
    for name in ("logits", "targets"):
        arguments[name] = arguments[name].npu()
    for function in (rnnt_loss, rnnt_loss_and_grad):
        with pytest.raises(error, match=f"^{re.escape(message)}$"):
            function(**arguments)


def test_backend_npu_wants_npu_tensors() -> None:
    case = a_case()
    message = '`logits` must be on an NPU for backend="npu", but is on cpu.'
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        rnnt_loss(case.logits, case.targets, *batch_of(case)[1:], backend="npu")


@pytest.mark.parametrize("function", [rnnt_loss, rnnt_loss_and_grad])
def test_padded_logits_are_checked_with_lengths_on_the_device_too(function: Callable) -> None:
    """The lengths come to the host in any case, so what is wrong is said at once."""
    case = replace(a_case(), logit_lengths=torch.tensor([4, 0, 2]))
    message = "`logit_lengths` must be in [1, 4], but is 0 for sample 1."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        function(a_case().padded_logits().npu(), *batch_of(case, "npu"), case.blank)


def long_utterance(case: oracles.Case) -> oracles.Case:
    return replace(case, logit_lengths=torch.tensor([4, 3, 3]))


def no_frames(case: oracles.Case) -> oracles.Case:
    return replace(case, logit_lengths=torch.tensor([4, 0, -1]))


def too_many_labels(case: oracles.Case) -> oracles.Case:
    return replace(case, target_lengths=torch.tensor([2, 3, 0]))


def negative_labels(case: oracles.Case) -> oracles.Case:
    return replace(case, target_lengths=torch.tensor([2, -1, 0]))


def label_is_blank(case: oracles.Case) -> oracles.Case:
    targets = case.targets.clone()
    targets[0, 1] = 5
    return replace(case, targets=targets)


def label_outside(case: oracles.Case) -> oracles.Case:
    targets = case.targets.clone()
    targets[0, 0] = 6
    targets[1, 0] = -1
    return replace(case, targets=targets)


FAULTS: dict[Callable[[oracles.Case], oracles.Case], tuple[str, str]] = {
    long_utterance: (
        "packed `logits` must have sum(logit_lengths * (target_lengths + 1)) = 21 rows, "
        "but has 20.",
        "packed `logits` must have sum(logit_lengths * (target_lengths + 1)) rows, or as many "
        "as a `band` has cells, but do not in {call}.",
    ),
    no_frames: (
        "`logit_lengths` must be at least 1, but is 0 for sample 1.",
        "`logit_lengths` must be at least 1 and at most the frames of a `band`, "
        "but is not for samples 1 and 2 of {call}.",
    ),
    too_many_labels: (
        "`target_lengths` must be in [0, 2], but is 3 for sample 1.",
        "`target_lengths` must be at least 0 and at most the columns of `targets`, "
        "but is not for sample 1 of {call}.",
    ),
    negative_labels: (
        "`target_lengths` must be in [0, 2], but is -1 for sample 1.",
        "`target_lengths` must be at least 0 and at most the columns of `targets`, "
        "but is not for sample 1 of {call}.",
    ),
    label_is_blank: (
        "`targets` must not contain `blank`, but is 5 at position 1 of sample 0.",
        "`targets` must be in [0, V - 1] and, unless allowed, not contain `blank`, "
        "but do not for sample 0 of {call}.",
    ),
    label_outside: (
        "`targets` must be in [0, 5], but is 6 at position 0 of sample 0.",
        "`targets` must be in [0, V - 1] and, unless allowed, not contain `blank`, "
        "but do not for samples 0 and 1 of {call}.",
    ),
}
each_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)


@pytest.mark.parametrize(
    "fault", [long_utterance, no_frames, too_many_labels, negative_labels], ids=lambda f: f.__name__
)
def test_lengths_on_the_device_make_the_call_void(fault: Callable, runtime) -> None:
    """Every cost NaN, every gradient zero, nothing raised, nothing read by the host."""
    costs, gradient = run(fault(a_case()), lengths_on="npu")
    assert costs.isnan().all()
    assert (gradient == 0).all()


@pytest.mark.parametrize(
    ("fault", "samples"), [(label_is_blank, {0}), (label_outside, {0, 1})], ids=["blank", "outside"]
)
@pytest.mark.parametrize("lengths_on", ["npu", "cpu"])
def test_a_label_out_of_place_costs_its_own_sample_alone(
    lengths_on: str, fault: Callable, samples: set[int], runtime
) -> None:
    """NaN in cost and gradient, as for a NaN among its logits."""
    clean_costs, clean = run(a_case(), lengths_on=lengths_on)
    costs, gradient = run(fault(a_case()), lengths_on=lengths_on)
    sizes = [4 * 3, 3 * 2, 2 * 1]
    parts = zip(gradient.split(sizes), clean.split(sizes), strict=True)
    for sample, (part, clean_part) in enumerate(parts):
        if sample in samples:
            assert costs[sample].isnan() and part.isnan().all()
        else:
            assert costs[sample] == clean_costs[sample] and torch.equal(part, clean_part)


def test_a_bad_label_makes_the_mean_nan_for_the_loss_scaler() -> None:
    case = label_is_blank(a_case())
    leaf = case.logits.npu().requires_grad_()
    value = rnnt_loss(leaf, *batch_of(case), case.blank)
    value.backward()
    gradient = leaf.grad.cpu()
    assert value.cpu().isnan()
    assert gradient[:12].isnan().all() and gradient[12:].isfinite().all()


@each_fault
def test_validate_says_what_the_cpu_says(fault: Callable) -> None:
    message, _ = FAULTS[fault]
    for lengths_on in ("npu", "cpu"):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            loss(fault(a_case()), lengths_on, validate=True)
    case = fault(a_case())
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        rnnt_loss_and_grad(case.logits.npu(), *batch_of(case, "npu"), case.blank, validate=True)


@each_fault
def test_check_status_names_the_samples_of_earlier_calls(fault: Callable) -> None:
    _, message = FAULTS[fault]
    loss(fault(a_case()))
    with pytest.raises(ValueError, match=f"^{re.escape(message.format(call='the latest call'))}$"):
        check_status()
    check_status()  # it has forgotten

    loss(a_case())
    rnnt_loss_and_grad(fault(a_case()).logits.npu(), *batch_of(fault(a_case()), "npu"), 5)
    loss(a_case())
    loss(a_case())
    expected = message.format(call="the call 2 before the latest")
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        check_status("npu:0")


def test_check_status_of_calls_that_went_well() -> None:
    loss(a_case(), validate=True)
    loss(a_case())
    check_status()
    check_status(torch.device("npu"))
    check_status("cpu")


def test_a_second_derivative_is_refused() -> None:
    case = a_case()
    leaf = case.logits.npu().requires_grad_()
    value = rnnt_loss(leaf, *batch_of(case), case.blank)
    (gradient,) = torch.autograd.grad(value, leaf, create_graph=True)
    message = '`rnnt_loss` with backend="npu" has no second derivative; backend="reference" has.'
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
        gradient.sum().backward()


def test_reused_logits_go_backward_once_and_are_changed_for_whoever_saved_them() -> None:
    case = a_case()
    leaf = case.logits.npu().requires_grad_()
    logits = leaf * 1
    value = rnnt_loss(logits, *batch_of(case), case.blank, reuse_logits=True)
    value.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="can run backward only once"):
        value.backward()

    logits = leaf * 1
    saved_by_another = (logits * logits).sum()
    rnnt_loss(logits, *batch_of(case), case.blank, reuse_logits=True).backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved_by_another.backward()


def test_operators_check_for_themselves() -> None:
    """A direct call, past the checks in Python."""
    case = a_case()
    logits, (targets, *lengths) = case.logits.npu(), batch_of(case, "npu")
    options = 5, -1.0, True, 0.0, 0.0, False, None, None
    forward = torch.ops.asr_ascend.rnnt_loss_forward
    backward = torch.ops.asr_ascend.rnnt_loss_backward
    with pytest.raises(ValueError, match=r"`targets` must have shape \(B, S\) = \(3, 2\)"):
        forward(logits, targets[:2], *lengths, *options, True, False)
    with pytest.raises(ValueError, match=r"`blank` must be in \[-6, 5\], but is 9."):
        forward(logits, targets, *lengths, 9, *options[1:], True, False)
    costs, state = forward(logits, targets, *lengths, *options, True, False)
    message = "grad_costs and state must be those of rnnt_loss_forward's outputs."
    for wrong in (state[:-1], state.half(), torch.empty(0, device="npu")):
        with pytest.raises(RuntimeError, match=message):
            backward(costs, logits, wrong, targets, *lengths, *options)


def test_validate_looks_at_its_own_call_alone() -> None:
    loss(no_frames(a_case()))
    loss(a_case(), validate=True)
    with pytest.raises(ValueError, match=r"samples 1 and 2 of the latest call\.$"):
        check_status()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "",
            "the NPU binding of asr_ascend is not built: `kernels/build.sh` in a checkout of "
            'asr_ascend builds it; until then, backend="reference" works, slowly.',
        ),
        (
            "nowhere.so",
            "`ASR_ASCEND_NPU_LIBRARY` must be the path of libasr_ascend_npu.so, "
            "but nowhere.so is not a file.",
        ),
    ],
)
def test_a_binding_that_is_not_built_is_named(
    path: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASR_ASCEND_NPU_LIBRARY", path)
    npu_library.load.cache_clear()
    try:
        with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
            loss(a_case())
        assert "npu" not in available_backends()
        check_status()
    finally:
        npu_library.load.cache_clear()


def test_an_operator_package_that_is_not_installed_is_named() -> None:
    program = """
from tests.support import oracles
from tests.support.npu_cases import run
run(oracles.make_case([(4, 2)], 6))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "ASCEND_CUSTOM_OPP_PATH": "nowhere",
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    message = (
        "RuntimeError: The operator package of asr_ascend is not found: kernels/build.sh builds "
        "and installs it, and ASCEND_CUSTOM_OPP_PATH must name its folder under vendors/."
    )
    assert message in done.stderr.splitlines()
