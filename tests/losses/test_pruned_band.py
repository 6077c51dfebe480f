"""The band of pruned RNN-T: its windows by definition, its rules, and the pruned loss."""

import itertools

import pytest
import torch

from asr_ascend.losses import (
    joiner_rnnt_loss,
    pruned_band,
    rnnt_loss,
    simple_rnnt_loss,
    values,
)
from tests.support.simple_batch import BLANK, V, make_batch


def occupancies_of(batch):
    return simple_rnnt_loss(*batch, reduction="none", return_occupancies=True)[1]


def windows_by_definition(blank, label, frames, labels, S):
    """First columns (T_b,) of one sample, written out in the order of the docstring."""
    highest = max(0, labels - S + 1)
    first = []
    for t in range(frames):
        score = [
            float(blank[t, s : min(s + S, labels + 1)].sum() - (label[t, s - 1] if s else 0.0))
            for s in range(highest + 1)
        ]
        first.append(score.index(max(score)) if t + 1 < frames else highest)
    for t in reversed(range(frames - 1)):  # never falls
        first[t] = min(first[t], first[t + 1])
    for t in range(frames):  # a step of S - 1 at most, from column 0 on
        needed = max(first[k] - (S - 1) * (k - t) for k in range(t, frames))
        first[t] = min(needed, (S - 1) * t)
    return first


@pytest.mark.parametrize("S", [2, 3, 5, 20])
@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_windows_are_those_of_the_definition(scale, S):
    lengths = [(9, 8), (20, 5), (4, 0), (1, 1), (30, 22)]
    for seed in range(4):
        batch = make_batch(lengths, seed, scale)
        occupancies = occupancies_of(batch)
        band = pruned_band(occupancies, *batch[3:5], symbols_per_frame=S)
        assert band.shape == (5, 30, 2) and band.dtype == torch.int64
        for b, (frames, labels) in enumerate(lengths):
            first = windows_by_definition(*(o[b] for o in occupancies), frames, labels, S)
            want = [[s, min(s + S - 1, labels)] for s in first] + [[labels] * 2] * (30 - frames)
            assert band[b].tolist() == want


@pytest.mark.parametrize("seed", range(20))
def test_any_occupancies_make_a_legal_band_with_a_path(seed):
    generator = torch.Generator().manual_seed(seed)
    S = 2 + seed % 4
    frames = torch.randint(1, 12, (6,), generator=generator)
    most = frames * (S - 1)  # as many labels as S columns a frame can cover
    labels = torch.minimum(torch.randint(0, 40, (6,), generator=generator), most)
    shape = 6, int(frames.max()), int(labels.max()) + 1
    occupancies = tuple(torch.rand(shape, generator=generator) for _ in range(2))
    band = pruned_band(occupancies, frames, labels, symbols_per_frame=S)
    values.check_band(band, frames, labels)
    assert ((band[..., 1] - band[..., 0]) < S).all()
    rows = int(sum((band[b, :t, 1] - band[b, :t, 0] + 1).sum() for b, t in enumerate(frames)))
    targets = torch.zeros(6, shape[2] - 1, dtype=torch.int64)
    costs = rnnt_loss(
        torch.zeros(rows, 3), targets, frames, labels, blank=1, band=band, reduction="none"
    )
    assert costs.isfinite().all()


def test_padding_and_other_samples_do_not_matter():
    batch = make_batch([(9, 8), (4, 2)], seed=2)
    blank, label = occupancies_of(batch)
    band = pruned_band((blank, label), *batch[3:5], symbols_per_frame=3)
    is_cell = torch.zeros(blank.shape, dtype=torch.bool)
    is_cell[0, :9, :9] = is_cell[1, :4, :3] = True
    garbage = tuple(o.where(is_cell, torch.nan) for o in (blank, label))
    assert torch.equal(pruned_band(garbage, *batch[3:5], symbols_per_frame=3), band)
    alone = pruned_band(
        tuple(o[1:, :4, :3] for o in (blank, label)),
        *(n[1:] for n in batch[3:5]),
        symbols_per_frame=3,
    )
    assert torch.equal(alone[0], band[1, :4])


def test_nan_makes_a_legal_band_too():
    batch = make_batch()
    nan = tuple(torch.full_like(o, torch.nan) for o in occupancies_of(batch))
    values.check_band(pruned_band(nan, *batch[3:5], symbols_per_frame=3), *batch[3:5])


def test_equal_windows_take_the_lowest():
    blank = torch.zeros(1, 3, 5)
    blank[0, 1, 2] = 1.0  # of [0, 2], [1, 3] and [2, 4] all hold it
    band = pruned_band(
        (blank, torch.zeros_like(blank)), torch.tensor([3]), torch.tensor([4]), symbols_per_frame=3
    )
    assert band.tolist() == [[[0, 2], [0, 2], [2, 4]]]


