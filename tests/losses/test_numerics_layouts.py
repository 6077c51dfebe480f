"""Packed and padded, strides, index types, padding, reuse: the layout never changes the answer."""

from __future__ import annotations

import mmap

import pytest
import torch

from asr_ascend.losses import (
    RNNTLoss,
    pack_logits,
    rnnt_loss,
    rnnt_loss_and_grad,
    unpack_logits,
)
from asr_ascend.losses.layout import row_offsets
from tests.support import oracles

LENGTHS = [(9, 4), (5, 7), (1, 0), (7, 2)]


def a_case(dtype: torch.dtype = torch.float32, vocab: int = 21) -> oracles.Case:
    return oracles.make_case(LENGTHS, vocab, blank=3, dtype=dtype)


@oracles.each_backend
@oracles.each_dtype
@pytest.mark.parametrize(
    "options", [{}, {"clamp": 0.1}, {"reduction": "mean"}, {"fused_log_softmax": False}]
)
def test_packed_equals_padded_bit_for_bit(options: dict, dtype: torch.dtype, backend: str) -> None:
    case = a_case(dtype)
    if "fused_log_softmax" in options:
        case = case.with_logits(case.logits.log_softmax(-1))
    packed_costs, packed_gradient = oracles.run(case, backend, **options)
    padded_costs, padded_gradient = oracles.run(
        case, backend, padded=case.padded_logits(), **options
    )
    oracles.assert_same_bits(padded_costs, packed_costs)
    oracles.assert_same_bits(case.take_packed(padded_gradient), packed_gradient)


@oracles.each_backend
@oracles.each_dtype
@pytest.mark.parametrize("reuse_logits", [False, True])
@pytest.mark.parametrize("fill", [float("nan"), float("inf"), -float("inf"), 0.0])
def test_padding_changes_nothing_and_gets_zero_gradient(
    fill: float, reuse_logits: bool, dtype: torch.dtype, backend: str
) -> None:
    case = a_case(dtype)
    packed_costs, packed_gradient = oracles.run(case, backend)
    # Two frames and one column more than any sample needs: logit_lengths.max() < T.
    padded = case.padded_logits(fill, extra_frames=2, extra_columns=1)
    costs, gradient = oracles.run(case, backend, padded=padded, reuse_logits=reuse_logits)
    oracles.assert_same_bits(costs, packed_costs)
    oracles.assert_same_bits(case.take_packed(gradient), packed_gradient)
    outside = case.outside_lattice(gradient)
    assert outside.numel() > 0
    oracles.assert_same_bits(outside, torch.zeros_like(outside))


@oracles.each_backend
def test_padding_gets_zero_gradient_for_a_negative_upstream_too(backend: str) -> None:
    case = a_case()
    padded = case.padded_logits(float("nan"), extra_frames=1)
    _, gradient = oracles.run(case, backend, padded=padded, upstream=torch.full((4,), -2.0))
    assert (case.outside_lattice(gradient) == 0).all()


