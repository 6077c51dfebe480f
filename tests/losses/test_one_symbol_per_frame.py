"""topology="one_symbol_per_frame": by its definition, and as k2's `rnnt_type="modified"`."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from asr_ascend.losses import (
    RNNTLoss,
    pack_logits,
    rnnt_alignment,
    rnnt_loss,
    rnnt_loss_and_grad,
    unpack_logits,
)
from tests.support import oracles
from tests.support.banded_batch import Batch as BandBatch

ONE = "one_symbol_per_frame"
V, BLANK = 6, 2
# A label in every frame (T = U), no label, no alignment (U > T), one frame.
SIZES = ((4, 2), (5, 0), (3, 3), (2, 4), (7, 3), (1, 1), (1, 0))
FRAMES = torch.tensor([t for t, _ in SIZES])
LABELS = torch.tensor([u for _, u in SIZES])
COUNTS = (FRAMES * (LABELS + 1)).tolist()
NO_PATH = 3
UPSTREAM = torch.linspace(-1.0, 2.0, len(SIZES), dtype=torch.float64)
TARGETS = torch.tensor([[0, 3, 5, 4], [9, 9, 9, 9], [1, 1, 1, 9], [0, 1, 3, 4], [5, 0, 4, 9],
                        [4, 9, 9, 9], [9, 9, 9, 9]])  # fmt: skip
INDICES = TARGETS, FRAMES, LABELS


def make_rows(dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(sum(COUNTS), V, generator=generator, dtype=torch.float64)).to(dtype)


def loss(logits: Tensor, **options: Any) -> Tensor:
    options = {"blank": BLANK, "reduction": "none", "topology": ONE, **options}
    return rnnt_loss(logits, *INDICES, **options)


def every_alignment(log_probs: Tensor, windows: Tensor | None = None) -> list[dict[tuple, Tensor]]:
    """Of each sample: the score of the labels' frames, one alignment at a time."""
    found = []
    for b, block in enumerate(log_probs.split(COUNTS)):
        (T, U), paths = SIZES[b], {}
        block = block.view(T, U + 1, V)
        for frames in itertools.combinations(range(T), U):
            if windows is not None and not all(
                windows[b, u, 0] <= t <= windows[b, u, 1] for u, t in enumerate(frames)
            ):
                continue
            score, u = log_probs.new_zeros(()), 0
            for t in range(T):
                if t in frames:
                    score = score + block[t, u, TARGETS[b, u]]
                    u += 1
                else:
                    score = score + block[t, u, BLANK]
            paths[frames] = score
        found.append(paths)
    return found


def enumerated(logits: Tensor, windows: Tensor | None = None) -> Tensor:
    costs = [
        -torch.logsumexp(torch.stack(list(paths.values())), 0)
        if paths
        else logits.new_tensor(math.inf)
        for paths in every_alignment(logits.log_softmax(-1), windows)
    ]
    return torch.stack(costs)


