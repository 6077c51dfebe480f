"""Bands on NPU tensors, over the stand-in: loss, joiner, opcheck, what is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from asr_ascend.losses import (
    check_status,
    joiner_rnnt_loss,
    lattice_band,
    rnnt_loss,
    rnnt_loss_and_grad,
)
from asr_ascend.losses.backends import npu, npu_library
from asr_ascend.losses.layout import row_offsets
from tests.support import banded_cases as bands
from tests.support import emulated_operator as emulated
from tests.support import oracles
from tests.support.npu_cases import DTYPES, batch_of, run
from tests.support.standin_runtime import Runtime

SIZES = [(7, 3), (4, 2), (12, 5), (1, 0)]
BAND = bands.random_bands(SIZES, 1, seed=3)
CASE = bands.make_banded_case(SIZES, 11, BAND, blank=3)
WINDOWED_SIZES = [(7, 3), (4, 2), (6, 3)]
WINDOWS = torch.tensor(
    [[[0, 2], [1, 4], [3, 6]], [[0, 1], [2, 3], [0, 0]], [[1, 5], [2, 3], [3, 5]]]
)


@pytest.fixture(autouse=True)
def no_status_is_left() -> None:
    try:
        check_status()
    except (ValueError, RuntimeError):
        check_status()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("on", ["cpu", "npu"])
@pytest.mark.parametrize("reuse_logits", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"clamp": 0.1, "fastemit_lambda": 0.3}, {"validate": True}], ids=str
)
def test_loss(options: dict[str, Any], reuse_logits: bool, on: str, dtype: torch.dtype) -> None:
    case = CASE.with_logits(CASE.logits.to(dtype))
    upstream = torch.tensor([1.0, -2.0, 0.5, 1.5])
    given = {"band": BAND.to(on), "lengths_on": on, "reuse_logits": reuse_logits, **options}
    costs, gradient = run(case, upstream=upstream, **given)
    exact = {name: value for name, value in options.items() if name != "validate"}
    expected_costs, expected = bands.exact(case, BAND, upstream=upstream, **exact)
    emulated.assert_costs(costs, expected_costs)
    oracles.assert_gradient(gradient, expected, dtype, 2.0 * 1.3)


@pytest.mark.parametrize("reuse_logits", [False, True])
def test_loss_and_grad(reuse_logits: bool) -> None:
    logits = CASE.logits.npu()
    costs, gradient = rnnt_loss_and_grad(
        logits, *batch_of(CASE), CASE.blank, band=BAND, reuse_logits=reuse_logits
    )
    assert (gradient.data_ptr() == logits.data_ptr()) == reuse_logits
    expected_costs, expected = bands.exact(CASE, BAND)
    emulated.assert_costs(costs.cpu(), expected_costs)
    oracles.assert_gradient(gradient.cpu(), expected, torch.float32)


def test_evaluation_has_the_bits_of_training() -> None:
    arguments = CASE.logits.npu(), *batch_of(CASE), CASE.blank
    with torch.no_grad():
        costs = rnnt_loss(*arguments, band=BAND, reduction="none")
    trained, _ = rnnt_loss_and_grad(*arguments, band=BAND)
    oracles.assert_same_bits(costs.cpu(), trained.cpu())


def test_windows_inside_their_band_and_with_blank_in_targets() -> None:
    full = oracles.make_case(WINDOWED_SIZES, 11, blank=3, seed=1)
    full = oracles.replace(full, emission_windows=WINDOWS)
    band = lattice_band(WINDOWS, full.logit_lengths, full.target_lengths)
    inside = bands.banded(full, band)
    expected_costs, expected = oracles.exact(full)
    options = {"band": band, "emission_windows": WINDOWS, "blank_in_targets": "allow"}
    costs, gradient = run(inside, **options)
    emulated.assert_costs(costs, expected_costs)
    places = bands.places_in_full_lattice(full.logit_lengths, full.target_lengths, band)
    oracles.assert_gradient(gradient, expected[places], torch.float32)


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_the_joiner_computes_the_band_of_its_windows(
    monkeypatch: pytest.MonkeyPatch, reduction: str
) -> None:
    from asr_ascend.losses.joiner import rows as joiner_rows

    made = []
    original = joiner_rows.JoinerTensors.write_logits

    def spy(joiner: Any, logits: torch.Tensor, hidden: torch.Tensor) -> None:
        made.append(len(logits))
        original(joiner, logits, hidden)

    monkeypatch.setattr(joiner_rows.JoinerTensors, "write_logits", spy)
    generator = torch.Generator().manual_seed(0)
    shapes = (3, 7, 4), (3, 4, 4), (11, 4), (11,)
    inputs = [torch.randn(shape, generator=generator) for shape in shapes]
    case = oracles.make_case(WINDOWED_SIZES, 11, blank=3, seed=1)
    lengths = case.logit_lengths, case.target_lengths
    results = []
    for device in ("cpu", "npu"):
        leaves = [tensor.detach().to(device).requires_grad_() for tensor in inputs]
        costs = joiner_rnnt_loss(
            *leaves, case.targets, *lengths, 3, emission_windows=WINDOWS, reduction=reduction
        )
        costs.sum().backward()
        results.append([costs.detach().cpu(), *(leaf.grad.cpu() for leaf in leaves)])
        if device == "cpu":
            made.clear()
    for on_cpu, on_npu in zip(*results, strict=True):
        torch.testing.assert_close(on_npu, on_cpu, rtol=1e-4, atol=1e-5, check_dtype=False)
    cells = int(row_offsets(*lengths, lattice_band(WINDOWS, *lengths))[-1])
    assert cells < len(case.logits)
    # Without a sum to be differentiated at once, backward makes the logits again.
    assert sum(made) == cells * (1 if reduction == "sum" else 2)


@pytest.mark.parametrize("needs_grad", [True, False])
def test_fakes_have_the_metadata_of_the_results(needs_grad: bool) -> None:
    npu_library.load()
    ops = torch.ops.asr_ascend
    checks = ("test_faketensor", "test_autograd_registration")
    options = 3, -1.0, True, 0.0, 0.0, False, None, BAND.int().npu()
    given = (CASE.logits.npu(), *batch_of(CASE, "npu"), *options)
    torch.library.opcheck(
        ops.rnnt_loss_forward.default, (*given, needs_grad, False), test_utils=checks
    )
    torch.library.opcheck(ops.rnnt_loss_fused.default, given, test_utils=checks)
    costs, state = ops.rnnt_loss_forward(*given, True, False)
    assert state.shape == (npu.state_size(len(CASE.logits), len(SIZES), BAND.shape[1]),)
    logits, *rest = given
    torch.library.opcheck(
        ops.rnnt_loss_backward.default, (costs, logits, state, *rest), test_utils=checks
    )


def test_a_compiled_caller_in_one_graph() -> None:
    compiled = torch.compile(rnnt_loss, fullgraph=True, backend="aot_eager")
    leaf = CASE.logits.npu().requires_grad_()
    value = compiled(leaf, *batch_of(CASE, "npu"), CASE.blank, reduction="sum", band=BAND.npu())
    value.backward()
    costs, expected = bands.exact(CASE, BAND)
    emulated.assert_costs(value.detach().cpu(), costs.sum())
    oracles.assert_gradient(leaf.grad.cpu(), expected, torch.float32)


def test_no_value_comes_to_the_host(runtime: Runtime) -> None:
    logits, arguments, band = CASE.logits.npu(), batch_of(CASE, "npu"), BAND.npu()
    runtime.reset()
    rnnt_loss_and_grad(logits, *arguments, CASE.blank, band=band)
    leaf = logits.detach().requires_grad_()
    rnnt_loss(leaf, *arguments, CASE.blank, band=band).backward()
    runtime.synchronize()
    assert runtime.counters().device_to_host_copies == 0


def test_malformed_bands() -> None:
    """On the CPU they are refused at once; on the device all costs are NaN, and asking says why."""
    wrong = BAND.clone()
    wrong[2, 0] = 1
    message = f"`band` must hold column 0 in frame 0 of sample 2, but is {[1, 1]} there."
    arguments = CASE.logits.npu(), *batch_of(CASE), CASE.blank
    for band, options in ((wrong, {}), (wrong.npu(), {"validate": True})):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            rnnt_loss(*arguments, band=band, **options)
    costs, gradient = run(CASE, band=wrong.npu())
    assert costs.isnan().all() and (gradient == 0).all()
    with pytest.raises(ValueError, match=r"^`band` must hold columns .* for sample 2 of the lat"):
        check_status()
    with pytest.raises(ValueError, match="must have a row for each of the"):
        rnnt_loss(CASE.logits[1:].npu(), *batch_of(CASE), CASE.blank, band=BAND)


def test_targets_may_be_long_in_a_narrow_band() -> None:
    frames = 1300
    column = torch.arange(frames)
    band = torch.stack([(column - 1).clamp(min=0), (column + 1).clamp(max=1200)], -1)[None]
    band[..., 0].clamp_(max=1200)
    rows = int((band[..., 1] - band[..., 0] + 1).sum())
    lengths = torch.tensor([frames]), torch.tensor([1200])
    logits = torch.randn(rows, 3, generator=torch.Generator().manual_seed(0))
    targets = torch.ones(1, 1200, dtype=torch.int64)
    expected = rnnt_loss(logits.double(), targets, *lengths, 0, band=band)
    costs = rnnt_loss(logits.npu(), targets.npu(), *lengths, 0, band=band, reduction="none")
    emulated.assert_costs(costs.cpu(), expected[None])
