"""Emission windows: only the alignments that keep to them count, and the softmax is untouched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from asr_ascend.losses import RNNTLoss, rnnt_loss, rnnt_loss_and_grad
from tests.losses.test_fuzz import bounded
from tests.support import oracles
from tests.support.windowed_batch import WINDOWS, a_case, batch_of


@oracles.each_backend
@oracles.each_dtype
@pytest.mark.parametrize("fused_log_softmax", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_cost_and_gradient_are_those_of_the_alignments_within(
    padded: bool, fused_log_softmax: bool, dtype: torch.dtype, backend: str
) -> None:
    case = a_case(dtype)
    if not fused_log_softmax:
        case = case.with_logits(case.logits.double().log_softmax(-1).to(dtype))
    leaf = case.logits.double().requires_grad_()
    expected = oracles.enumerate_costs(case.with_logits(leaf), fused_log_softmax)
    everywhere = replace(case.with_logits(leaf), emission_windows=None)
    assert (expected[:2] > oracles.enumerate_costs(everywhere, fused_log_softmax)[:2]).all()
    expected_gradient = torch.autograd.grad(expected.sum(), leaf)[0]
    rows = case.padded_logits(float("nan"), 1, 1) if padded else None
    costs, gradient = oracles.run(case, backend, padded=rows, fused_log_softmax=fused_log_softmax)
    if padded:
        assert (case.outside_lattice(gradient) == 0).all()
        gradient = case.take_packed(gradient)
    oracles.assert_costs(costs, expected.detach(), dtype)
    oracles.assert_gradient(gradient, expected_gradient, dtype)


@oracles.each_backend
@oracles.each_dtype
@pytest.mark.parametrize("fused_log_softmax", [True, False])
def test_open_windows_change_no_bit(
    fused_log_softmax: bool, dtype: torch.dtype, backend: str
) -> None:
    case = a_case(dtype)
    case = case.with_logits(case.logits.log_softmax(-1))
    options = {"fused_log_softmax": fused_log_softmax}
    plain = oracles.run(replace(case, emission_windows=None), backend, **options)
    for first, last in ((0, 4), (-(2**31), 2**31 - 1)):
        windows = torch.tensor([first, last], dtype=torch.int32).expand(4, 3, 2)
        opened = oracles.run(replace(case, emission_windows=windows), backend, **options)
        oracles.assert_same_bits(opened[0], plain[0])
        oracles.assert_same_bits(opened[1], plain[1])


@oracles.each_backend
@oracles.each_dtype
def test_layout_reuse_module_one_call_and_index_types_give_the_same_bits(
    dtype: torch.dtype, backend: str
) -> None:
    case = a_case(dtype)
    costs, gradient = oracles.run(case, backend)
    padded = case.padded_logits(float("inf"), 2, 1)
    results = [
        oracles.run(case, backend, reuse_logits=True),
        oracles.run(replace(case, emission_windows=WINDOWS.int()), backend),
        oracles.run(replace(case, emission_windows=WINDOWS.mT.contiguous().mT), backend),
        rnnt_loss_and_grad(
            case.logits, *batch_of(case), 3, emission_windows=WINDOWS, backend=backend
        ),
    ]
    padded_costs, padded_gradient = oracles.run(case, backend, padded=padded)
    results.append((padded_costs, case.take_packed(padded_gradient)))
    leaf = case.logits.clone().requires_grad_()
    module = RNNTLoss(blank=3, reduction="none", backend=backend)
    module_costs = module(leaf, *batch_of(case), emission_windows=WINDOWS)
    module_costs.sum().backward()
    results.append((module_costs.detach(), leaf.grad))
    with torch.no_grad():
        results.append((module(case.logits, *batch_of(case), emission_windows=WINDOWS), gradient))
    for other_costs, other_gradient in results:
        oracles.assert_same_bits(other_costs, costs)
        oracles.assert_same_bits(other_gradient, gradient)


INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


@oracles.each_backend
@pytest.mark.parametrize(
    ("window", "alike"),
    [
        ((-7, 2), (0, 2)),
        ((1, 99), (1, 4)),
        ((INT64_MIN, INT64_MAX), (0, 4)),
        ((INT64_MAX, INT64_MIN), None),
        ((-9, -1), None),
        ((5, 9), None),
        ((2, 1), None),
    ],
)
def test_frames_outside_add_nothing_and_none_left_is_no_path(
    window: tuple[int, int], alike: tuple[int, int] | None, backend: str
) -> None:
    def solve(frames: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
        windows = WINDOWS.clone()
        windows[0, 1] = torch.tensor(frames)
        return oracles.run(a_case(windows=windows), backend)

    costs, gradient = solve(window)
    if alike is not None:
        expected = solve(alike)
        oracles.assert_same_bits(costs, expected[0])
        oracles.assert_same_bits(gradient, expected[1])
        return
    plain_costs, plain = oracles.run(a_case(), backend)
    assert costs[0] == torch.inf
    assert (gradient[:20] == 0).all()
    oracles.assert_same_bits(costs[1:], plain_costs[1:])
    oracles.assert_same_bits(gradient[20:], plain[20:])


@oracles.each_backend
def test_windows_in_the_wrong_order_leave_no_path(backend: str) -> None:
    """Label 1 may not come after label 0 there, though each has its frames."""
    windows = WINDOWS.clone()
    windows[0] = torch.tensor([[3, 4], [0, 2], [0, 4]])
    costs, gradient = oracles.run(a_case(windows=windows), backend)
    assert costs[0] == torch.inf
    assert (gradient[:20] == 0).all()
    assert costs[1:].isfinite().all()


@oracles.each_backend
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("row", range(20))
def test_a_row_without_a_softmax_spoils_its_sample_wherever_it_is(
    row: int, value: float, backend: str
) -> None:
    case = a_case()
    logits = case.logits.clone()
    logits[row, 5] = value
    costs, gradient = oracles.run(case.with_logits(logits), backend)
    assert costs[0].isnan()
    assert gradient[:20].isnan().all()
    assert costs[1:].isfinite().all()
    assert gradient[20:].isfinite().all()


@oracles.each_backend
def test_log_probabilities_of_closed_labels_are_not_read(backend: str) -> None:
    case = a_case()
    case = case.with_logits(case.logits.log_softmax(-1))
    costs, gradient = oracles.run(case, backend, fused_log_softmax=False)
    logits = case.logits.clone()
    for t in (3, 4):
        logits[t * 4, int(case.targets[0, 0])] = torch.nan
    again, same = oracles.run(case.with_logits(logits), backend, fused_log_softmax=False)
    oracles.assert_same_bits(again, costs)
    oracles.assert_same_bits(same, gradient)


@oracles.each_dtype
def test_longer_lattices_with_fastemit_and_clamp(dtype: torch.dtype) -> None:
    case = oracles.make_case([(90, 31), (40, 60), (130, 20)], 33, blank=0, dtype=dtype, scale=3.0)
    centre = torch.stack(
        [torch.arange(60) * (t - 1) // u for t, u in ((90, 31), (40, 60), (130, 20))]
    )
    case = replace(case, emission_windows=torch.stack([centre - 6, centre + 9], -1))
    options: dict[str, Any] = {"fastemit_lambda": 0.3, "clamp": 0.9}
    costs, gradient = oracles.run(case, "cpu", **options)
    expected_costs, expected = oracles.exact(case, **options)
    assert expected_costs.isfinite().all()
    oracles.assert_costs(costs, expected_costs, dtype)
    oracles.assert_gradient(gradient, expected, dtype)


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    case = oracles.make_case([(90, 31), (40, 60), (130, 20)], 33, blank=0)
    centre = torch.arange(60)
    windows = torch.stack([centre - 6, centre + 20], -1).expand(3, 60, 2)
    case = replace(case, emission_windows=windows)
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        results.append(oracles.run(case, "cpu"))
    torch.set_num_threads(before)
    for costs, gradient in results[1:]:
        oracles.assert_same_bits(costs, results[0][0])
        oracles.assert_same_bits(gradient, results[0][1])


@oracles.each_backend
def test_gradcheck(backend: str) -> None:
    case = a_case(torch.float64)

    def costs(logits: torch.Tensor) -> torch.Tensor:
        return rnnt_loss(
            logits,
            *batch_of(case),
            3,
            reduction="none",
            emission_windows=WINDOWS,
            backend=backend,
        )

    assert torch.autograd.gradcheck(costs, case.logits.requires_grad_())
    if backend == "reference":
        few = a_case(torch.float64).logits[:20].requires_grad_()
        targets, *lengths = (index[:1] for index in batch_of(case))
        assert torch.autograd.gradgradcheck(
            lambda z: rnnt_loss(
                z, targets, *lengths, 3, emission_windows=WINDOWS[:1], backend=backend
            ),
            few,
        )


@pytest.mark.parametrize("needs_grad", [True, False])
@pytest.mark.parametrize("operator", ["forward", "backward", "backward_"])
def test_opcheck(operator: str, needs_grad: bool) -> None:
    case = a_case()
    operators = torch.ops.asr_ascend
    problem = (*batch_of(case), 3, -1.0, True, 0.2, 0.0, False, WINDOWS, None)
    if operator == "forward":
        logits = case.logits.requires_grad_(needs_grad)
        torch.library.opcheck(
            operators.rnnt_loss_forward.default, (logits, *problem, needs_grad, False)
        )
        return
    _, state = operators.rnnt_loss_forward(case.logits, *problem, True, False)
    upstream = torch.ones(4, dtype=torch.float64)
    torch.library.opcheck(
        getattr(operators, f"rnnt_loss_{operator}").default,
        (upstream, case.logits, state, *problem),
    )


@pytest.mark.parametrize("reuse_logits", [True, False])
def test_whole_graph(reuse_logits: bool) -> None:
    torch._dynamo.reset()
    case = a_case()

    def loss(logits: torch.Tensor, windows: torch.Tensor) -> torch.Tensor:
        return rnnt_loss(
            logits * 1,
            *batch_of(case),
            3,
            emission_windows=windows,
            fastemit_lambda=0.1,
            reuse_logits=reuse_logits,
        )

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    gradients = []
    for function in (loss, compiled):
        leaf = case.logits.clone().requires_grad_()
        function(leaf, WINDOWS).backward()
        gradients.append(leaf.grad)
    oracles.assert_same_bits(gradients[1], gradients[0])


ERRORS = [
    (
        [[[0, 1]]],
        TypeError,
        "`emission_windows` must be a Tensor, but is a list.",
    ),
    (
        WINDOWS.float(),
        TypeError,
        "`emission_windows` must be int32 or int64, but is float32.",
    ),
    (
        WINDOWS[:, :2],
        ValueError,
        "`emission_windows` must have shape (4, 3, 2), a first and a last frame for each of "
        "`targets`, but has shape (4, 2, 2).",
    ),
    (
        WINDOWS.to("meta"),
        ValueError,
        "`emission_windows` must be on the CPU, but is on meta.",
    ),
]


@pytest.mark.parametrize(("windows", "error", "message"), ERRORS)
def test_errors(windows: Any, error: type[Exception], message: str) -> None:
    case = a_case()
    for function in (rnnt_loss, rnnt_loss_and_grad):
        with pytest.raises(error) as raised:
            function(case.logits, *batch_of(case), 3, emission_windows=windows)
        assert str(raised.value) == message


def test_a_direct_call_must_not_lead_the_kernel_out_of_the_windows() -> None:
    case = a_case()
    problem = (*batch_of(case), 3, -1.0, True, 0.0, 0.0, False, WINDOWS[:2], None)
    with pytest.raises(RuntimeError) as raised:
        torch.ops.asr_ascend.rnnt_loss_forward(case.logits, *problem, True, False)
    assert str(raised.value) == "emission_windows must have two frames for each of targets."


@st.composite
def restricted_cases(draw: st.DrawFn) -> tuple[oracles.Case, torch.Tensor, dict[str, Any]]:
    lengths = draw(
        st.lists(st.tuples(st.integers(1, 12), st.integers(0, 8)), min_size=1, max_size=4)
    )
    vocab = draw(st.integers(2, 40))
    case = oracles.make_case(
        lengths,
        vocab,
        blank=draw(st.integers(-vocab, vocab - 1)),
        dtype=draw(st.sampled_from(oracles.ALL_DTYPES)),
        scale=draw(st.sampled_from([0.0, 1.0, 20.0])),
        seed=draw(st.integers(0, 2**32)),
    )
    windows = torch.zeros(*case.targets.shape, 2, dtype=torch.int64)
    for b, (frames, labels) in enumerate(lengths):
        for u in range(labels):
            near = u * frames // labels
            windows[b, u, 0] = near - draw(st.integers(-1, 6))
            windows[b, u, 1] = near + draw(st.integers(-1, 6))
    options = {
        "clamp": draw(st.sampled_from([-1.0, 0.05])),
        "fused_log_softmax": draw(st.booleans()),
        "fastemit_lambda": draw(st.sampled_from([0.0, 0.01, 3.0])),
    }
    if not options["fused_log_softmax"]:
        case = case.with_logits(case.logits.double().log_softmax(-1).to(case.logits.dtype))
    upstream = draw(
        st.lists(st.sampled_from([1.0, -1.0, 0.25]), min_size=len(lengths), max_size=len(lengths))
    )
    return replace(case, emission_windows=windows), torch.tensor(upstream), options


@bounded
@given(restricted_cases())
def test_fuzz(drawn: tuple[oracles.Case, torch.Tensor, dict[str, Any]]) -> None:
    case, upstream, options = drawn
    dtype = case.logits.dtype
    exact_costs, exact_gradient = oracles.exact(case, upstream=upstream, **options)
    for backend in oracles.BACKENDS:
        costs, gradient = oracles.run(case, backend, upstream=upstream, **options)
        oracles.assert_costs(costs, exact_costs, dtype)
        oracles.assert_gradient(gradient, exact_gradient, dtype, upstream_scale=4.0)
