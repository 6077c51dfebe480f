"""k2's and fast_rnnt's losses over a joiner's output, against their formula in float64.

https://github.com/k2-fsa/k2/blob/master/k2/python/k2/rnnt_loss.py: p(s, t) is the log-sum of
p(s - 1, t) + px(s - 1, t) and p(s, t - 1) + py(s, t - 1), the cost is -p(S, T). A delay penalty
adds ((T - 1) / 2 - t) * penalty to px. Cells outside of `ranges` are -inf in both. "modified" has
p(s - 1, t - 1) + px(s - 1, t - 1) for the first.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from asr_ascend import plugins

S, T, C, BLANK = 4, 9, 7, 0
SYMBOLS = torch.tensor([[1, 4, 2, 2], [3, 5, 6, 6], [4, 3, 1, 5]])
BOUNDARY = torch.tensor([[0, 0, 3, 9], [0, 0, 2, 7], [0, 0, 4, 8]])
# The window of 3 columns of each frame, as get_rnnt_prune_ranges makes them for a s_range of 3.
FIRST = torch.tensor(
    [[0, 0, 0, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 2, 2, 2, 2]]
)
RANGES = FIRST[..., None] + torch.arange(3)


def formula(log_probs: Tensor, boundary: Tensor, penalty: float = 0.0) -> Tensor:
    """Costs (B,) of log-probabilities (B, T, S + 1, C)."""
    costs = []
    for b, (_, _, num_symbols, num_frames) in enumerate(boundary.tolist()):
        cell = log_probs[b].double()
        p: dict[tuple[int, int], Tensor] = {}
        for t in range(num_frames):
            for s in range(num_symbols + 1):
                ways = [torch.zeros((), dtype=torch.float64)] if s == t == 0 else []
                if s > 0:
                    px = cell[t, s - 1, SYMBOLS[b, s - 1]]
                    ways.append(p[s - 1, t] + px + ((num_frames - 1) / 2 - t) * penalty)
                if t > 0:
                    ways.append(p[s, t - 1] + cell[t - 1, s, BLANK])
                p[s, t] = torch.stack(ways).logsumexp(0)
        last = num_frames - 1
        costs.append(-(p[num_symbols, last] + cell[last, num_symbols, BLANK]))
    return torch.stack(costs)


def modified_formula(log_probs: Tensor, boundary: Tensor, penalty: float = 0.0) -> Tensor:
    """The same for rnnt_type="modified"."""
    costs = []
    for b, (_, _, num_symbols, num_frames) in enumerate(boundary.tolist()):
        cell = log_probs[b].double()
        p = {(0, 0): torch.zeros((), dtype=torch.float64)}
        for t in range(1, num_frames + 1):
            for s in range(num_symbols + 1):
                ways = []
                if (s - 1, t - 1) in p:
                    px = cell[t - 1, s - 1, SYMBOLS[b, s - 1]]
                    px = px + ((num_frames - 1) / 2 - (t - 1)) * penalty
                    ways.append(p[s - 1, t - 1] + px)
                if (s, t - 1) in p:
                    ways.append(p[s, t - 1] + cell[t - 1, s, BLANK])
                if ways:
                    p[s, t] = torch.stack(ways).logsumexp(0)
        costs.append(-p[num_symbols, num_frames])
    return torch.stack(costs)


def pruned_formula(
    pruned: Tensor, penalty: float = 0.0, defined: Callable[..., Tensor] = formula
) -> Tensor:
    """Of the logits of the windows; the other cells are as good as impossible.

    Not -inf, since the gradient of a log-sum of -inf alone is NaN.
    """
    full = torch.full((3, T, S + 1, C), -1e4, dtype=torch.float64)
    index = RANGES[..., None].expand(3, T, 3, C)
    return defined(full.scatter(2, index, pruned.double().log_softmax(-1)), BOUNDARY, penalty)


def make_logits(columns: int) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(3, T, columns, C, generator=generator).mul(2).requires_grad_()


def with_gradient(costs: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    weights = torch.tensor([1.0, -2.0, 0.5], dtype=costs.dtype)
    return costs.detach().float(), torch.autograd.grad(costs @ weights, logits)[0]


def assert_agree(costs: Tensor, expected: Tensor, logits: Tensor) -> None:
    actual, wanted = (with_gradient(each, logits) for each in (costs, expected))
    assert wanted[1].abs().max() > 0.1
    torch.testing.assert_close(actual, wanted, rtol=1e-5, atol=2e-6)


pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def losses() -> Any:
    if importlib.util.find_spec("fast_rnnt") is not None:
        pytest.skip("the real fast_rnnt is installed")
    with plugins.installed("fast_rnnt"):
        yield sys.modules["fast_rnnt"]


@pytest.mark.parametrize("penalty", [0.0, 0.3])
@pytest.mark.parametrize("boundary", [BOUNDARY, None], ids=["ragged", "whole"])
def test_the_full_loss(losses: Any, boundary: Tensor | None, penalty: float) -> None:
    logits = make_logits(S + 1)
    costs = losses.rnnt_loss(logits, SYMBOLS, BLANK, boundary, "regular", penalty, "none")
    whole = torch.tensor([[0, 0, S, T]] * 3)
    expected = formula(
        logits.double().log_softmax(-1), whole if boundary is None else boundary, penalty
    )
    assert_agree(costs, expected, logits)


@pytest.mark.parametrize("penalty", [0.0, 0.3])
def test_the_pruned_loss(losses: Any, penalty: float) -> None:
    logits = make_logits(3)
    costs = losses.rnnt_loss_pruned(
        logits, SYMBOLS, RANGES, BLANK, BOUNDARY, delay_penalty=penalty, reduction="none"
    )
    expected = pruned_formula(logits, penalty)
    assert_agree(costs, expected, logits)
    # Cells past the end of a sample get no gradient, and the caller's logits stay.
    gradient = torch.autograd.grad(
        losses.rnnt_loss_pruned(logits, SYMBOLS, RANGES, BLANK, BOUNDARY), logits
    )[0]
    assert not gradient[1, 7:].any()
    assert torch.equal(logits, make_logits(3))


def test_reductions(losses: Any) -> None:
    logits = make_logits(3)
    costs = pruned_formula(logits).detach().float()
    arguments = logits, SYMBOLS, RANGES, BLANK, BOUNDARY
    for reduction, expected in (("mean", costs.mean()), ("sum", costs.sum())):
        value = losses.rnnt_loss_pruned(*arguments, reduction=reduction)
        torch.testing.assert_close(value.detach(), expected, rtol=1e-5, atol=1e-6)
    value = losses.rnnt_loss_pruned(*arguments)
    torch.testing.assert_close(value.detach(), costs.mean(), rtol=1e-5, atol=1e-6)
    assert plugins.active()["fast_rnnt"].calls == 3


@pytest.mark.parametrize("penalty", [0.0, 0.3])
@pytest.mark.parametrize(
    "options", [{"rnnt_type": "modified"}, {"modified": True}, {"rnnt_type": True}], ids=str
)
def test_the_modified_losses(losses: Any, options: dict[str, Any], penalty: float) -> None:
    logits = make_logits(S + 1)
    options = {**options, "delay_penalty": penalty, "reduction": "none"}
    costs = losses.rnnt_loss(logits, SYMBOLS, BLANK, BOUNDARY, **options)
    expected = modified_formula(logits.double().log_softmax(-1), BOUNDARY, penalty)
    assert_agree(costs, expected, logits)
    pruned = make_logits(3)
    costs = losses.rnnt_loss_pruned(pruned, SYMBOLS, RANGES, BLANK, BOUNDARY, **options)
    assert_agree(costs, pruned_formula(pruned, penalty, modified_formula), pruned)


def test_other_losses_are_refused(losses: Any) -> None:
    message = (
        '^`rnnt_type` must be "regular" or "modified", since no other loss is here, '
        'but is "constrained".$'
    )
    options = {"rnnt_type": "constrained"}
    with pytest.raises(NotImplementedError, match=message):
        losses.rnnt_loss(make_logits(S + 1), SYMBOLS, BLANK, BOUNDARY, **options)
    with pytest.raises(NotImplementedError, match=message):
        losses.rnnt_loss_pruned(make_logits(3), SYMBOLS, RANGES, BLANK, BOUNDARY, **options)
    with pytest.raises(NotImplementedError, match=r"^`use_hat_loss` must be False"):
        losses.rnnt_loss_pruned(make_logits(3), SYMBOLS, RANGES, BLANK, BOUNDARY, use_hat_loss=True)


def test_ranges_of_other_cells(losses: Any) -> None:
    message = (
        r"^`logits` must be \(B, T, s_range, C\) and `ranges` \(B, T, s_range\), but they have "
    )
    for logits in (make_logits(S + 1), make_logits(3)[:, :-1], make_logits(3)[0]):
        with pytest.raises(ValueError, match=message):
            losses.rnnt_loss_pruned(logits, SYMBOLS, RANGES, BLANK, BOUNDARY)


def test_a_boundary_out_of_place(losses: Any) -> None:
    logits = make_logits(S + 1)
    with pytest.raises(ValueError, match=r"^`boundary` must begin at symbol 0 and frame 0 of ev"):
        losses.rnnt_loss(logits, SYMBOLS, BLANK, BOUNDARY + 1)
    with pytest.raises(ValueError, match=r"^`boundary` must be \(3, 4\), but has shape \(2, 4\)"):
        losses.rnnt_loss(logits, SYMBOLS, BLANK, BOUNDARY[:2])


def test_the_names_of_a_real_k2_are_replaced_in_both_modules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A function of k2 has the name of its module, and hides it."""

    def rnnt_loss(logits, symbols, termination_symbol, boundary=None):
        raise AssertionError

    def rnnt_loss_pruned(logits, symbols, ranges, termination_symbol, boundary=None):
        raise AssertionError

    package, inner = types.ModuleType("k2"), types.ModuleType("k2.rnnt_loss")
    for module in (package, inner):
        module.rnnt_loss, module.rnnt_loss_pruned = rnnt_loss, rnnt_loss_pruned
        monkeypatch.setitem(sys.modules, module.__name__, module)
    package.__version__ = "1.24.4"
    logits = make_logits(3)
    with plugins.installed("k2"):
        assert package.rnnt_loss is inner.rnnt_loss is not rnnt_loss
        costs = package.rnnt_loss_pruned(logits, SYMBOLS, RANGES, BLANK, BOUNDARY, reduction="none")
        assert_agree(costs, pruned_formula(logits), logits)
        assert plugins.active()["k2"].calls == 1
    assert package.rnnt_loss is inner.rnnt_loss is rnnt_loss
    assert package.rnnt_loss_pruned is inner.rnnt_loss_pruned is rnnt_loss_pruned