def value_and_gradient(function: Any, logits: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    leaf = logits.detach().clone().requires_grad_()
    costs = function(leaf, **options)
    # Where no alignment is, the enumeration has no graph.
    (gradient,) = torch.autograd.grad(
        (costs * UPSTREAM.to(costs.dtype))[costs.isfinite()].sum(), leaf
    )
    return costs.detach(), gradient


@oracles.each_backend
def test_equals_the_enumeration_of_every_alignment(backend: str) -> None:
    got = value_and_gradient(loss, make_rows(), backend=backend)
    expected = value_and_gradient(enumerated, make_rows())
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    assert got[0][NO_PATH] == math.inf
    no_path = got[1].split(COUNTS)[NO_PATH]
    assert torch.equal(no_path, torch.zeros_like(no_path))
    # And it is another loss than the regular one.
    assert not torch.allclose(got[0], loss(make_rows(), topology="regular"))


def test_equals_the_formula_of_k2s_modified_type() -> None:
    """p[b,s,t] = log_add(p[b,s-1,t-1] + px[b,s-1,t-1], p[b,s,t-1] + py[b,s,t-1]); -p[b,S,T].

    https://github.com/k2-fsa/k2/blob/a741ae8/k2/python/k2/rnnt_loss.py, docstring of
    `get_rnnt_logprobs_joint`, and its penalty, `((T - 1) / 2 - t) * delay_penalty` added to px.
    """
    T, S, penalty = 9, 4, 0.25
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(1, T, S + 1, V, generator=generator, dtype=torch.float64)
    symbols = torch.tensor([[0, 3, 3, 5]])
    log_probs = logits[0].log_softmax(-1)
    p = torch.full((S + 1, T + 1), -math.inf, dtype=torch.float64)
    p[0, 0] = 0.0
    for t in range(1, T + 1):
        for s in range(S + 1):
            p[s, t] = p[s, t - 1] + log_probs[t - 1, s, BLANK]
            if s > 0:
                px = log_probs[t - 1, s - 1, symbols[0, s - 1]] + penalty * ((T - 1) / 2 - (t - 1))
                p[s, t] = torch.logaddexp(p[s, t], p[s - 1, t - 1] + px)
    lengths = torch.tensor([T]), torch.tensor([S])
    for backend in oracles.BACKENDS:
        cost = rnnt_loss(
            logits, symbols, *lengths, BLANK, delay_penalty=penalty, topology=ONE, backend=backend
        )
        torch.testing.assert_close(cost, -p[S, T], rtol=1e-13, atol=0)


@oracles.each_dtype
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"clamp": 0.1},
        {"fastemit_lambda": 0.3},
        {"delay_penalty": 0.2},
        {"fused_log_softmax": False},
        {"fused_log_softmax": False, "clamp": 0.1, "fastemit_lambda": 0.2},
        {"reuse_logits": True},
    ],
    ids=str,
)
def test_equals_the_definition(options: dict[str, Any], padded: bool, dtype: torch.dtype) -> None:
    rows = make_rows(dtype)
    if not options.get("fused_log_softmax", True):
        rows = rows.log_softmax(-1)
    definition = {k: v for k, v in options.items() if k != "reuse_logits"}
    expected = value_and_gradient(loss, rows.double(), backend="reference", **definition)
    logits = unpack_logits(rows, FRAMES, LABELS, math.nan) if padded else rows
    before = logits.clone()
    costs, gradient = value_and_gradient(lambda x, **o: loss(x * 1, **o), logits, **options)
    torch.testing.assert_close(logits, before, rtol=0, atol=0, equal_nan=True)
    if padded:
        packed = pack_logits(gradient, FRAMES, LABELS)
        # Padding gets zero.
        assert torch.equal(unpack_logits(packed, FRAMES, LABELS), gradient)
        gradient = packed
    assert costs.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert gradient.dtype == dtype
    close = (
        {"rtol": 1e-12, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-6}
    )
    torch.testing.assert_close(costs.double(), expected[0], **close)
    if dtype in (torch.float16, torch.bfloat16):
        close = {"rtol": torch.finfo(dtype).eps, "atol": 1e-5}
    torch.testing.assert_close(gradient.double(), expected[1], **close)


