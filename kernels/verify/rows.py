"""Numbers that must be right: each row has what was measured, what it must be, and a verdict."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from asr_ascend.losses import check_status, rnnt_loss, rnnt_loss_and_grad
from asr_ascend.losses.layout import row_offsets
from kernels.rnnt_loss_fused.emulated import emulated_operator
from kernels.verify import oracles, tolerances
from kernels.verify.loss_cases import case_list, precision_rows, worst_errors

SMOKE_TEST = Path(__file__).resolve().parents[1] / "build_npu" / "smoke_test.py"
GRADIENT_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Row:
    """One number. `passed` is None where it could not be measured; `detail` says why."""

    section: str
    name: str
    quantity: str
    measured: float | None
    expected: float | None
    tolerance: float | None
    passed: bool | None
    detail: str = ""

    def to_json(self) -> dict:
        fields = asdict(self)
        fields["pass"] = fields.pop("passed")
        # JSON has no NaN.
        for key in ("measured", "expected"):
            if fields[key] is not None and not math.isfinite(fields[key]):
                fields[key] = str(fields[key])
        return fields


@dataclass(frozen=True)
class Target:
    """Where the loss runs, and whether that is the emulator's own code."""

    device: str
    stand_in: bool = False

    def arguments(self, case: oracles.Case) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Logits, targets and lengths as a training step has them: int32, on the device."""
        indices = (case.targets, case.logit_lengths, case.target_lengths)
        targets, *lengths = (index.to(torch.int32).to(self.device) for index in indices)
        return case.logits.detach().to(self.device), targets, *lengths

    def run(self, case: oracles.Case, **options: object) -> tuple[Tensor, Tensor]:
        costs, grad = rnnt_loss_and_grad(*self.arguments(case), blank=case.blank, **options)
        return costs.cpu(), grad.cpu()


def within(
    section: str, name: str, quantity: str, measured: float, expected: float, tolerance: float
) -> Row:
    right = abs(measured - expected) <= tolerance or (
        measured == expected or (math.isnan(measured) and math.isnan(expected))
    )
    return Row(section, name, quantity, measured, expected, tolerance, right)


def cost_row(section: str, name: str, costs: Tensor, exact: Tensor) -> Row:
    """The sample whose cost is worst, in units of what is allowed."""
    tolerance = emulated_operator.cost_tolerance(exact)
    excess = ((costs.double() - exact).abs() / tolerance).nan_to_num(nan=math.inf)
    worst = int(excess.argmax())
    return within(
        *(section, name, f"cost of sample {worst}"),
        *(costs[worst].item(), exact[worst].item(), tolerance[worst].item()),
    )


def precision(target: Target, quick: bool) -> Iterator[Row]:
    """The specification's precision rows, reduction "mean", through autograd."""
    for name, case, bound in precision_rows(quick):
        logits, *indices = target.arguments(case)
        logits.requires_grad_()
        loss = rnnt_loss(logits, *indices, blank=case.blank, reduction="mean")
        loss.backward()
        batch = len(case.logit_lengths)
        grad = logits.grad.cpu() * batch
        exact, error = worst_errors(case, grad)
        tolerance = emulated_operator.cost_tolerance(exact).mean().item()
        yield within("precision", name, "mean cost", loss.item(), exact.mean().item(), tolerance)
        row = within("precision", name, "largest gradient error", error, 0.0, GRADIENT_TOLERANCE)
        yield Row(**{**asdict(row), "detail": f"the specification allows {bound:g}"})


def case_rows(target: Target, quick: bool) -> Iterator[Row]:
    """The case list in every dtype."""
    for name, case in case_list(quick):
        costs, grad = target.run(case)
        exact, error = worst_errors(case, grad)
        yield cost_row("cases", name, costs, exact)
        yield within("cases", name, "largest gradient error", error, 0.0, GRADIENT_TOLERANCE)


OPTIONS = {
    "clamp": {"clamp": 0.05},
    "log-probabilities": {"fused_log_softmax": False},
    "fastemit": {"fastemit_lambda": 0.1},
    "reuse_logits": {"reuse_logits": True},
}


def option_rows(target: Target, quick: bool) -> Iterator[Row]:
    """Options of the loss against the reference in float64."""
    case = oracles.make_case([(30, 12), (17, 20), (9, 0)], 40, blank=3)
    log_probs = case.with_logits(case.logits.log_softmax(-1))
    for name, options in OPTIONS.items():
        given = log_probs if name == "log-probabilities" else case
        expected_costs, expected = rnnt_loss_and_grad(
            *(given.logits.double(), given.targets, given.logit_lengths, given.target_lengths),
            blank=case.blank,
            backend="reference",
            **options,
        )
        costs, grad = target.run(given, **options)
        error = (grad.double() - expected).abs().max().item()
        yield cost_row("options", name, costs, expected_costs)
        yield within("options", name, "largest gradient error", error, 0.0, GRADIENT_TOLERANCE)


def fact(name: str, quantity: str, holds: bool, detail: str = "") -> Row:
    return Row("behaviour", name, quantity, float(holds), 1.0, 0.0, holds, detail)


