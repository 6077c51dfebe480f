"""joiner_rnnt_loss with one symbol per frame: the joiner, then `rnnt_loss` with it."""

from __future__ import annotations

import pytest
import torch

from asr_ascend.losses import joiner_rnnt_loss
from tests.support.joiner_batch import apart, fused, make_batch, value_and_gradients

ONE = {"topology": "one_symbol_per_frame"}
LENGTHS = ((9, 4), (5, 0), (3, 3), (1, 1), (6, 2))


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("max_bytes", [None, 1])
@pytest.mark.parametrize(
    "options", [{}, {"clamp": 0.05}, {"fastemit_lambda": 0.2, "delay_penalty": 0.1}], ids=str
)
def test_equals_the_joiner_and_the_loss_apart(options, max_bytes, reduction):
    batch = make_batch(LENGTHS)
    options = {**options, **ONE, "reduction": reduction}
    got = value_and_gradients(fused, batch.as_leaves(torch.float64), max_bytes=max_bytes, **options)
    expected = value_and_gradients(apart, batch.as_leaves(torch.float64), **options)
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_without_gradient_with_windows_and_without_alignments(backend):
    batch = make_batch(((9, 4), (2, 3), (6, 2)))
    windows = torch.tensor([0, 3]).repeat(*batch.targets.shape, 1)
    windows[0, 3:] = torch.tensor([5, 6])
    options = {**ONE, "reduction": "none", "emission_windows": windows}
    expected = apart(batch.as_leaves(torch.float64), **options).detach()
    assert expected.isfinite().tolist() == [True, False, True]
    leaves = batch.as_leaves(torch.float64)
    with torch.no_grad():
        costs = fused(leaves, backend=backend, **options)
    torch.testing.assert_close(costs, expected, rtol=1e-12, atol=0)
    found = value_and_gradients(fused, leaves, backend=backend, **options)
    wanted = value_and_gradients(apart, batch.as_leaves(torch.float64), **options)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


def test_weights_and_dropped_mass():
    batch = make_batch(LENGTHS)
    batch.encoder_out[1, 0, 0] = torch.nan
    weights = torch.tensor([1.0, 0.0, 2.0, 0.5, 1.0])
    got = fused(batch.as_leaves(torch.float32), weights=weights, **ONE)
    costs = fused(batch.as_leaves(torch.float32), reduction="none", **ONE)
    assert costs.isnan().tolist() == [False, True, False, False, False]
    torch.testing.assert_close(got, (costs * weights)[weights > 0].sum() / 5)
    exact = value_and_gradients(fused, make_batch(LENGTHS).as_leaves(torch.float64), **ONE)
    close = value_and_gradients(
        fused, make_batch(LENGTHS).as_leaves(torch.float64), max_dropped_mass=1e-9, **ONE
    )
    torch.testing.assert_close(close, exact, rtol=1e-6, atol=1e-7)


def test_an_unknown_topology():
    batch = make_batch(LENGTHS)
    with pytest.raises(ValueError, match=r'^`topology` must be "regular" or "one_symbol_per_f'):
        joiner_rnnt_loss(*batch, topology="constrained")
