"""Answers and cases for tests of the loss, and the ways of calling it.

Float64 lattices and tolerances are those of the kit for a 910B (kernels/verify).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace  # noqa: F401 - tests take it from here
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels.verify.oracles import (  # noqa: F401 - tests take them from here
    Case,
    Lattice,
    backward_scores,
    build_lattice,
    exact,
    forward_scores,
    gradient_of_frame,
    log_add,
    log_norms,
    make_case,
)
from kernels.verify.tolerances import (  # noqa: F401 - who has an answer wants to compare with it
    assert_costs,
    assert_gradient,
    assert_same_bits,
    assert_within,
    cost_tolerance,
    gradient_tolerance,
    ulp,
)

BACKENDS = ("cpu", "reference")
ALL_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)

each_backend = pytest.mark.parametrize("backend", BACKENDS)
each_dtype = pytest.mark.parametrize("dtype", ALL_DTYPES, ids=lambda d: str(d).split(".")[-1])


# Enumeration of every alignment.


def enumerate_costs(case: Case, fused_log_softmax: bool = True) -> Tensor:
    """-ln of the summed probability of each alignment, one at a time; differentiable."""
    log_probs = case.logits.log_softmax(-1) if fused_log_softmax else case.logits
    costs = []
    for b, (rows, frames, num_labels, labels) in enumerate(case.samples()):
        windows = case.windows_of(b) or [[0, frames]] * num_labels
        block = log_probs[rows].reshape(frames, num_labels + 1, -1)
        paths = [
            path_score(block, emitting, labels, case.blank_index)
            for emitting in itertools.combinations_with_replacement(range(frames), num_labels)
            if all(first <= t <= last for t, (first, last) in zip(emitting, windows, strict=True))
        ]
        paths = paths or [log_probs.new_tensor(-math.inf)]
        costs.append(-torch.logsumexp(torch.stack(paths), 0))
    return torch.stack(costs)


def path_score(log_probs: Tensor, emitting: Sequence[int], labels: list[int], blank: int) -> Tensor:
    """Score of the alignment that emits label u in frame emitting[u], then leaves by blank."""
    score = log_probs.new_zeros(())
    u = 0
    for t in range(log_probs.shape[0]):
        while u < len(labels) and emitting[u] == t:
            score = score + log_probs[t, u, labels[u]]
            u += 1
        score = score + log_probs[t, u, blank]
    return score


def equal_logits_cost(frames: int, labels: int, vocab: int) -> float:
    """(T + U) ln V - ln C(T + U - 1, U): every path is equally likely."""
    paths = math.comb(frames + labels - 1, labels)
    return (frames + labels) * math.log(vocab) - math.log(paths)


# Calling the loss.


def run(
    case: Case,
    backend: str,
    *,
    padded: Tensor | None = None,
    upstream: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """Costs and d (upstream . costs) / d logits through autograd; reduction "none" by default."""
    from asr_ascend.losses import rnnt_loss

    leaf = (case.logits if padded is None else padded).detach().clone().requires_grad_()
    # A leaf can't be overwritten, so reuse_logits is handed a copy.
    logits = leaf * 1 if options.get("reuse_logits") else leaf
    options.setdefault("reduction", "none")
    costs = rnnt_loss(
        logits,
        case.targets,
        case.logit_lengths,
        case.target_lengths,
        blank=case.blank,
        emission_windows=case.emission_windows,
        backend=backend,
        **options,
    )
    costs.backward(torch.ones_like(costs) if upstream is None else upstream.to(costs.dtype))
    assert leaf.grad is not None
    return costs.detach(), leaf.grad
