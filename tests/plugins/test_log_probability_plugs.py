"""warp_rnnt, which FunASR calls, and optimized_transducer, which icefall calls."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from asr_ascend import plugins
from asr_ascend.losses import pack_logits, rnnt_loss
from tests.support.tiny_transducer import (
    LABELS,
    LOGIT_LENGTHS,
    TARGET_LENGTHS,
    TARGETS,
    Transducer,
    assert_same_training,
    features,
    train,
)


def make_logits() -> Tensor:
    torch.manual_seed(3)
    return Transducer()(features(), TARGETS).detach().mul(3).requires_grad_()


def called(loss: Any) -> tuple[Tensor, Tensor]:
    logits = make_logits()
    value = loss(logits)
    return value.detach(), torch.autograd.grad(value.sum(), logits)[0]


def module_of(name: str) -> Any:
    if importlib.util.find_spec(name) is not sys.modules[name].__spec__:
        pytest.skip(f"the real {name} is installed")
    return sys.modules[name]


def funasr(logits: Tensor, targets: Tensor, t_len: Tensor, u_len: Tensor) -> Tensor:
    """FunASR's call.

    https://github.com/modelscope/FunASR/blob/main/funasr/models/transducer/model.py,
    _calc_transducer_loss
    """
    from warp_rnnt import rnnt_loss as criterion

    return criterion(
        torch.log_softmax(logits, dim=-1),
        targets,
        t_len,
        u_len,
        reduction="mean",
        blank=0,
        fastemit_lambda=0.0,
        gather=True,
    )


def icefall(logits: Tensor, targets: Tensor, x_lens: Tensor, y_lens: Tensor) -> Tensor:
    """icefall's call; its joiner makes packed logits.

    https://github.com/k2-fsa/icefall/blob/master/egs/librispeech/ASR/transducer_stateless/model.py
    """
    import optimized_transducer

    return optimized_transducer.transducer_loss(
        logits=pack_logits(logits, x_lens, y_lens),
        targets=targets,
        logit_lengths=x_lens,
        target_lengths=y_lens,
        blank=0,
        reduction="sum",
        one_sym_per_frame=False,
        from_log_softmax=False,
    )


def test_five_steps_of_funasr_and_icefall() -> None:
    for plug, call_site, reduction in (
        ("warp_rnnt", funasr, "mean"),
        ("optimized_transducer", icefall, "sum"),
    ):
        theirs = train(
            lambda *inputs, r=reduction: rnnt_loss(
                *inputs, blank=0, reduction=r, backend="reference"
            )
        )
        with plugins.installed(plug):
            ours = train(call_site)
            assert plugins.active()[plug].calls == 5
        assert_same_training(ours, theirs)


def test_a_framework_that_imported_a_stand_in_keeps_it() -> None:
    plugins.install("warp_rnnt")
    loss = module_of("warp_rnnt").rnnt_loss
    framework = type(sys)("framework")
    framework.criterion = loss
    sys.modules["framework"] = framework
    try:
        with pytest.warns(plugins.PluginWarning, match=r"`framework.criterion` still is asr_asc"):
            plugins.uninstall("warp_rnnt")
    finally:
        del sys.modules["framework"]
    assert "warp_rnnt" not in sys.modules


# https://github.com/1ytic/warp-rnnt/blob/master/pytorch_binding/warp_rnnt/__init__.py


def warp(**options: Any) -> tuple[Tensor, Tensor]:
    with plugins.installed("warp_rnnt"):
        loss = module_of("warp_rnnt").rnnt_loss
        return called(lambda logits: loss(logits.log_softmax(-1), *LABELS, **options))


def costs_and_gradient(weights: Tensor | float = 1.0, **options: Any) -> tuple[Tensor, Tensor]:
    """Of the weighted costs, by the reference."""
    options = {"blank": 0, "backend": "reference", **options}
    return called(lambda logits: weights * rnnt_loss(logits, *LABELS, reduction="none", **options))


def test_warp_rnnt_has_defaults_of_its_own() -> None:
    value, gradient = warp()
    assert value.shape == (3,)
    torch.testing.assert_close((value, gradient), costs_and_gradient(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(warp(gather=True, reduction=None), (value, gradient), rtol=0, atol=0)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_average_frames(reduction: str) -> None:
    share = 1 / 3 if reduction == "mean" else 1.0
    value, gradient = costs_and_gradient(share / LOGIT_LENGTHS)
    value = value if reduction == "none" else value.sum()
    actual = warp(average_frames=True, reduction=reduction)
    torch.testing.assert_close(actual, (value, gradient), rtol=1e-5, atol=1e-6)


def test_fastemit_and_blank_go_through() -> None:
    targets = TARGETS.where(TARGETS != 5, 6)
    with plugins.installed("warp_rnnt"):
        loss = module_of("warp_rnnt").rnnt_loss
        actual = called(
            lambda logits: loss(
                logits.log_softmax(-1), targets, *LABELS[1:], blank=5, fastemit_lambda=0.3
            )
        )
    wanted = called(
        lambda logits: rnnt_loss(
            logits, targets, *LABELS[1:], blank=5, fastemit_lambda=0.3, reduction="none"
        )
    )
    torch.testing.assert_close(actual, wanted, rtol=1e-5, atol=1e-6)


def test_compact_takes_packed_rows_and_flat_labels() -> None:
    flat = torch.cat([row[:n] for row, n in zip(TARGETS, TARGET_LENGTHS, strict=True)])
    assert flat.tolist() == [1, 4, 2, 3, 5, 4, 3, 1, 5]
    with plugins.installed("warp_rnnt"):
        loss = module_of("warp_rnnt").rnnt_loss

        def compact(logits: Tensor) -> Tensor:
            rows = pack_logits(logits.log_softmax(-1), LOGIT_LENGTHS, TARGET_LENGTHS)
            return loss(rows, flat, LOGIT_LENGTHS, TARGET_LENGTHS, compact=True)

        torch.testing.assert_close(called(compact), costs_and_gradient(), rtol=1e-5, atol=1e-6)
        rows = torch.zeros(5, 4)
        with pytest.raises(ValueError, match=r"^`labels` must have sum.* = 9 elements, but has 8"):
            loss(rows, flat[1:], LOGIT_LENGTHS, TARGET_LENGTHS, compact=True)
        with pytest.raises(ValueError, match=r"^`labels` must be \(sum of labels_lengths,\) if"):
            loss(rows, TARGETS, LOGIT_LENGTHS, TARGET_LENGTHS, compact=True)


# https://github.com/csukuangfj/optimized_transducer


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("from_log_softmax", [False, True])
def test_optimized_transducer(from_log_softmax: bool, reduction: str) -> None:
    wanted = costs_and_gradient(1 / 3 if reduction == "mean" else 1.0)

    def packed(logits: Tensor) -> Tensor:
        rows = pack_logits(logits, LOGIT_LENGTHS, TARGET_LENGTHS)
        return rows.log_softmax(-1) if from_log_softmax else rows

    with plugins.installed("optimized_transducer", reuse_logits=True):
        module = module_of("optimized_transducer")
        for loss in (
            lambda rows: module.transducer_loss(
                rows, *LABELS, 0, from_log_softmax, False, reduction
            ),
            lambda rows: module.TransducerLoss(0, reduction)(rows, *LABELS, from_log_softmax),
        ):
            value, gradient = called(lambda logits, loss=loss: loss(packed(logits)))
            torch.testing.assert_close(value, wanted[0].sum(), rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(gradient, wanted[1], rtol=1e-5, atol=1e-6)


def test_the_logits_of_optimized_transducer_stay_unless_they_are_given_away() -> None:
    for reuse in (False, True):
        with plugins.installed("optimized_transducer", reuse_logits=reuse):
            rows = pack_logits(make_logits(), LOGIT_LENGTHS, TARGET_LENGTHS)
            before = rows.detach().clone()
            loss = module_of("optimized_transducer").transducer_loss(rows, *LABELS, 0, False)
            loss.backward()
        assert torch.equal(rows, before) is not reuse


@pytest.mark.parametrize("from_log_softmax", [False, True])
def test_one_symbol_per_frame_ends_with_a_blank(from_log_softmax: bool) -> None:
    """As ComputeAlphaOneSymPerFrame of its csrc/cpu.cc, version 1.4.

    alpha(t, u) is the log-sum of alpha(t - 1, u) + blank and alpha(t - 1, u - 1) + symbol. The
    total is alpha(T - 1, U) + blank(T - 1, U).
    """

    def by_hand(logits: Tensor) -> Tensor:
        costs = []
        for b, (T, U) in enumerate(
            zip(LOGIT_LENGTHS.tolist(), TARGET_LENGTHS.tolist(), strict=True)
        ):
            cell = logits[b].double().log_softmax(-1)
            alpha = {(0, 0): cell.new_zeros(())}
            for t in range(1, T):
                for u in range(U + 1):
                    ways = []
                    if (t - 1, u) in alpha:
                        ways.append(alpha[t - 1, u] + cell[t - 1, u, 0])
                    if (t - 1, u - 1) in alpha:
                        ways.append(alpha[t - 1, u - 1] + cell[t - 1, u - 1, TARGETS[b, u - 1]])
                    if ways:
                        alpha[t, u] = torch.stack(ways).logsumexp(0)
            costs.append(-(alpha[T - 1, U] + cell[T - 1, U, 0]))
        return torch.stack(costs).sum()

    def ours(logits: Tensor) -> Tensor:
        rows = pack_logits(logits, LOGIT_LENGTHS, TARGET_LENGTHS)
        rows = rows.log_softmax(-1) if from_log_softmax else rows
        loss = module_of("optimized_transducer").TransducerLoss(0, "sum")
        return loss(rows, *LABELS, from_log_softmax, True)

    with plugins.installed("optimized_transducer"):
        got = called(ours)
    wanted = called(by_hand)
    torch.testing.assert_close(got[0].double(), wanted[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(got[1], wanted[1], rtol=1e-5, atol=1e-6)
