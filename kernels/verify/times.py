"""How long the loss takes, beside the time model of docs/npu_time_model.md."""

from __future__ import annotations

import functools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from asr_ascend.losses import available_backends, rnnt_loss, rnnt_loss_and_grad
from kernels.rnnt_loss_fused.emulated import emulated_operator
from kernels.rnnt_loss_fused.time_model import shapes
from kernels.verify import oracles
from kernels.verify.loss_cases import DTYPES
from kernels.verify.rows import Target

MODEL = Path(shapes.__file__).with_name("tables.json")

BLOCK_ELEMENTS = 1 << 24  # random numbers made at a time
LEAST_SECONDS = 5e-3  # of one measurement: as many calls as that takes
STATE_BYTES = 36  # of a row
STAND_IN_ELEMENTS = 2_500_000  # what an emulator computes in seconds


def reason_to_skip(shape: shapes.Shape, target: Target) -> str | None:
    """Why a shape isn't timed, or None."""
    on_a_chip = target.device == "npu" and not target.stand_in
    if not on_a_chip:
        small = shape.rows * shape.vocab <= STAND_IN_ELEMENTS
        return None if small else "left to a chip: too large for this"
    needed = 2 * shape.logits_bytes + STATE_BYTES * shape.rows
    free = torch.npu.mem_get_info()[0]
    if needed <= 0.95 * free:
        return None
    return f"needs {needed / 1e9:.1f} GB of the device's {free / 1e9:.1f} that are free"


def modelled_milliseconds() -> dict[str, dict[str, float]]:
    """By shape: the HBM limit, the model and its cheapest and dearest guess."""
    table = json.loads(MODEL.read_text())["time"]
    names = {
        "HBM limit": "hbm_limit",
        "all": "model",
        "cheapest guess": "cheapest",
        "dearest guess": "dearest",
    }
    places = {name: table["columns"].index(column) for column, name in names.items()}
    return {row[0]: {name: row[at] for name, at in places.items()} for row in table["rows"]}


def make_case(shape: shapes.Shape) -> oracles.Case:
    """Random logits; above a block's size the block repeats, since times don't depend on values."""
    case = oracles.make_case(shape.lengths, 2)  # for its labels' shape
    generator = torch.Generator().manual_seed(1)
    dtype = DTYPES[shape.dtype]
    logits = torch.empty(shape.rows, shape.vocab, dtype=dtype)
    flat = logits.view(-1)
    block = torch.randn(min(BLOCK_ELEMENTS, flat.numel()), generator=generator).to(dtype)
    for start in range(0, flat.numel(), block.numel()):
        part = flat[start : start + block.numel()]
        part.copy_(block[: part.numel()])
    targets = torch.randint(1, shape.vocab, case.targets.shape, generator=generator)
    return oracles.Case(logits, targets, case.logit_lengths, case.target_lengths, 0)


def synchronize(device: str) -> None:
    if device != "cpu":
        torch.accelerator.synchronize()


def measure(call: Callable[[], object], device: str, repetitions: int) -> dict:
    """Milliseconds of one call: median, quartiles, extremes; after a warm-up."""

    def seconds(calls: int) -> float:
        synchronize(device)
        start = time.perf_counter()
        for _ in range(calls):
            call()
        synchronize(device)
        return (time.perf_counter() - start) / calls

    seconds(1)
    calls = max(1, min(100, int(LEAST_SECONDS / seconds(1))))
    times = sorted(seconds(calls) * 1e3 for _ in range(repetitions))
    lower, median, upper = statistics.quantiles(times, n=4)
    return {
        "median": median,
        "quartiles": [lower, upper],
        "extremes": [times[0], times[-1]],
        "repetitions": repetitions,
        "calls_per_repetition": calls,
    }


def numbers_are_right(case: oracles.Case, costs: Tensor, grad: Tensor) -> str:
    """Against the CPU kernel, which the tests hold to float64: "right", "wrong: ..." or why not."""
    if "cpu" not in available_backends():
        return "not checked: the CPU library is not built"
    expected, expected_grad = rnnt_loss_and_grad(
        *(case.logits, case.targets, case.logit_lengths, case.target_lengths),
        blank=case.blank,
        backend="cpu",
    )
    tolerance = 2 * emulated_operator.cost_tolerance(expected.double())
    worst = ((costs.double() - expected.double()).abs() / tolerance).max().item()
    if not worst <= 1.0:
        return f"wrong: a cost is {worst:.3g} times the tolerance off"
    rounding = 0.0 if grad.dtype == torch.float32 else torch.finfo(grad.dtype).eps
    largest = 0.0
    for rows in range(0, len(grad), 1 << 16):
        part = slice(rows, rows + (1 << 16))
        largest = max(
            largest, (grad[part].float() - expected_grad[part].float()).abs().max().item()
        )
    if not largest <= 2e-5 + rounding:
        return f"wrong: a gradient is {largest:.3g} off"
    return "right"


def time_shape(shape: shapes.Shape, target: Target, repetitions: int, model: dict) -> dict:
    case = make_case(shape)
    logits, *indices = target.arguments(case)
    both = functools.partial(rnnt_loss_and_grad, *(logits, *indices), blank=case.blank)
    costs, grad = both()
    verdict = numbers_are_right(case, costs.cpu(), grad.cpu())
    del costs, grad
    result = {"shape": str(shape), "rows": shape.rows, "numbers": verdict, "model": model}
    if verdict != "right":
        return result

    def forward() -> Tensor:
        with torch.no_grad():
            return rnnt_loss(logits, *indices, blank=case.blank, reduction="none")

    calls = {
        "forward alone": forward,
        "loss and gradient": both,
        # Last: the logits are gradients of gradients then, which take as long.
        "loss and gradient in place": functools.partial(both, reuse_logits=True),
    }
    result["milliseconds"] = {
        name: measure(call, target.device, repetitions) for name, call in calls.items()
    }
    return result


def times(target: Target, quick: bool) -> Iterator[dict]:
    """One entry per shape of the specification and the bench; those too large say so."""
    model = modelled_milliseconds()
    for shape in (*shapes.SHAPES, *shapes.PRECISION_ROWS, *shapes.TOO_LARGE):
        reason = reason_to_skip(shape, target)
        if reason is not None:
            yield {"shape": str(shape), "rows": shape.rows, "skipped": reason}
            continue
        repetitions = 3 if quick or target.stand_in else 20
        yield time_shape(shape, target, repetitions, model.get(str(shape), {}))
