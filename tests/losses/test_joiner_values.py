"""joiner_rnnt_loss against the joiner and rnnt_loss apart, in float64: value and gradients."""

import math

import pytest
import torch

from asr_ascend.losses.joiner import rows as joiner_rows
from tests.support.joiner_batch import (
    CHUNK_BY_CHUNK,
    EACH_WAY,
    INPUTS,
    LENGTHS,
    SAMPLE_BY_SAMPLE,
    apart,
    fused,
    make_batch,
    relative_errors,
    value_and_gradients,
)

REDUCTIONS = ("none", "sum", "mean")
each_way = pytest.mark.parametrize("way", EACH_WAY, ids=("sample", "chunk"))
each_reduction = pytest.mark.parametrize("reduction", REDUCTIONS)
WEIGHTS = torch.tensor([0.5, 2.0, -1.0, 1.0])
# Of each sample of LENGTHS, none of which could keep to another's.
OWN_WINDOWS = torch.tensor(
    [
        [[0, 2], [2, 4], [3, 6], [7, 8], [9, 9]],
        [[9, 9]] * 5,
        [[0, 0], [0, 0], [0, 0], [9, 9], [9, 9]],
        [[0, 0], [0, 1], [1, 1], [1, 1], [9, 9]],
    ]
)


def assert_equal_to_float64(batch, tolerance=2e-6, upstream=1.0, way=SAMPLE_BY_SAMPLE, **options):
    """float32 against the same batch in float64, apart."""
    expected = value_and_gradients(apart, batch.as_leaves(torch.float64), upstream, **options)
    leaves = batch.as_leaves(torch.float32)
    actual = value_and_gradients(fused, leaves, upstream, **way, **options)
    torch.testing.assert_close(actual[0].double(), expected[0].double(), rtol=3e-7, atol=1e-6)
    assert max(relative_errors(actual[1], expected[1])) < tolerance


@each_way
@each_reduction
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("bias", [True, False], ids=("bias", "no_bias"))
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=("unweighted", "weighted"))
def test_equals_the_joiner_and_the_loss(way, reduction, activation, bias, weights):
    batch = make_batch(bias=bias)
    options = {"reduction": reduction, "activation": activation, "weights": weights}
    assert_equal_to_float64(batch, way=way, **options)


def test_a_value_written_down():
    """One frame, no label: the cost is -log softmax of blank. V = 2, H = 1."""
    given = [torch.tensor(x) for x in ([[[0.25]]], [[[0.5]]], [[2.0], [-1.0]], [0.0, 0.5])]
    leaves = [x.requires_grad_() for x in given]
    index = torch.zeros(1, 0, dtype=torch.int64), torch.tensor([1]), torch.tensor([0])
    loss = fused((*leaves, *index, 0))
    loss.backward()
    h = math.tanh(0.75)
    p1 = 1 / (1 + math.exp(2 * h - (0.5 - h)))  # softmax of (2 h, 0.5 - h) at 1
    assert loss.item() == pytest.approx(-math.log(1 - p1), rel=1e-6)
    encoder, predictor, weight, bias = (x.grad for x in leaves)
    assert bias.tolist() == pytest.approx([-p1, p1], rel=1e-5)
    assert weight.flatten().tolist() == pytest.approx([-p1 * h, p1 * h], rel=1e-5)
    assert encoder.item() == pytest.approx((-2 * p1 - p1) * (1 - h * h), rel=1e-5)
    assert predictor.item() == encoder.item()


@each_way
@pytest.mark.parametrize(
    "options",
    [
        {"clamp": 0.05},
        {"fastemit_lambda": 0.3},
        {"clamp": 0.05, "fastemit_lambda": 0.3},
        {"backend": "reference"},
    ],
    ids=str,
)
@pytest.mark.parametrize("reduction", ["none", "sum"])
def test_options_of_the_loss(way, options, reduction):
    assert_equal_to_float64(make_batch(), way=way, reduction=reduction, **options)


@each_way
@pytest.mark.parametrize("reduction", ["none", "sum"])
def test_emission_windows(way, reduction):
    batch = make_batch(lengths=((9, 4), (5, 0), (6, 3)))
    first = torch.arange(batch.targets.shape[1])
    windows = torch.stack([first, first + 4], -1).expand(3, -1, -1)
    options = {"emission_windows": windows, "reduction": reduction}
    assert_equal_to_float64(batch, way=way, **options)
    assert fused(batch, **way, **options).sum() > fused(batch, **way, reduction=reduction).sum()