@oracles.each_backend
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("reuse", [False, True])
def test_costs_and_gradient_in_one_call(reuse: bool, padded: bool, backend: str) -> None:
    logits = make_rows(torch.float32)
    logits = unpack_logits(logits, FRAMES, LABELS, math.nan) if padded else logits
    leaf = logits.clone().requires_grad_()
    expected = loss(leaf, backend=backend)
    expected.backward(torch.ones_like(expected))
    costs, gradient = rnnt_loss_and_grad(
        logits, *INDICES, BLANK, topology=ONE, reuse_logits=reuse, backend=backend
    )
    torch.testing.assert_close(costs, expected.detach(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradient, leaf.grad, rtol=1e-6, atol=1e-7)
    assert (gradient.data_ptr() == logits.data_ptr()) is reuse


@oracles.each_backend
def test_emission_windows_are_in_frames(backend: str) -> None:
    windows = torch.tensor([0, 99]).repeat(*TARGETS.shape, 1)
    windows[0, :2] = torch.tensor([[1, 2], [2, 3]])
    windows[4, :3] = torch.tensor([[0, 1], [3, 3], [5, 9]])
    windows[2, 1] = torch.tensor([0, 0])  # which leaves nothing of T = U
    got = value_and_gradient(loss, make_rows(), emission_windows=windows, backend=backend)
    expected = value_and_gradient(lambda x: enumerated(x, windows), make_rows())
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    assert got[0][2] == math.inf


@oracles.each_backend
@pytest.mark.parametrize("widest", [0, 1, 3, 20])
@pytest.mark.parametrize("sizes", [[(9, 3), (1, 1), (14, 11), (3, 0)], [(6, 6), (7, 5)]], ids=str)
def test_bands_equal_minus_infinity_outside(
    sizes: list[tuple[int, int]], widest: int, backend: str
) -> None:
    finite = 0
    for seed in range(4):
        batch = BandBatch(seed, sizes, widest)
        options = {"topology": ONE, "backend": backend}
        got = batch.value_and_gradient(batch.loss, batch.rows, **options)
        want = batch.value_and_gradient(batch.defined, batch.rows, topology=ONE)
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
        finite += int(got[0].isfinite().sum())
        frames, scores = rnnt_alignment(
            batch.rows,
            batch.targets,
            batch.frames,
            batch.labels,
            blank=2,
            band=batch.band,
            **options,
        )
        full = batch.in_full_lattice(batch.rows.log_softmax(-1))
        expected = rnnt_alignment(
            full, batch.targets, batch.frames, batch.labels, 2, False, **options
        )
        torch.testing.assert_close((frames, scores), expected, rtol=1e-12, atol=1e-12)
    assert finite > 0


@oracles.each_backend
@pytest.mark.parametrize("padded", [False, True])
def test_the_alignment_is_the_best_of_all(padded: bool, backend: str) -> None:
    rows = make_rows(torch.float32)
    logits = unpack_logits(rows, FRAMES, LABELS, math.nan) if padded else rows
    frames, scores = rnnt_alignment(logits, *INDICES, BLANK, topology=ONE, backend=backend)
    for b, paths in enumerate(every_alignment(rows.double().log_softmax(-1))):
        if not paths:
            assert (frames[b] == -1).all() and scores[b] == -math.inf
            continue
        best = max(paths, key=lambda path: float(paths[path]))
        assert frames[b].tolist() == [*best, *[-1] * (TARGETS.shape[1] - len(best))]
        assert scores[b].item() == pytest.approx(float(paths[best]), rel=1e-6)


@oracles.each_backend
def test_of_equally_likely_alignments_the_earliest(backend: str) -> None:
    logits = torch.zeros(sum(COUNTS), V)
    frames, _ = rnnt_alignment(logits, *INDICES, BLANK, topology=ONE, backend=backend)
    assert frames[4].tolist() == [0, 1, 2, -1]


@oracles.each_backend
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("cell", [0, 2, 9])  # (0, 0); (0, 2) and (3, 0), which no path comes to
def test_what_is_no_number_costs_its_own_sample(cell: int, value: float, backend: str) -> None:
    rows = make_rows()
    clean = value_and_gradient(loss, rows, backend=backend)
    rows[cell, 4] = value
    leaf = rows.clone().requires_grad_()
    costs = loss(leaf, backend=backend)
    costs.backward(torch.ones_like(costs))
    assert leaf.grad is not None
    assert costs[0].isnan() and leaf.grad[: COUNTS[0]].isnan().all()
    assert torch.equal(costs[1:], clean[0][1:]) and not leaf.grad[COUNTS[0] :].isnan().any()
    frames, scores = rnnt_alignment(rows, *INDICES, BLANK, topology=ONE, backend=backend)
    assert (frames[0] == -1).all() and scores[0].isnan()


@oracles.each_backend
def test_log_probabilities_that_no_alignment_uses_are_not_read(backend: str) -> None:
    rows = make_rows().log_softmax(-1)
    options = {"fused_log_softmax": False, "backend": backend}
    expected = value_and_gradient(loss, rows, **options)
    rows[2] = math.nan  # (0, 2) of the first sample
    rows[9] = math.nan  # (3, 0)
    got = value_and_gradient(loss, rows, **options)
    torch.testing.assert_close(got, expected, rtol=0, atol=0)


@oracles.each_backend
def test_blank_in_targets(backend: str) -> None:
    targets = torch.full_like(TARGETS, BLANK)
    rows = make_rows().requires_grad_()
    costs = rnnt_loss(
        rows, targets, FRAMES, LABELS, BLANK, reduction="none", blank_in_targets="allow",
        topology=ONE, backend=backend,
    )  # fmt: skip
    (gradient,) = torch.autograd.grad(costs[5], rows)
    expected = rows[-3:-1].log_softmax(-1)  # T = U = 1: the label is the only step
    torch.testing.assert_close(costs[5], -expected[0, BLANK], rtol=1e-12, atol=0)
    (wanted,) = torch.autograd.grad(-expected[0, BLANK], rows)
    torch.testing.assert_close(gradient, wanted, rtol=1e-12, atol=1e-15)


def test_gradcheck_and_the_second_derivative_of_the_reference() -> None:
    has_path = torch.ones(len(SIZES), dtype=torch.bool)
    has_path[NO_PATH] = False
    rows = make_rows().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: loss(x)[has_path], rows, fast_mode=True)
    assert torch.autograd.gradcheck(
        lambda x: loss(x, backend="reference")[has_path], rows, fast_mode=True
    )
    short = [2, 1]
    few = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    arguments = torch.tensor([[1]]), *(torch.tensor([n]) for n in short)
    assert torch.autograd.gradgradcheck(
        lambda x: rnnt_loss(x, *arguments, 0, topology=ONE, backend="reference"), few
    )


