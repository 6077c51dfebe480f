"""Running the loss's cases on an NPU, and judging what comes back as the operator's tests do."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from asr_ascend.losses import rnnt_loss
from tests.support import emulated_operator as emulated
from tests.support import oracles

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def batch_of(case: oracles.Case, lengths_on: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    """targets on the NPU, and both lengths where they are wanted."""
    return (
        case.targets.npu(),
        case.logit_lengths.to(lengths_on),
        case.target_lengths.to(lengths_on),
    )


def run(
    case: oracles.Case,
    *,
    logits: Tensor | None = None,
    lengths_on: str = "cpu",
    upstream: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """Costs and gradient on the CPU, made on the NPU through autograd; reduction "none"."""
    leaf = (case.logits if logits is None else logits).detach().npu().requires_grad_()
    scores = leaf * 1 if options.get("reuse_logits") else leaf
    options.setdefault("reduction", "none")
    costs = rnnt_loss(scores, *batch_of(case, lengths_on), case.blank, **options)
    assert costs.device.type == "npu" and costs.dtype == torch.float32
    costs.backward(torch.ones_like(costs) if upstream is None else upstream.npu())
    assert leaf.grad is not None and leaf.grad.device.type == "npu"
    return costs.detach().cpu(), leaf.grad.cpu()


def check(case: oracles.Case, *, upstream: Tensor | None = None, **options: Any) -> None:
    """Value and gradient against the float64 lattice."""
    exact = {
        name: options[name]
        for name in ("clamp", "fused_log_softmax", "fastemit_lambda")
        if name in options
    }
    costs, gradient = run(case, upstream=upstream, **options)
    expected_costs, expected = oracles.exact(case, upstream=upstream, **exact)
    emulated.assert_costs(costs, expected_costs)
    scale = 1.0 if upstream is None else float(upstream.abs().max())
    oracles.assert_gradient(gradient, expected, case.logits.dtype, scale)