@each_way
@pytest.mark.parametrize("blank", [0, 1, 5, 10, -1, -11])
def test_blank_anywhere(way, blank):
    assert_equal_to_float64(make_batch(blank=blank), way=way)


@each_way
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("lengths", [((1, 0),), ((1, 5),), ((7, 0), (1, 0))])
def test_smallest_lattices(way, lengths, width):
    assert_equal_to_float64(make_batch(lengths, vocab=7, width=width), way=way)


@each_way
def test_peaky_rows(way):
    """Costs near zero and gradients that underflow, as on a trained model."""
    batch = make_batch(scale=4.0)
    assert_equal_to_float64(batch, way=way, reduction="sum", tolerance=5e-6)


@each_way
def test_int32_lengths_of_some_device_layout(way):
    batch = make_batch()
    changed = batch._replace(
        targets=batch.targets.int().T.contiguous().T,
        logit_lengths=batch.logit_lengths.int(),
        target_lengths=batch.target_lengths.int(),
        encoder_out=batch.encoder_out.transpose(1, 2).contiguous().transpose(1, 2),
    )
    expected = value_and_gradients(fused, batch.as_leaves(torch.float32), **way)
    actual = value_and_gradients(fused, changed.as_leaves(torch.float32), **way)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@each_way
def test_padding_is_never_read(way):
    batch = make_batch()
    expected = value_and_gradients(fused, batch.as_leaves(torch.float32), **way)
    for b, (frames, labels) in enumerate(LENGTHS):
        batch.encoder_out[b, frames:] = math.nan
        batch.predictor_out[b, labels + 1 :] = math.nan
        batch.targets[b, labels:] = -7
    actual = value_and_gradients(fused, batch.as_leaves(torch.float32), **way)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    for b, (frames, labels) in enumerate(LENGTHS):
        assert not actual[1][0][b, frames:].any()
        assert not actual[1][1][b, labels + 1 :].any()


class TestSeveralBlocks:
    """Groups, blocks and chunks much smaller than in use, so that all their borders are met."""

    @pytest.mark.parametrize("block_bytes", [1, 11 * 4 * 7, 11 * 4 * 60])
    @each_way
    @each_reduction
    def test_same_result(self, monkeypatch, block_bytes, way, reduction):
        monkeypatch.setattr(joiner_rows, "BLOCK_BYTES", block_bytes)
        way = way if way is SAMPLE_BY_SAMPLE else {"max_bytes": block_bytes}
        batch = make_batch()
        assert_equal_to_float64(batch, way=way, reduction=reduction, weights=WEIGHTS)
        assert_equal_to_float64(batch, way=way, reduction=reduction)
        windows = {"emission_windows": OWN_WINDOWS, "reduction": reduction}
        assert_equal_to_float64(batch, way=way, **windows)


