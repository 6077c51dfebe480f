"""The loss forward and backward against exact values; torch is imported, so not in the doctor's
own process."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from asr_ascend.doctor.tolerances import cost_tolerance, gradient_tolerance, outside
from asr_ascend.losses import rnnt_loss

# Frames and labels of each utterance. The last has no labels.
SAMPLES = ((40, 11), (17, 8), (5, 0))
V = 31
_DTYPES = {
    "cpu": ("float32", "float64", "float16", "bfloat16"),
    "npu": ("float32", "float16", "bfloat16"),
}


def check(backend: str) -> dict[str, Any]:
    """Compares a backend with the reference in float64, and the reference with a closed form.

    Args:
        backend: "cpu", "npu" or "reference".

    Returns:
        `wrong`: a sentence for each dtype that is not right; `dtypes`: those that were run.
    """
    if backend == "reference":
        return {"wrong": _reference_faults(), "dtypes": ["float64"]}
    wrong = []
    for name in _DTYPES[backend]:
        fault = _fault(backend, getattr(torch, name))
        if fault is not None:
            wrong.append(f"{name}: {fault}")
    return {"wrong": wrong, "dtypes": list(_DTYPES[backend])}


def _reference_faults() -> list[str]:
    """With equal logits every one of C(T + U - 1, U) paths has probability V^-(T + U)."""
    rows = sum(frames * (labels + 1) for frames, labels in SAMPLES)
    costs, gradient = _run("reference", torch.zeros(rows, V, dtype=torch.float64))
    expected = [
        (frames + labels) * math.log(V) - math.log(math.comb(frames + labels - 1, labels))
        for frames, labels in SAMPLES
    ]
    faults = []
    for sample, (cost, exact) in enumerate(zip(costs.tolist(), expected, strict=True)):
        if not abs(cost - exact) <= 1e-9:
            faults.append(f"the cost of sample {sample} is {cost:.9g}, but must be {exact:.9g}")
    if not gradient.sum(-1).abs().max() <= 1e-9:
        faults.append("the gradient of a row must sum to 0, but does not")
    return faults


def _fault(backend: str, dtype: torch.dtype) -> str | None:
    generator = torch.Generator().manual_seed(7)
    rows = sum(frames * (labels + 1) for frames, labels in SAMPLES)
    logits = torch.randn(rows, V, generator=generator, dtype=torch.float64).mul(3).to(dtype)
    costs, gradient = _run(backend, logits)
    exact_costs, exact = _run("reference", logits.double())
    off = outside(costs, exact_costs, cost_tolerance(exact_costs, dtype)).nonzero()
    if len(off):
        sample = int(off[0])
        return (
            f"the cost of sample {sample} is {costs[sample].item():.9g}, "
            f"but must be {exact_costs[sample].item():.9g}"
        )
    off = outside(gradient, exact, gradient_tolerance(exact, dtype)).nonzero()
    if len(off):
        row, symbol = off[0].tolist()
        return (
            f"{len(off)} of {exact.numel()} gradients are wrong; the first, of row {row} and "
            f"symbol {symbol}, is {gradient[row, symbol].item():.6g}, "
            f"but must be {exact[row, symbol].item():.6g}"
        )
    return None


def _run(backend: str, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Costs and gradient on the CPU, through autograd."""
    targets = torch.zeros(len(SAMPLES), max(labels for _, labels in SAMPLES), dtype=torch.int32)
    for sample, (_, count) in enumerate(SAMPLES):
        targets[sample, :count] = 1 + (torch.arange(count) * 7 + sample) % (V - 1)
    frames, labels = torch.tensor(SAMPLES, dtype=torch.int32).T.contiguous()
    device = "npu" if backend == "npu" else "cpu"
    leaf = logits.detach().clone().to(device).requires_grad_()
    costs = rnnt_loss(
        leaf, targets.to(device), frames, labels, blank=0, reduction="none", backend=backend
    )
    costs.sum().backward()
    assert leaf.grad is not None
    return costs.detach().cpu(), leaf.grad.cpu()
