"""FastEmit (Yu et al. 2021) in the backward entry, against its definition in float64."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support import emulated_operator as emulated
from tests.support import oracles

each_dtype = pytest.mark.parametrize("dtype", emulated.DTYPES, ids=["float32", "float16", "bf16"])
LENGTHS = [(7, 3), (4, 6), (12, 5), (3, 0), (1, 2)]


def definition(
    case: oracles.Case, fastemit_lambda: float, *, clamp: float, fused: bool, upstream: Tensor
) -> Tensor:
    """The gradient with the derivative by each label's log-probability 1 + lambda times itself."""
    gradient = torch.zeros(case.logits.shape, dtype=torch.float64)
    for rows, frames, _, labels in case.samples():
        lattice = oracles.build_lattice(case.logits[rows], frames, labels, case.blank_index, fused)
        of_log_probs = np.zeros((frames, len(labels) + 1, case.vocab))
        for t in range(frames):
            for u in range(len(labels) + 1):
                reach = lattice.alpha[t, u] + lattice.cost
                stays = math.exp(reach + lattice.blank[t, u] + lattice.beta[t + 1, u])
                of_log_probs[t, u, case.blank_index] = -stays
                if u < len(labels):
                    emits = math.exp(reach + lattice.label[t, u] + lattice.beta[t, u + 1])
                    of_log_probs[t, u, labels[u]] = -(1 + fastemit_lambda) * emits
        part = torch.from_numpy(of_log_probs).reshape(-1, case.vocab)
        if fused:  # the chain rule of log_softmax
            part -= case.logits[rows].double().softmax(-1) * part.sum(-1, keepdim=True)
        gradient[rows] = part
    if clamp > 0:
        gradient.clamp_(-clamp, clamp)
    return gradient * case.spread_over_rows(upstream.double())


@each_dtype
@pytest.mark.parametrize("vocab", [11, 300, 10000])
@pytest.mark.parametrize("fused", [True, False], ids=["logits", "log_probs"])
@pytest.mark.parametrize("fastemit_lambda", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("clamp", [-1.0, 0.3])
def test_the_definition(
    operator: ctypes.CDLL,
    clamp: float,
    fastemit_lambda: float,
    fused: bool,
    vocab: int,
    dtype: torch.dtype,
) -> None:
    """Rows of every width: short ones, those in whole tiles, those in windows."""
    lengths = LENGTHS if vocab < 10000 else LENGTHS[-2:]
    case = oracles.make_case(lengths, vocab, blank=3, dtype=dtype, scale=2.0)
    if not fused:
        case = case.with_logits(case.logits.double().log_softmax(-1).to(dtype))
    upstream = torch.tensor([1.0, -2.0, 0.5, 1.0, 3.0])[: len(lengths)]
    options = {"clamp": clamp, "fused_log_softmax": fused, "upstream": upstream}
    result = emulated.call(
        operator, case, entry="split", cores=3, fastemit_lambda=fastemit_lambda, **options
    )
    expected = definition(case, fastemit_lambda, clamp=clamp, fused=fused, upstream=upstream)
    scale = (1 + fastemit_lambda) * 3.0
    oracles.assert_gradient(result.gradient, expected, dtype, scale)
    plain = emulated.call(operator, case, entry="split", cores=3, **options)
    oracles.assert_same_bits(result.costs, plain.costs)


@each_dtype
def test_the_definition_without_it_is_the_gradient(
    operator: ctypes.CDLL, dtype: torch.dtype
) -> None:
    case = oracles.make_case(LENGTHS, 11, blank=3, dtype=dtype)
    expected = definition(case, 0.0, clamp=-1.0, fused=True, upstream=torch.ones(len(LENGTHS)))
    _, gradient = oracles.exact(case)
    oracles.assert_within(expected, gradient, torch.full_like(gradient, 1e-12), "gradient")
    off = emulated.call(operator, case, entry="split", fastemit_lambda=0.0)
    oracles.assert_same_bits(off.gradient, emulated.call(operator, case).gradient)


def test_no_labels_no_change(operator: ctypes.CDLL) -> None:
    case = oracles.make_case([(5, 0), (3, 2)], 9, blank=0)
    with_it = emulated.call(operator, case, entry="split", fastemit_lambda=2.0)
    without = emulated.call(operator, case, entry="split")
    oracles.assert_same_bits(with_it.gradient[:5], without.gradient[:5])
    assert (with_it.gradient[5:] != without.gradient[5:]).any()


def test_hopeless_and_poisoned_samples_stay_what_they_are(operator: ctypes.CDLL) -> None:
    case = oracles.make_case([(4, 2), (3, 3), (5, 1)], 6, blank=0)
    logits = case.logits.clone()
    logits[12:24].reshape(3, 4, -1)[2, 3, 0] = -math.inf  # no path left
    logits[30, 2] = math.nan
    case = case.with_logits(logits)
    result = emulated.call(operator, case, entry="split", fastemit_lambda=0.5)
    assert (result.gradient[12:24] == 0).all()
    assert result.gradient[24:].isnan().all()
    assert result.gradient[:12].isfinite().all()


@pytest.mark.slow
def test_a_long_utterance(operator: ctypes.CDLL) -> None:
    case = oracles.make_case([(400, 120)], 64, scale=2.0)
    result = emulated.call(operator, case, entry="split", cores=8, fastemit_lambda=0.1)
    expected = definition(case, 0.1, clamp=-1.0, fused=True, upstream=torch.ones(1))
    oracles.assert_gradient(result.gradient, expected, torch.float32, 1.1)
