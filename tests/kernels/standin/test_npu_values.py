"""rnnt_loss on NPU tensors, over the stand-in runtime, against the float64 lattice."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from asr_ascend.losses import RNNTLoss, available_backends, rnnt_loss, rnnt_loss_and_grad
from kernels.verify.loss_cases import CASE_LIST
from tests.support import emulated_operator as emulated
from tests.support import oracles
from tests.support.npu_cases import DTYPES, batch_of, check, run

each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float16", "bfloat16"])
SMALL = [(7, 3), (4, 2), (12, 5)]
UPSTREAM = torch.tensor([1.0, -2.0, 0.5])


def as_log_probs(case: oracles.Case) -> oracles.Case:
    return case.with_logits(case.logits.double().log_softmax(-1).to(case.logits.dtype))


def test_npu_comes_first_among_the_backends() -> None:
    assert available_backends() == ("npu", "cpu", "reference")


@each_dtype
@pytest.mark.parametrize("name", CASE_LIST)
def test_case_list(name: str, dtype: torch.dtype) -> None:
    lengths, vocab, blank, scale = CASE_LIST[name]
    check(oracles.make_case(lengths, vocab, blank=blank, dtype=dtype, scale=scale))


@each_dtype
@pytest.mark.parametrize("reuse_logits", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"clamp": 0.02},
        {"fused_log_softmax": False},
        {"fused_log_softmax": False, "clamp": 0.5},
        {"fastemit_lambda": 0.25},
        {"fastemit_lambda": 0.01, "clamp": 0.02},
    ],
    ids=str,
)
def test_options_with_an_upstream_gradient(
    options: dict[str, float], reuse_logits: bool, dtype: torch.dtype
) -> None:
    case = oracles.make_case(SMALL, 11, blank=3, dtype=dtype)
    if options.get("fused_log_softmax") is False:
        case = as_log_probs(case)
    check(case, upstream=UPSTREAM, reuse_logits=reuse_logits, **options)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_reductions(reduction: str) -> None:
    case = oracles.make_case(SMALL, 11, blank=3)
    value, gradient = run(case, reduction=reduction)
    costs, expected = oracles.exact(case)
    if reduction == "mean":
        costs, expected = costs.mean(), expected / len(SMALL)
    elif reduction == "sum":
        costs = costs.sum()
    emulated.assert_costs(value, costs)
    oracles.assert_gradient(gradient, expected, torch.float32)


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("lengths_on", ["cpu", "npu"])
def test_integers_of_either_type_in_either_place(lengths_on: str, index_dtype: torch.dtype) -> None:
    case = oracles.make_case(SMALL, 11, blank=3)
    case = replace(
        case,
        targets=case.targets.to(index_dtype),
        logit_lengths=case.logit_lengths.to(index_dtype),
        target_lengths=case.target_lengths.to(index_dtype),
    )
    check(case, lengths_on=lengths_on)


@each_dtype
@pytest.mark.parametrize("reuse_logits", [False, True])
def test_padded_logits(reuse_logits: bool, dtype: torch.dtype) -> None:
    """They are packed on the NPU; padding, here NaN, is never read and gets no gradient."""
    case = oracles.make_case(SMALL, 11, blank=3, dtype=dtype)
    padded = case.padded_logits(math.nan, extra_frames=1, extra_columns=1)
    costs, gradient = run(case, logits=padded, upstream=UPSTREAM, reuse_logits=reuse_logits)
    expected_costs, expected = oracles.exact(case, upstream=UPSTREAM)
    emulated.assert_costs(costs, expected_costs)
    oracles.assert_gradient(case.take_packed(gradient), expected, dtype, 2.0)
    if not reuse_logits:  # `* 1` before the loss makes NaN of 0 * NaN
        assert (case.outside_lattice(gradient) == 0).all()


@pytest.mark.parametrize(
    ("layout", "reuse_logits"),
    [
        ("columns", False),
        ("columns", True),
        ("every second row", False),
        ("every second row", True),
        ("transposed", False),
    ],
)
def test_logits_that_are_not_contiguous(layout: str, reuse_logits: bool) -> None:
    case = oracles.make_case(SMALL, 11, blank=3)
    rows, vocab = case.logits.shape
    shape, view = {
        "columns": ((rows, vocab + 5), lambda x: x[:, 2 : 2 + vocab]),
        "every second row": ((2 * rows, vocab), lambda x: x[::2]),
        "transposed": ((vocab, rows), lambda x: x.t()),
    }[layout]
    leaf = torch.randn(shape, generator=torch.Generator().manual_seed(1)).npu().requires_grad_()
    logits = view(leaf * 1)
    assert not logits.is_contiguous()
    case = case.with_logits(logits.detach().cpu())
    costs = rnnt_loss(
        logits, *batch_of(case), case.blank, reduction="none", reuse_logits=reuse_logits
    )
    costs.backward(UPSTREAM.npu())
    expected_costs, expected = oracles.exact(case, upstream=UPSTREAM)
    emulated.assert_costs(costs.detach().cpu(), expected_costs)
    oracles.assert_gradient(view(leaf.grad.cpu()), expected, torch.float32, 2.0)


@each_dtype
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("reuse_logits", [False, True])
@pytest.mark.parametrize("fastemit_lambda", [0.0, 0.25])
def test_loss_and_grad(
    fastemit_lambda: float, reuse_logits: bool, padded: bool, dtype: torch.dtype
) -> None:
    case = oracles.make_case(SMALL, 11, blank=3, dtype=dtype)
    logits = (case.padded_logits(math.nan, 1, 1) if padded else case.logits).npu()
    before = logits.data_ptr()
    costs, gradient = rnnt_loss_and_grad(
        logits,
        *batch_of(case),
        case.blank,
        clamp=0.5,
        reuse_logits=reuse_logits,
        fastemit_lambda=fastemit_lambda,
    )
    assert (gradient.data_ptr() == before) == reuse_logits
    assert not costs.requires_grad and not gradient.requires_grad
    options = {"clamp": 0.5, "fastemit_lambda": fastemit_lambda}
    expected_costs, expected = oracles.exact(case, **options)
    emulated.assert_costs(costs.cpu(), expected_costs)
    gradient = gradient.cpu()
    if padded:
        assert (case.outside_lattice(gradient) == 0).all()
        gradient = case.take_packed(gradient)
    oracles.assert_gradient(gradient, expected, dtype)


def test_one_kernel_where_cost_and_gradient_come_together(runtime) -> None:
    case = oracles.make_case(SMALL, 11, blank=3)
    arguments = case.logits.npu(), *batch_of(case), case.blank
    runtime.reset()
    rnnt_loss_and_grad(*arguments)
    runtime.synchronize()
    launches = [name for name in runtime.launches() if "Rnnt" in name]
    assert launches == ["aclnnRnntLossFused"]
    runtime.reset()
    rnnt_loss_and_grad(*arguments, fastemit_lambda=0.1)
    runtime.synchronize()
    launches = [name for name in runtime.launches() if "Rnnt" in name]
    assert launches == ["aclnnRnntLossForward", "aclnnRnntLossBackward"]


def test_a_sample_without_an_alignment_and_one_with_nan() -> None:
    case = oracles.make_case([(4, 2), (3, 1), (5, 2)], 6, blank=0)
    logits = case.logits.clone()
    samples = list(case.samples())
    logits[samples[0][0].stop - 1, 0] = -math.inf  # the last blank of sample 0
    logits[samples[1][0].start, 3] = math.nan
    check(case.with_logits(logits))
    costs, gradient = run(case.with_logits(logits))
    assert costs[0] == math.inf and costs[1].isnan() and costs[2].isfinite()
    assert (gradient[samples[0][0]] == 0).all() and gradient[samples[1][0]].isnan().all()


def test_evaluation_makes_no_gradient_and_less_state(runtime) -> None:
    case = oracles.make_case(SMALL, 11, blank=3)
    arguments = case.logits.npu(), *batch_of(case), case.blank
    with torch.no_grad():
        value = rnnt_loss(*arguments, reduction="none")
    assert not value.requires_grad
    expected, _ = oracles.exact(case)
    emulated.assert_costs(value.cpu(), expected)
    assert [name for name in runtime.launches() if "Rnnt" in name] == ["aclnnRnntLossForward"]


def test_module() -> None:
    case = oracles.make_case(SMALL, 11, blank=3)
    module = RNNTLoss(blank=3, clamp=0.5, reduction="sum", fastemit_lambda=0.1).npu()
    leaf = case.logits.npu().requires_grad_()
    module(leaf, *batch_of(case)).backward()
    _, expected = oracles.exact(case, clamp=0.5, fastemit_lambda=0.1)
    oracles.assert_gradient(leaf.grad.cpu(), expected, torch.float32)


def test_an_empty_batch() -> None:
    empty = torch.zeros(0, dtype=torch.int64)
    targets, logits = torch.zeros(0, 2, dtype=torch.int64).npu(), torch.zeros(0, 5).npu()
    assert rnnt_loss(logits, targets, empty, empty, reduction="sum").item() == 0.0
    assert math.isnan(rnnt_loss(logits, targets, empty, empty, reduction="mean").item())


def test_a_long_utterance() -> None:
    check(oracles.make_case([(200, 60), (100, 100)], 40, blank=0, scale=4.0))


@pytest.mark.slow
def test_a_precision_row_of_the_specification() -> None:
    check(oracles.make_case([(500, 200), (100, 50)], 64, dtype=torch.float16))


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("clamp", [-1.0, 0.2])
@pytest.mark.parametrize("function", ["loss", "loss and gradient"])
def test_labels_equal_to_blank_where_they_are_allowed(
    function: str, clamp: float, padded: bool
) -> None:
    """Lengths on the NPU, where padded logits take them too."""
    case = oracles.make_case([(5, 3), (3, 3), (6, 1)], 11, blank=3)
    targets = case.targets.clone()
    targets[0, 0] = targets[0, 2] = targets[1, 1] = targets[1, 2] = 3
    case = replace(case, targets=targets)
    options = {"clamp": clamp, "blank_in_targets": "allow"}
    batch = case.targets, case.logit_lengths, case.target_lengths
    expected = rnnt_loss_and_grad(
        case.logits.double(), *batch, case.blank, backend="reference", **options
    )
    logits = case.padded_logits(math.nan, 1, 1) if padded else case.logits
    if function == "loss":
        costs, gradient = run(case, logits=logits, lengths_on="npu", **options)
    else:
        results = rnnt_loss_and_grad(logits.npu(), *batch_of(case, "npu"), case.blank, **options)
        costs, gradient = (result.cpu() for result in results)
    if padded:
        assert (case.outside_lattice(gradient) == 0).all()
        gradient = case.take_packed(gradient)
    emulated.assert_costs(costs, expected[0])
    oracles.assert_gradient(gradient, expected[1], torch.float32)
