"""The CPU's operators in place of ones that know no emission windows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from asr_ascend.losses.backends import closed_windows, cpu
from asr_ascend.losses.problem import Problem


def close_windows_by_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes backend "cpu" close emission windows as "npu" does; its operators get none."""
    forward = torch.ops.asr_ascend.rnnt_loss_forward
    known_costs, known_costs_and_gradient = cpu.costs, cpu.costs_and_gradient

    def without_windows(logits: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
        assert Problem._make(arguments[:-2]).emission_windows is None
        return forward(logits, *arguments)

    def costs(logits: Tensor, problem: Problem, **options: Any) -> Tensor:
        if problem.emission_windows is None:
            return known_costs(logits, problem, **options)
        return closed_windows.costs(logits, problem, options.get("reuse_logits", False))

    def costs_and_gradient(
        logits: Tensor, problem: Problem, **options: Any
    ) -> tuple[Tensor, Tensor]:
        if problem.emission_windows is None:
            return known_costs_and_gradient(logits, problem, **options)
        result, grad = closed_windows.costs_and_gradient(logits, problem)
        return result, logits.copy_(grad) if options.get("reuse_logits") else grad

    monkeypatch.setattr(torch.ops.asr_ascend, "rnnt_loss_forward", without_windows)
    monkeypatch.setattr(cpu, "HAS_BANDS", False)
    monkeypatch.setattr(cpu, "costs", costs)
    monkeypatch.setattr(cpu, "costs_and_gradient", costs_and_gradient)
