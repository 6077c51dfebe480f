import math

import pytest
import torch

from asr_ascend.losses import pack_logits, unpack_logits
from asr_ascend.losses.layout import (
    lattice_mask,
    padded_size,
    row_offsets,
    sample_lattices,
)

# Two samples: T = 2, U = 1 (4 rows) and T = 3, U = 0 (3 rows).
LOGIT_LENGTHS = torch.tensor([2, 3])
TARGET_LENGTHS = torch.tensor([1, 0])
# Value of a padded cell: 100 b + 10 t + u.
CELLS = torch.tensor([[[0, 1], [10, 11], [20, 21]], [[100, 101], [110, 111], [120, 121]]])
PACKED_CELLS = [0, 1, 10, 11, 100, 110, 120]


def with_vocab(cells, vocab_size=3):
    return cells[..., None] + torch.arange(vocab_size) / 10


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_row_offsets(dtype):
    offsets = row_offsets(LOGIT_LENGTHS.to(dtype), TARGET_LENGTHS.to(dtype))
    assert offsets.dtype == torch.int64
    assert offsets.tolist() == [0, 4, 7]


def test_row_offsets_pass_2_to_the_31():
    lengths = torch.full((3,), 2**20, dtype=torch.int32)
    columns = torch.full((3,), 2**11 - 1, dtype=torch.int32)
    assert row_offsets(lengths, columns).tolist() == [0, 2**31, 2**32, 3 * 2**31]


def test_row_offsets_of_no_sample():
    none = torch.zeros(0, dtype=torch.int64)
    assert row_offsets(none, none).tolist() == [0]
    assert padded_size(none, none) == (0, 1)


def test_lattice_mask_and_padded_size():
    assert padded_size(LOGIT_LENGTHS, TARGET_LENGTHS) == (3, 2)
    mask = lattice_mask(LOGIT_LENGTHS, TARGET_LENGTHS, 3, 2)
    assert mask.tolist() == [
        [[True, True], [True, True], [False, False]],
        [[True, False], [True, False], [True, False]],
    ]


def test_sample_lattices_are_views_of_packed_and_padded():
    padded = with_vocab(CELLS)
    packed = pack_logits(padded, LOGIT_LENGTHS, TARGET_LENGTHS)
    expected = [padded[0, :2, :2], padded[1, :3, :1]]
    for logits in (packed, padded):
        lattices = list(sample_lattices(logits, LOGIT_LENGTHS, TARGET_LENGTHS))
        assert all(torch.equal(a, b) for a, b in zip(lattices, expected, strict=True))
        storage = logits.untyped_storage().data_ptr()
        assert all(lattice.untyped_storage().data_ptr() == storage for lattice in lattices)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_pack_takes_the_rows_of_the_lattices_in_order(dtype):
    packed = pack_logits(with_vocab(CELLS), LOGIT_LENGTHS.to(dtype), TARGET_LENGTHS.to(dtype))
    assert torch.equal(packed, with_vocab(torch.tensor(PACKED_CELLS)))


def test_pack_skips_padding_and_gives_it_no_gradient():
    padded = with_vocab(CELLS)
    mask = lattice_mask(LOGIT_LENGTHS, TARGET_LENGTHS, 3, 2)
    padded[~mask] = math.nan
    padded.requires_grad_()
    packed = pack_logits(padded, LOGIT_LENGTHS, TARGET_LENGTHS)
    assert not packed.isnan().any()
    (packed * 2).sum().backward()
    assert torch.equal(padded.grad, mask[..., None].expand(-1, -1, -1, 3) * 2.0)


def test_unpack_fills_the_padding():
    packed = with_vocab(torch.tensor(PACKED_CELLS))
    padded = unpack_logits(packed, LOGIT_LENGTHS, TARGET_LENGTHS, fill_value=-5.0)
    mask = lattice_mask(LOGIT_LENGTHS, TARGET_LENGTHS, 3, 2)
    assert torch.equal(padded, with_vocab(CELLS).masked_fill(~mask[..., None], -5.0))
    assert torch.equal(
        unpack_logits(packed, LOGIT_LENGTHS, TARGET_LENGTHS)[0, 2], torch.zeros(2, 3)
    )


def test_unpack_is_the_inverse_of_pack_and_its_gradient_too():
    packed = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)

    def round_trip(rows):
        padded = unpack_logits(rows, LOGIT_LENGTHS, TARGET_LENGTHS, fill_value=9.0)
        return pack_logits(padded, LOGIT_LENGTHS, TARGET_LENGTHS)

    assert torch.equal(round_trip(packed), packed)
    assert torch.autograd.gradcheck(round_trip, packed)
    assert torch.autograd.gradgradcheck(round_trip, packed)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_pack_and_unpack_keep_the_dtype(dtype):
    packed = pack_logits(with_vocab(CELLS).to(dtype), LOGIT_LENGTHS, TARGET_LENGTHS)
    assert packed.dtype == dtype
    assert unpack_logits(packed, LOGIT_LENGTHS, TARGET_LENGTHS).dtype == dtype


def test_pack_and_unpack_of_no_sample():
    none = torch.zeros(0, dtype=torch.int64)
    packed = pack_logits(torch.zeros(0, 4, 2, 3), none, none)
    assert packed.shape == (0, 3)
    assert unpack_logits(packed, none, none).shape == (0, 0, 1, 3)