class TestHalf:
    """Judged by the error that plain torch makes in the same dtype."""

    @each_way
    @each_reduction
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("activation", ["tanh", "relu"])
    def test_no_worse_than_apart(self, way, reduction, dtype, activation):
        batch = make_batch(lengths=((40, 12), (25, 9), (1, 3)), vocab=40, width=16, scale=0.5)
        exact = batch.as_leaves(dtype).as_leaves(torch.float64)
        options = {"reduction": reduction, "activation": activation}
        expected = value_and_gradients(apart, exact, **options)
        naive = value_and_gradients(apart, batch.as_leaves(dtype), **options)
        actual = value_and_gradients(fused, batch.as_leaves(dtype), **way, **options)
        assert [g.dtype for g in actual[1]] == [dtype] * 4
        assert actual[0].dtype == torch.float32
        torch.testing.assert_close(actual[0], naive[0], rtol=1e-6, atol=1e-5)
        eps = torch.finfo(dtype).eps
        pairs = zip(
            relative_errors(actual[1], expected[1]),
            relative_errors(naive[1], expected[1]),
            strict=True,
        )
        assert all(error <= plain + eps for error, plain in pairs)

    @each_way
    def test_loss_scaling_in_float16(self, way):
        """Upstream 65536 neither overflows nor loses what float16 can hold."""
        batch = make_batch(lengths=((30, 8), (20, 5)), vocab=30, width=12, scale=0.3)
        small = batch._replace(weight=batch.weight * 1e-3)
        exact = small.as_leaves(torch.float16).as_leaves(torch.float64)
        scale, divisor = 65536.0, 2.0**12
        expected = value_and_gradients(apart, exact, scale / divisor)
        actual = value_and_gradients(fused, small.as_leaves(torch.float16), scale / divisor, **way)
        # encoder and predictor get gradients of about 1e-4, which are subnormal before scaling
        assert max(relative_errors(actual[1][:2], expected[1][:2])) < 4e-3

    @each_way
    def test_a_gradient_too_large_for_float16_is_inf_as_it_is_apart(self, way):
        leaves = make_batch().as_leaves(torch.float16)
        _, gradients = value_and_gradients(fused, leaves, 1e6, reduction="sum", **way)
        assert all(gradient.isinf().any() for gradient in gradients)
        assert not any(gradient.isnan().any() for gradient in gradients)

    @each_way
    @pytest.mark.parametrize("logits_dtype", [torch.bfloat16, torch.float16, torch.float64])
    def test_logits_of_another_dtype(self, way, logits_dtype):
        batch = make_batch(lengths=((20, 6), (9, 4)), vocab=30)
        options = {"logits_dtype": logits_dtype}
        naive = value_and_gradients(apart, batch.as_leaves(torch.float32), **options)
        actual = value_and_gradients(fused, batch.as_leaves(torch.float32), **way, **options)
        assert actual[0].dtype == naive[0].dtype
        torch.testing.assert_close(actual[0], naive[0], rtol=1e-6, atol=1e-6)
        eps = max(2e-6, torch.finfo(logits_dtype).eps)
        assert max(relative_errors(actual[1], naive[1])) < 2 * eps


class TestAutocast:
    @each_way
    @each_reduction
    @pytest.mark.parametrize("mixed", [False, True])
    def test_product_in_bfloat16_gradients_in_float32(self, way, reduction, mixed):
        batch = make_batch(lengths=((40, 12), (25, 9)), vocab=40, width=16, scale=0.5)

        def under_autocast(loss):
            def call(batch, **options):
                if mixed:  # as where the encoder's last layer is a product, the predictor's not
                    batch = batch._replace(encoder_out=batch.encoder_out.bfloat16())
                with torch.autocast("cpu", torch.bfloat16):
                    return loss(batch, **options)

            return call

        options = {"reduction": reduction}
        expected = value_and_gradients(apart, batch.as_leaves(torch.float64), **options)
        naive = value_and_gradients(
            under_autocast(apart), batch.as_leaves(torch.float32), **options
        )
        actual = value_and_gradients(
            under_autocast(fused), batch.as_leaves(torch.float32), **way, **options
        )
        assert [g.dtype for g in actual[1]] == [torch.float32] * 4
        torch.testing.assert_close(actual[0], naive[0], rtol=1e-6, atol=1e-5)
        pairs = zip(
            relative_errors(actual[1], expected[1]),
            relative_errors(naive[1], expected[1]),
            strict=True,
        )
        assert all(error <= plain + 2**-8 for error, plain in pairs)

    @each_way
    def test_float64_stays(self, way):
        batch = make_batch()
        expected = value_and_gradients(fused, batch.as_leaves(torch.float64), **way)
        with torch.autocast("cpu", torch.bfloat16):
            actual = value_and_gradients(fused, batch.as_leaves(torch.float64), **way)
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)

    @each_way
    def test_backward_inside_of_autocast(self, way):
        batch = make_batch()
        with torch.autocast("cpu", torch.bfloat16):
            inside = value_and_gradients(fused, batch.as_leaves(torch.float32), **way)
            loss = fused(leaves := batch.as_leaves(torch.float32), **way)
        loss.backward(batch.upstream(loss))
        outside = [leaf.grad for leaf in leaves.inputs()]
        torch.testing.assert_close(inside[1], outside, rtol=0, atol=0)


