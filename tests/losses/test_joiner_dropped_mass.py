"""max_dropped_mass: which rows leave the gradient, and how far it moves."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asr_ascend.losses import rnnt_loss_and_grad
from asr_ascend.losses.joiner import chunk_by_chunk, sample_by_sample
from asr_ascend.losses.joiner.task import kept_rows
from tests.support.joiner_batch import (
    EACH_WAY,
    SAMPLE_BY_SAMPLE,
    Batch,
    fused,
    make_batch,
    value_and_gradients,
)

each_way = pytest.mark.parametrize("way", EACH_WAY, ids=("sample", "chunk"))
MASSES = (1e-6, 1e-3, 0.1, 1.0)


def peaky_batch(seed=0) -> Batch:
    """Few alignments hold nearly all of the probability, as on a trained model."""
    return make_batch(lengths=((24, 8), (15, 3), (6, 0)), vocab=20, width=8, scale=3.0, seed=seed)


def gradient_of_logits(batch: Batch, **options) -> list[torch.Tensor]:
    """Of each sample, (rows, V) in float64."""
    gradients = []
    for b, (frames, labels) in enumerate(
        zip(batch.logit_lengths.tolist(), batch.target_lengths.tolist(), strict=True)
    ):
        encoded, predicted = batch.encoder_out[b, :frames, None], batch.predictor_out[b, None]
        hidden = torch.tanh(encoded + predicted[:, : labels + 1]).flatten(0, 1).double()
        logits = hidden @ batch.weight.double().T + batch.bias.double()
        here = slice(b, b + 1)
        index = batch.targets[here], batch.logit_lengths[here], batch.target_lengths[here]
        gradients.append(rnnt_loss_and_grad(logits, *index, batch.blank, **options)[1])
    return gradients


class TestKeptRows:
    def test_the_smallest_leave_while_their_sum_allows(self):
        masses = torch.tensor([0.5, 0.1, 0.0, 0.3, 0.2])
        assert kept_rows(masses, 0.29).tolist() == [0, 3, 4]
        assert kept_rows(masses, 0.31).tolist() == [0, 3]
        assert kept_rows(masses, 0.0).tolist() == [0, 1, 3, 4]
        assert kept_rows(masses, 2.0).tolist() == []

    def test_nan_stays(self):
        masses = torch.tensor([math.nan, 0.1, 0.2])
        assert kept_rows(masses, 10.0).tolist() == [0]


@each_way
@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("options", [{}, {"clamp": 0.3}, {"fastemit_lambda": 0.5}], ids=str)
def test_rows_left_out_hold_at_most_the_mass(way, mass, options, monkeypatch):
    """Half the L1 norm of the left-out gradient of each sample, computed apart in float64."""
    seen = []

    def spy(masses, max_dropped_mass):
        kept = kept_rows(masses, max_dropped_mass)
        seen.append(kept)
        return kept

    for module in (sample_by_sample, chunk_by_chunk):
        monkeypatch.setattr(module, "kept_rows", spy)
    batch = peaky_batch()
    leaves = batch.as_leaves(torch.float32)
    value_and_gradients(fused, leaves, max_dropped_mass=mass, **way, **options)
    exact = gradient_of_logits(batch, **options)
    assert len(seen) == len(exact)
    for kept, gradient in zip(seen, exact, strict=True):
        masses = gradient.abs().sum(1) / 2
        dropped = torch.ones(len(masses), dtype=torch.bool).index_fill(0, kept, False)
        assert masses[dropped].sum() <= mass * (1 + 1e-5) + 1e-6
        # No further row would have fitted. The chunks' masses are those before a clamp.
        if len(kept) and (way is SAMPLE_BY_SAMPLE or "clamp" not in options):
            assert masses[dropped].sum() + masses[kept].min() > mass * (1 - 1e-5) - 1e-6


@each_way
@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_value_is_exact_and_the_bias_moves_by_twice_the_mass_at_most(way, mass, reduction):
    """The gradient of the bias is the sum of d logits over rows, so it moves no further."""
    batch = peaky_batch()
    options = {"reduction": reduction, **way}

    def run(**more):
        leaves = batch.as_leaves(torch.float32)
        costs = fused(leaves, **options, **more)
        costs.sum().backward()
        return costs.detach(), [leaf.grad for leaf in leaves.inputs()]

    exact_costs, exact = run()
    costs, gradients = run(max_dropped_mass=mass)
    torch.testing.assert_close(costs, exact_costs, rtol=0, atol=0)
    change = float((gradients[3] - exact[3]).abs().sum())
    assert change <= 2 * mass * len(batch.logit_lengths) + 1e-5
    # |tanh| <= 1, so no row of the weight's gradient moves further than that either.
    assert float((gradients[2] - exact[2]).abs().amax(1).sum()) <= 2 * mass * 3 + 1e-5
    if mass >= 1e-3:
        assert change > 0


@each_way
def test_zero_mass_is_exact_to_the_bit(way):
    batch = peaky_batch()
    exact = value_and_gradients(fused, batch.as_leaves(torch.float32), **way)
    same = value_and_gradients(fused, batch.as_leaves(torch.float32), max_dropped_mass=0, **way)
    torch.testing.assert_close(same, exact, rtol=0, atol=0)


@each_way
def test_all_of_the_mass_leaves_no_gradient(way):
    leaves = peaky_batch().as_leaves(torch.float32)
    _, gradients = value_and_gradients(fused, leaves, max_dropped_mass=1e9, **way)
    assert not any(gradient.any() for gradient in gradients)


@each_way
def test_a_nan_sample_keeps_its_nan(way):
    batch = peaky_batch()
    batch.encoder_out[1, 0, 0] = math.nan
    leaves = batch.as_leaves(torch.float32)
    _, gradients = value_and_gradients(fused, leaves, reduction="sum", max_dropped_mass=0.1, **way)
    assert gradients[0][1, :15].isnan().all()
    assert gradients[0][[0, 2]].isfinite().all()


@each_way
@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(
    mass=st.sampled_from([1e-4, 1e-2, 0.5, 3.0]),
    seed=st.integers(0, 1000),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_the_bound_holds_on_any_model(way, mass, seed, dtype):
    batch = peaky_batch(seed)
    exact, moved = (
        value_and_gradients(
            lambda b, **options: fused(b, reduction="sum", **options) / -1.75,
            batch.as_leaves(dtype),
            **way,
            **options,
        )[1]
        for options in ({}, {"max_dropped_mass": mass})
    )
    rounding = 50 * torch.finfo(dtype).eps * float(exact[3].abs().sum())
    assert float((moved[3] - exact[3]).abs().sum()) <= 2 * mass * 3 + rounding