def same_bits(a: Tensor, b: Tensor) -> bool:
    return torch.equal(*(x.contiguous().flatten().view(torch.uint8) for x in (a, b)))


def behaviour_rows(target: Target, quick: bool) -> Iterator[Row]:
    """What the emulator assumes of a chip's caches, barriers and NaN, seen from outside."""
    case = oracles.make_case([(60, 20), (7, 40), (33, 1), (50, 0)], 101, blank=50)
    first = target.run(case)
    repeats = 3 if quick else 50
    again = [target.run(case) for _ in range(repeats)]
    same = all(same_bits(a, b) for run in again for a, b in zip(run, first, strict=True))
    yield fact("repeated", f"same bits {repeats} times over", same)
    poisoned = case.logits.clone()
    poisoned[1300, 7] = math.nan  # in sample 1
    costs, grad = target.run(case.with_logits(poisoned))
    rows = next(rows for b, (rows, *_) in enumerate(case.samples()) if b == 1)
    yield fact(
        "nan", "its sample is NaN", costs[1].isnan().item() and bool(grad[rows].isnan().all())
    )
    others = [b for b in range(4) if b != 1]
    spared = same_bits(costs[others], first[0][others]) and same_bits(
        grad[: rows.start], first[1][: rows.start]
    )
    yield fact(
        "nan",
        "other samples keep their bits",
        spared and same_bits(grad[rows.stop :], first[1][rows.stop :]),
    )
    if target.device == "npu":
        yield from wrong_label_rows(target, case)
        yield from task_queue_rows(("2",) if quick else ("0", "1", "2"))


def wrong_label_rows(target: Target, case: oracles.Case) -> Iterator[Row]:
    targets = case.targets.clone()
    targets[1, 3] = 50  # blank
    wrong = oracles.Case(case.logits, targets, case.logit_lengths, case.target_lengths, 50)
    right_costs, right_grad = target.run(case)
    costs, grad = target.run(wrong)
    first, last = row_offsets(case.logit_lengths, case.target_lengths)[1:3].tolist()
    own = bool(costs[1].isnan()) and bool(grad[first:last].isnan().all())
    costs[1], grad[first:last] = right_costs[1], right_grad[first:last]
    others = torch.equal(costs, right_costs) and torch.equal(grad, right_grad)
    yield fact("wrong label", "its sample alone is NaN", own and others)
    try:
        check_status()
        message = "nothing was raised"
    except ValueError as error:
        message = str(error)
    yield fact("wrong label", "check_status names the sample", "sample 1" in message, message)


def task_queue_rows(modes: Iterable[str]) -> Iterator[Row]:
    for mode in modes:
        result = subprocess.run(
            [sys.executable, str(SMOKE_TEST)],
            env={**os.environ, "TASK_QUEUE_ENABLE": mode},
            capture_output=True,
            text=True,
        )
        lines = (result.stderr + result.stdout).strip().splitlines()
        yield fact(
            f"TASK_QUEUE_ENABLE={mode}",
            "the smoke test passes",
            result.returncode == 0,
            lines[-1] if lines else "",
        )


def emulator_rows(target: Target, quick: bool) -> Iterator[Row]:
    """The same inputs through the emulator: the same bits over the stand-in, close on a chip,
    whose Exp and Ln round in their own way."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            library = emulated_operator.build(Path(folder))
        except (OSError, RuntimeError) as error:
            reason = f"the emulator can't be built here: {str(error).splitlines()[0]}"
            yield Row("emulator", "build", "", None, None, None, None, reason)
            return
        for name, case in case_list(quick):
            expected = emulated_operator.call(library, case, entry="split", cores=40)
            costs, grad = target.run(case)
            yield emulator_row(name, "costs", costs, expected.costs, target.stand_in)
            yield emulator_row(name, "gradient", grad, expected.gradient, target.stand_in)


def emulator_row(name: str, quantity: str, actual: Tensor, expected: Tensor, exact: bool) -> Row:
    """Largest difference; both sides may be off by their tolerance."""
    difference = (actual.double() - expected.double()).abs()
    difference[actual.isnan() & expected.isnan()] = 0.0
    difference[actual.double() == expected.double()] = 0.0  # infinities
    if quantity == "costs":
        tolerance = 2 * emulated_operator.cost_tolerance(expected.double())
    else:
        tolerance = 2 * tolerances.gradient_tolerance(expected.double(), expected.dtype)
    share = float((actual == expected).double().mean()) if actual.numel() else 1.0
    bits = same_bits(actual, expected)
    passed = bits if exact else bool((difference <= tolerance).all())
    worst = difference.max().item() if actual.numel() else 0.0
    allowed = 0.0 if exact else tolerance.max().item()
    detail = "same bits" if bits else f"{share:.2%} of the elements are equal"
    return Row("emulator", name, quantity, worst, 0.0, allowed, passed, detail)


SECTIONS: dict[str, Callable[[Target, bool], Iterator[Row]]] = {
    "precision": precision,
    "cases": case_rows,
    "options": option_rows,
    "behaviour": behaviour_rows,
    "emulator": emulator_rows,
}