def test_the_same_bits_for_any_number_of_threads() -> None:
    """With a large vocabulary, and one row alone, whose sum torch would split."""
    generator = torch.Generator().manual_seed(1)
    one_row = torch.randn(1, 40000, generator=generator)
    many = torch.randn(60 * 21, 900, generator=generator)
    batches = (
        (one_row, torch.zeros(1, 0, dtype=torch.int64), torch.tensor([1]), torch.tensor([0])),
        (many, torch.arange(20)[None] % 899 + 1, torch.tensor([60]), torch.tensor([20])),
    )
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append([rnnt_loss_and_grad(*batch, 0, topology=ONE) for batch in batches])
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        for got, expected in zip(other, found[0], strict=True):
            oracles.assert_same_bits(got[0], expected[0])
            oracles.assert_same_bits(got[1], expected[1])


def test_the_module_and_an_empty_batch() -> None:
    rows = make_rows(torch.float32)
    module = RNNTLoss(BLANK, reduction="none", topology=ONE)
    costs = loss(rows)
    assert torch.equal(module(rows, *INDICES), costs)
    assert "topology='one_symbol_per_frame'" in repr(module)
    with pytest.raises(
        Exception, match='topology="one_symbol_per_frame" can\'t run in TorchScript'
    ):
        torch.jit.script(module)(rows, *INDICES)
    nothing = torch.zeros(0, 2, dtype=torch.int64), *[torch.zeros(0, dtype=torch.int64)] * 2
    assert rnnt_loss(torch.zeros(0, V), *nothing, topology=ONE, reduction="sum") == 0


def test_torch_compile_breaks_its_graph() -> None:
    rows = make_rows(torch.float32)
    compiled = torch.compile(lambda x: loss(x * 2).exp(), backend="eager")
    torch.testing.assert_close(compiled(rows), loss(rows * 2).exp())


def test_errors() -> None:
    rows = make_rows()
    message = '^`topology` must be "regular" or "one_symbol_per_frame", but is "modified".$'
    for function in (rnnt_loss, rnnt_loss_and_grad, rnnt_alignment):
        with pytest.raises(ValueError, match=message):
            function(rows, *INDICES, topology="modified")
    for backend in oracles.BACKENDS:
        with pytest.raises(ValueError, match=r"^packed `logits` must have sum"):
            loss(rows[1:], backend=backend)
        with pytest.raises(
            ValueError, match=r"^`targets` must not contain `blank`, but is 0 at pos"
        ):
            loss(rows, backend=backend, blank=0)
        with pytest.raises(ValueError, match=r"^`targets` must be in \[0, 4\], but is 5 at positi"):
            loss(rows[:, :5], backend=backend)
        with pytest.raises(RuntimeError, match=r"can't run under torch\.vmap"):
            torch.vmap(lambda x, o=backend: loss(x, backend=o))(rows[None])
    leaf = rows.clone().requires_grad_()
    with pytest.raises(
        RuntimeError, match=r'"one_symbol_per_frame" has no second derivative; backe'
    ):
        torch.autograd.grad(loss(leaf)[0], leaf, create_graph=True)
    with pytest.raises(RuntimeError, match=r"can run backward only once: the first"):
        total = loss(leaf * 1, reuse_logits=True)[0]
        total.backward(retain_graph=True)
        total.backward()
    with pytest.raises(RuntimeError, match=r"has no torch\.func derivative"):
        torch.func.grad(lambda x: loss(x)[0])(rows)
