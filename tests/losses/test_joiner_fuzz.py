"""Random shapes and options of joiner_rnnt_loss against the joiner and rnnt_loss in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asr_ascend.losses.joiner import rows as joiner_rows
from tests.support.joiner_batch import (
    apart,
    fused,
    make_batch,
    relative_errors,
    value_and_gradients,
)


@st.composite
def problems(draw):
    lengths = draw(
        st.lists(st.tuples(st.integers(1, 12), st.integers(0, 7)), min_size=1, max_size=5)
    )
    vocab = draw(st.integers(2, 40))
    batch = make_batch(
        tuple(lengths),
        vocab,
        draw(st.integers(1, 20)),
        blank=draw(st.integers(-vocab, vocab - 1)),
        bias=draw(st.booleans()),
        seed=draw(st.integers(0, 2**32)),
        scale=draw(st.sampled_from([0.0, 0.3, 1.0, 3.0])),
        extra=draw(st.sampled_from([(0, 0), (3, 2)])),
    )
    some = st.sampled_from([1.0, -0.5, 0.0, 2.0])
    weights = draw(st.none() | st.lists(some, min_size=len(lengths), max_size=len(lengths)))
    options = {
        "reduction": draw(st.sampled_from(["none", "sum", "mean"])),
        "activation": draw(st.sampled_from(["tanh", "relu"])),
        "weights": None if weights is None else torch.tensor(weights),
        "clamp": draw(st.sampled_from([-1.0, 0.1, 2.0])),
        "fastemit_lambda": draw(st.sampled_from([0.0, 0.1])),
    }
    sizes = st.sampled_from([1, 100, 2000, 2**24])
    return batch, options, draw(st.none() | sizes), draw(sizes)


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(problems())
def test_equals_float64(problem):
    batch, options, max_bytes, block_bytes = problem
    expected = value_and_gradients(apart, batch.as_leaves(torch.float64), **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joiner_rows, "BLOCK_BYTES", block_bytes)
        leaves = batch.as_leaves(torch.float32)
        actual = value_and_gradients(fused, leaves, max_bytes=max_bytes, **options)
    torch.testing.assert_close(actual[0].double(), expected[0].double(), rtol=1e-6, atol=2e-6)
    for result, truth in zip(actual[1], expected[1], strict=True):
        scale = max(1.0, float(truth.abs().max()))
        torch.testing.assert_close(result.double() / scale, truth / scale, rtol=0, atol=3e-6)
    assert len(relative_errors(actual[1], expected[1])) == len(batch.inputs())