@oracles.each_backend
@pytest.mark.parametrize("value", [0, -1, 3, 21, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_targets_beyond_their_length_are_not_read(
    index_dtype: torch.dtype, value: int, backend: str
) -> None:
    case = a_case()
    costs, gradient = oracles.run(case, backend)
    targets = torch.full((4, 9), value, dtype=index_dtype)
    for b, (_, _, labels, own) in enumerate(case.samples()):
        targets[b, :labels] = torch.tensor(own)
    padded_case = oracles.Case(
        case.logits, targets, case.logit_lengths, case.target_lengths, case.blank
    )
    padded_costs, padded_gradient = oracles.run(padded_case, backend)
    oracles.assert_same_bits(padded_costs, costs)
    oracles.assert_same_bits(padded_gradient, gradient)


@oracles.each_backend
def test_targets_may_have_no_columns_when_no_sample_has_labels(backend: str) -> None:
    case = oracles.make_case([(3, 0), (2, 0)], 4)
    assert case.targets.shape == (2, 0)
    costs, _ = oracles.run(case, backend)
    exact_costs, _ = oracles.exact(case)
    oracles.assert_costs(costs, exact_costs, torch.float32)


@oracles.each_backend
@pytest.mark.parametrize("padded", [False, True])
def test_int32_equals_int64(padded: bool, backend: str) -> None:
    case = a_case()
    logits = case.padded_logits() if padded else None
    costs, gradient = oracles.run(case, backend, padded=logits)
    for targets, frames, labels in [
        (torch.int32, torch.int32, torch.int32),
        (torch.int32, torch.int64, torch.int64),
        (torch.int64, torch.int32, torch.int64),
    ]:
        other = oracles.Case(
            case.logits,
            case.targets.to(targets),
            case.logit_lengths.to(frames),
            case.target_lengths.to(labels),
            case.blank,
        )
        other_costs, other_gradient = oracles.run(other, backend, padded=logits)
        oracles.assert_same_bits(other_costs, costs)
        oracles.assert_same_bits(other_gradient, gradient)


def strided_views(padded: torch.Tensor) -> dict[str, torch.Tensor]:
    """Views with the values of `padded` that are no contiguous tensor of their own."""
    batch, frames, columns, vocab = padded.shape
    junk = float("nan")
    larger = padded.new_full((batch, frames + 3, columns + 2, vocab + 5), junk)
    larger[:, 1 : frames + 1, 2:, 3 : vocab + 3] = padded
    every_other = padded.new_full((2 * batch, 2 * frames, 3 * columns, vocab), junk)
    every_other[::2, 1::2, ::3] = padded
    transposed = padded.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)
    vocab_strided = padded.transpose(1, 3).contiguous().transpose(1, 3)
    return {
        "slice": larger[:, 1 : frames + 1, 2:, 3 : vocab + 3],
        "steps": every_other[::2, 1::2, ::3],
        "transposed": transposed,
        "vocab_strided": vocab_strided,
    }


@oracles.each_backend
@oracles.each_dtype
@pytest.mark.parametrize("view", ["slice", "steps", "transposed", "vocab_strided"])
def test_strided_padded_logits(view: str, dtype: torch.dtype, backend: str) -> None:
    case = a_case(dtype)
    padded = case.padded_logits()
    costs, gradient = oracles.run(case, backend, padded=padded)
    strided = strided_views(padded)[view].detach()
    assert torch.equal(strided, padded) and not strided.is_contiguous()
    arguments = (case.targets, case.logit_lengths, case.target_lengths, case.blank)
    leaf = strided.requires_grad_()
    strided_costs = rnnt_loss(leaf, *arguments, reduction="none", backend=backend)
    strided_costs.sum().backward()
    oracles.assert_same_bits(strided_costs, costs)
    oracles.assert_same_bits(leaf.grad, gradient)


@oracles.each_backend
@pytest.mark.parametrize("view", ["rows", "columns"])
def test_strided_packed_logits(view: str, backend: str) -> None:
    case = a_case()
    costs, gradient = oracles.run(case, backend)
    rows, vocab = case.logits.shape
    if view == "rows":
        larger = torch.full((2 * rows, vocab), float("nan"))
        strided = larger[::2]
    else:
        strided = torch.full((rows, vocab + 7), float("nan"))[:, 4 : vocab + 4]
    strided.copy_(case.logits)
    leaf = strided.requires_grad_()
    arguments = (case.targets, case.logit_lengths, case.target_lengths, case.blank)
    strided_costs = rnnt_loss(leaf, *arguments, reduction="none", backend=backend)
    strided_costs.sum().backward()
    oracles.assert_same_bits(strided_costs, costs)
    oracles.assert_same_bits(leaf.grad, gradient)


@oracles.each_backend
def test_strided_targets_and_lengths(backend: str) -> None:
    case = a_case()
    costs, gradient = oracles.run(case, backend)
    other = oracles.Case(
        case.logits,
        case.targets.t().contiguous().t(),
        torch.stack([case.logit_lengths, torch.full((4,), -7)], 1)[:, 0],
        torch.stack([torch.full((4,), 99), case.target_lengths], 1)[:, 1],
        case.blank,
    )
    assert not other.targets.is_contiguous() and not other.logit_lengths.is_contiguous()
    other_costs, other_gradient = oracles.run(other, backend)
    oracles.assert_same_bits(other_costs, costs)
    oracles.assert_same_bits(other_gradient, gradient)


@pytest.mark.parametrize("dtype", oracles.ALL_DTYPES)
def test_pack_and_unpack_move_the_values_and_nothing_else(dtype: torch.dtype) -> None:
    case = a_case(dtype)
    lengths = (case.logit_lengths, case.target_lengths)
    padded = case.padded_logits(float("nan"), extra_frames=2, extra_columns=1)
    assert torch.equal(pack_logits(padded, *lengths), case.logits)
    assert torch.equal(unpack_logits(case.logits, *lengths), case.padded_logits(0.0))
    filled = unpack_logits(case.logits, *lengths, fill_value=-4.0)
    assert torch.equal(filled, case.padded_logits(-4.0))


def test_gradients_of_pack_and_unpack() -> None:
    case = a_case()
    lengths = (case.logit_lengths, case.target_lengths)
    padded = case.padded_logits(float("nan"), extra_frames=2).requires_grad_()
    upstream = torch.randn(case.logits.shape)
    pack_logits(padded, *lengths).backward(upstream)
    assert torch.equal(case.take_packed(padded.grad), upstream)
    assert (case.outside_lattice(padded.grad) == 0).all()

    packed = case.logits.clone().requires_grad_()
    weights = torch.randn(case.padded_logits().shape)
    (unpack_logits(packed, *lengths) * weights).sum().backward()
    assert torch.equal(packed.grad, case.take_packed(weights))


@oracles.each_backend
@oracles.each_dtype
@pytest.mark.parametrize("padded", [False, True])
def test_reuse_logits_equals_no_reuse_and_lives_in_the_logits(
    padded: bool, dtype: torch.dtype, backend: str
) -> None:
    case = a_case(dtype)
    values = case.padded_logits(float("nan")) if padded else case.logits
    arguments = (case.targets, case.logit_lengths, case.target_lengths, case.blank)
    upstream = torch.tensor([1.0, -2.0, 0.0, 0.5])
    costs, gradient = oracles.run(case, backend, padded=values, upstream=upstream)

    leaf = values.clone().requires_grad_()
    logits = leaf * 1
    where = logits.data_ptr()
    arrived = []
    logits.register_hook(arrived.append)
    reused_costs = rnnt_loss(
        logits, *arguments, reduction="none", reuse_logits=True, backend=backend
    )
    reused_costs.backward(upstream.to(reused_costs.dtype))
    oracles.assert_same_bits(reused_costs, costs)
    oracles.assert_same_bits(leaf.grad, gradient)
    assert len(arrived) == 1
    # The reference overwrites nothing.
    assert (arrived[0].data_ptr() == where) == (backend == "cpu")


@oracles.each_dtype
@pytest.mark.parametrize("view", ["slice", "steps", "transposed"])
def test_reuse_of_a_strided_view_leaves_the_rest_of_its_buffer_alone(
    view: str, dtype: torch.dtype
) -> None:
    case = a_case(dtype)
    padded = case.padded_logits()
    arguments = (case.targets, case.logit_lengths, case.target_lengths, case.blank)
    costs, gradient = rnnt_loss_and_grad(padded, *arguments, backend="cpu")
    strided = strided_views(padded)[view]
    buffer = strided.as_strided((strided.untyped_storage().nbytes() // strided.itemsize,), (1,), 0)
    outside = torch.ones(buffer.shape, dtype=torch.bool)
    outside.as_strided(strided.shape, strided.stride(), strided.storage_offset()).fill_(False)
    before = buffer[outside].clone()
    reused_costs, reused = rnnt_loss_and_grad(strided, *arguments, reuse_logits=True, backend="cpu")
    assert reused.data_ptr() == strided.data_ptr()
    oracles.assert_same_bits(reused_costs, costs)
    oracles.assert_same_bits(strided, gradient)
    oracles.assert_same_bits(buffer[outside], before)


@oracles.each_backend
@oracles.each_dtype
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("reuse_logits", [False, True])
@pytest.mark.parametrize("options", [{}, {"clamp": 0.1}, {"fused_log_softmax": False}])
def test_loss_and_grad_in_one_call_equals_autograd(
    options: dict, reuse_logits: bool, padded: bool, dtype: torch.dtype, backend: str
) -> None:
    case = a_case(dtype)
    if "fused_log_softmax" in options:
        case = case.with_logits(case.logits.log_softmax(-1))
    values = case.padded_logits(float("nan")) if padded else case.logits
    costs, gradient = oracles.run(case, backend, padded=values, **options)
    logits = values.clone()
    direct_costs, direct_gradient = rnnt_loss_and_grad(
        logits,
        case.targets,
        case.logit_lengths,
        case.target_lengths,
        blank=case.blank,
        backend=backend,
        reuse_logits=reuse_logits,
        **options,
    )
    oracles.assert_same_bits(direct_costs, costs)
    oracles.assert_same_bits(direct_gradient, gradient)
    assert (direct_gradient.data_ptr() == logits.data_ptr()) == reuse_logits
    if not reuse_logits:
        oracles.assert_same_bits(logits, values)


@oracles.each_backend
def test_the_module_equals_the_function(backend: str) -> None:
    case = a_case()
    arguments = (case.targets, case.logit_lengths, case.target_lengths)
    for options in (
        {"blank": 3},
        {"blank": 3, "clamp": 0.2, "reduction": "sum"},
        {"blank": 3, "reduction": "none", "fused_log_softmax": False},
    ):
        logits = case.logits.log_softmax(-1)
        module = RNNTLoss(**options, backend=backend)
        expected = rnnt_loss(logits, *arguments, **options, backend=backend)
        oracles.assert_same_bits(module(logits, *arguments), expected)


@oracles.each_backend
def test_the_default_backend_and_no_gradient_give_the_same_cost(backend: str) -> None:
    case = a_case()
    arguments = (case.logits, case.targets, case.logit_lengths, case.target_lengths, case.blank)
    with_gradient, _ = oracles.run(case, backend)
    # A call that needs no gradient computes alpha alone.
    alone = rnnt_loss(*arguments, reduction="none", backend=backend)
    assert not alone.requires_grad
    torch.testing.assert_close(alone, with_gradient, rtol=2e-7, atol=0)
    default = rnnt_loss(*arguments, reduction="none")
    torch.testing.assert_close(default, with_gradient, rtol=1e-6, atol=0)


@oracles.each_backend
def test_twenty_calls_on_one_input_give_the_same_bits(backend: str) -> None:
    case = a_case()
    costs, gradient = oracles.run(case, backend)
    for _ in range(19):
        again_costs, again_gradient = oracles.run(case, backend)
        oracles.assert_same_bits(again_costs, costs)
        oracles.assert_same_bits(again_gradient, gradient)


@oracles.each_backend
def test_a_sample_does_not_depend_on_its_neighbours(backend: str) -> None:
    case = a_case()
    costs, gradient = oracles.run(case, backend)
    for b, (rows, frames, labels, targets) in enumerate(case.samples()):
        alone = oracles.Case(
            case.logits[rows],
            torch.tensor([targets], dtype=torch.int64).reshape(1, labels),
            torch.tensor([frames]),
            torch.tensor([labels]),
            case.blank,
        )
        own_costs, own_gradient = oracles.run(alone, backend)
        if backend == "cpu":
            oracles.assert_same_bits(own_costs, costs[b : b + 1])
            oracles.assert_same_bits(own_gradient, gradient[rows])
        else:
            torch.testing.assert_close(own_costs, costs[b : b + 1], rtol=2e-7, atol=0)
            torch.testing.assert_close(own_gradient, gradient[rows], rtol=0, atol=1e-6)


# Addressing beyond 2**31 elements, without that much memory.


def test_row_offsets_beyond_32_bits() -> None:
    frames = torch.tensor([60_000, 50_000, 1, 2**31 - 1], dtype=torch.int32)
    labels = torch.tensor([49_999, 60_000, 0, 2**31 - 1], dtype=torch.int32)
    expected = [0, 3_000_000_000, 6_000_050_000, 6_000_050_001]
    expected.append(expected[-1] + (2**31 - 1) * 2**31)
    for dtype in (torch.int32, torch.int64):
        offsets = row_offsets(frames.to(dtype), labels.to(dtype))
        assert offsets.dtype == torch.int64
        assert offsets.tolist() == expected


def sparse_storage(elements: int) -> torch.Tensor:
    """float16 elements in an anonymous mapping, of which only touched pages take memory."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    return torch.frombuffer(mmap.mmap(-1, 2 * elements, flags=flags), dtype=torch.float16)


@oracles.each_backend
@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_padded_cells_beyond_2_to_the_31_elements(dimension: int, backend: str) -> None:
    """One stride so long that the second half of that dimension lies past 2**31 elements."""
    case = oracles.make_case([(4, 3), (4, 3)], 9, blank=2, dtype=torch.float16)
    padded = case.padded_logits()
    strides = list(padded.stride())
    steps = padded.shape[dimension] - 1
    strides[dimension] = 2**31 // steps + 64
    span = 1 + sum((n - 1) * s for n, s in zip(padded.shape, strides, strict=True))
    assert span > 2**31
    far = sparse_storage(span).as_strided(padded.shape, strides)
    far.copy_(padded)
    arguments = (case.targets, case.logit_lengths, case.target_lengths, case.blank)
    costs, gradient = rnnt_loss_and_grad(far, *arguments, backend=backend)
    near_costs, near_gradient = rnnt_loss_and_grad(padded, *arguments, backend=backend)
    oracles.assert_same_bits(costs, near_costs)
    oracles.assert_same_bits(gradient, near_gradient)


@oracles.each_backend
def test_packed_rows_beyond_2_to_the_31_elements(backend: str) -> None:
    case = oracles.make_case([(3, 1), (2, 2)], 9, blank=2, dtype=torch.float16)
    rows, vocab = case.logits.shape
    stride = 2**31 // (rows - 3)
    far = sparse_storage((rows - 1) * stride + vocab).as_strided((rows, vocab), (stride, 1))
    far.copy_(case.logits)
    arguments = (case.targets, case.logit_lengths, case.target_lengths, case.blank)
    costs, gradient = rnnt_loss_and_grad(far, *arguments, backend=backend)
    near_costs, near_gradient = rnnt_loss_and_grad(case.logits, *arguments, backend=backend)
    oracles.assert_same_bits(costs, near_costs)
    oracles.assert_same_bits(gradient, near_gradient)