def test_all_columns_are_the_full_loss():
    batch = make_batch()
    frames, labels = batch[3:5]
    band = pruned_band(occupancies_of(batch), frames, labels, symbols_per_frame=5)
    generator = torch.Generator().manual_seed(1)
    sizes = ((4, 9, 8), (4, 6, 8), (V, 8), (V,))
    joiner = [torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes]
    pruned = joiner_rnnt_loss(*joiner, *batch[2:5], blank=BLANK, band=band)
    full = joiner_rnnt_loss(*joiner, *batch[2:5], blank=BLANK)
    torch.testing.assert_close(pruned, full, rtol=1e-13, atol=0)


@pytest.mark.parametrize("S", [2, 3])
def test_the_pruned_loss_sums_over_the_alignments_of_its_band(S):
    (frames, labels) = size = (6, 4)
    batch = make_batch([size], extra=(0, 0))
    band = pruned_band(occupancies_of(batch), *batch[3:5], symbols_per_frame=S)
    generator = torch.Generator().manual_seed(2)
    joiner = [
        torch.randn(size, generator=generator, dtype=torch.float64)
        for size in ((1, frames, 8), (1, labels + 1, 8), (V, 8), (V,))
    ]
    loss = joiner_rnnt_loss(*joiner, *batch[2:5], blank=BLANK, band=band)
    encoded, predicted, weight, bias = joiner
    log_probs = (encoded[0, :, None] + predicted[0]).tanh() @ weight.T + bias
    log_probs = log_probs.log_softmax(-1)
    limits, targets = band[0].tolist(), batch.targets[0].tolist()
    scores = []
    for emitting in itertools.combinations_with_replacement(range(frames), labels):
        score, u = torch.zeros((), dtype=torch.float64), 0
        inside = True
        for t in range(frames):
            inside = inside and limits[t][0] <= u
            while u < labels and emitting[u] == t:
                score = score + log_probs[t, u, targets[u]]
                u += 1
            inside = inside and u <= limits[t][1]
            score = score + log_probs[t, u, BLANK]
        if inside:
            scores.append(score)
    assert 0 < len(scores) < 126
    torch.testing.assert_close(loss, -torch.logsumexp(torch.stack(scores), 0))


def three(*shape):
    return torch.zeros(shape), torch.zeros(shape)


LENGTHS_OF_TWO = torch.tensor([3, 2]), torch.tensor([4, 1])
REFUSED = {
    "one_tensor": (
        (torch.zeros(2, 3, 5), *LENGTHS_OF_TWO, 5),
        TypeError,
        "`occupancies` must be two tensors, of blank and of label, but is Tensor.",
    ),
    "shapes": (
        ((torch.zeros(2, 3, 5), torch.zeros(2, 3, 4)), *LENGTHS_OF_TWO, 5),
        ValueError,
        "`occupancies` must be (B, T, U + 1) both, but have shapes (2, 3, 5) and (2, 3, 4).",
    ),
    "dtype": (
        ((torch.zeros(2, 3, 5).half(),) * 2, *LENGTHS_OF_TWO, 5),
        TypeError,
        "`occupancies` must be float32 or float64, but is float16.",
    ),
    "none": (
        (three(2, 3, 5), *LENGTHS_OF_TWO, 0),
        ValueError,
        "`symbols_per_frame` must be at least 1, but is 0.",
    ),
    "type": (
        (three(2, 3, 5), *LENGTHS_OF_TWO, 2.5),
        TypeError,
        "`symbols_per_frame` must be an int, but is 2.5.",
    ),
    "too_few": (
        (three(2, 3, 5), *LENGTHS_OF_TWO, 2),
        ValueError,
        "`symbols_per_frame` must be at least 3 for the 4 labels in 3 frames of sample 0, "
        "but is 2.",
    ),
    "length": (
        (three(2, 2, 5), *LENGTHS_OF_TWO, 5),
        ValueError,
        "`logit_lengths` must be in [1, 2], but is 3 for sample 0.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_gets_one_sentence(name):
    (*arguments, S), error, sentence = REFUSED[name]
    with pytest.raises(error) as raised:
        pruned_band(*arguments, symbols_per_frame=S)
    assert str(raised.value) == sentence


def test_no_samples():
    nothing = torch.zeros(0, dtype=torch.int64)
    assert pruned_band(three(0, 3, 2), nothing, nothing, symbols_per_frame=2).shape == (0, 0, 2)