class TestHostile:
    @each_way
    @pytest.mark.parametrize("poison", [math.nan, math.inf])
    def test_a_bad_sample_touches_only_its_own(self, way, poison):
        batch = make_batch()
        options = {"reduction": "none", **way}
        _, clean = value_and_gradients(fused, batch.as_leaves(torch.float32), **options)
        clean_costs = fused(batch, **options)
        batch.predictor_out[2] = poison  # tanh of inf is 1, so its logits stay finite
        batch.predictor_out[2, 1, 3] = math.nan
        costs, gradients = value_and_gradients(fused, batch.as_leaves(torch.float32), **options)
        others = [0, 1, 3]
        assert costs.isnan().tolist() == [False, False, True, False]
        torch.testing.assert_close(costs[others], clean_costs[others], rtol=0, atol=0)
        for actual, expected in zip(gradients[:2], clean[:2], strict=True):
            torch.testing.assert_close(actual[others], expected[others], rtol=0, atol=0)
            assert actual[2].isnan().any()

    @each_way
    @each_reduction
    def test_weight_zero_leaves_a_sample_out_even_with_nan(self, way, reduction):
        batch = make_batch()
        weights = torch.tensor([1.0, 1.0, 0.0, 0.5])
        options = {"reduction": reduction, "weights": weights, **way}
        expected = value_and_gradients(fused, batch.as_leaves(torch.float32), **options)
        batch.encoder_out[2] = math.nan
        actual = value_and_gradients(fused, batch.as_leaves(torch.float32), **options)
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
        assert not actual[1][0][2].any()

    @each_way
    def test_an_impossible_sample_costs_inf_and_has_no_gradient(self, way):
        batch = make_batch(lengths=((3, 2), (4, 1)))
        windows = torch.zeros(2, batch.targets.shape[1], 2, dtype=torch.int64)
        windows[..., 1] = 9
        windows[0] = -1
        leaves = batch.as_leaves(torch.float32)
        options = {"emission_windows": windows, "reduction": "none", **way}
        costs, gradients = value_and_gradients(fused, leaves, **options)
        assert costs.isinf().tolist() == [True, False]
        assert not gradients[0][0].any()
        assert gradients[0][1].any()

    @each_way
    @each_reduction
    def test_empty_batch(self, way, reduction):
        batch = make_batch()._replace(
            encoder_out=torch.zeros(0, 3, 6),
            predictor_out=torch.zeros(0, 2, 6),
            targets=torch.zeros(0, 1, dtype=torch.int64),
            logit_lengths=torch.zeros(0, dtype=torch.int64),
            target_lengths=torch.zeros(0, dtype=torch.int64),
        )
        value, gradients = value_and_gradients(
            fused, batch.as_leaves(torch.float32), reduction=reduction, **way
        )
        expected = {
            "none": torch.zeros(0),
            "sum": torch.tensor(0.0),
            "mean": torch.tensor(math.nan),
        }
        torch.testing.assert_close(value, expected[reduction], equal_nan=True)
        assert [tuple(g.shape) for g in gradients] == [(0, 3, 6), (0, 2, 6), (11, 6), (11,)]
        assert not any(g.any() for g in gradients)


@each_way
@pytest.mark.parametrize("margin", [20.0, 30.0])
def test_no_cost_is_negative(way, margin):
    """Nearly all goes into one path, and what is left into others that end as surely."""
    batch = make_batch(lengths=((40, 1),), vocab=5, width=2, bias=False, extra=(0, 0))
    weight = torch.zeros(5, 2)
    weight[batch.targets[0, 0], 0] = margin
    weight[batch.blank, 1] = margin
    batch = batch._replace(
        encoder_out=torch.zeros(1, 40, 2), predictor_out=torch.eye(2)[None], weight=weight
    )
    for leaves in (batch, batch.as_leaves(torch.float32)):
        cost = fused(leaves, activation="relu", reduction="none", **way)
        assert 0.0 <= cost.item() < 1e-5


def test_gradcheck_of_both_ways():
    batch = make_batch(lengths=((3, 2), (2, 0)), vocab=5, width=3).as_leaves(torch.float64)
    for way in (SAMPLE_BY_SAMPLE, CHUNK_BY_CHUNK):

        def loss(*inputs, way=way):
            return fused((*inputs, *batch[4:]), reduction="sum", **way)

        assert torch.autograd.gradcheck(loss, batch[: len(INPUTS)])
