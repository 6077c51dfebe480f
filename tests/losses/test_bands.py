"""Banded lattices: value and gradient are those of the full lattice with -inf outside."""

import math

import pytest
import torch

from asr_ascend.losses import (
    rnnt_alignment,
    rnnt_loss,
    rnnt_loss_and_grad,
)
from asr_ascend.losses.layout import row_offsets
from tests.support.banded_batch import BLANK, SHAPES, Batch, V

BACKENDS = ("cpu", "reference")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("widest", [0, 1, 3, 20])
@pytest.mark.parametrize("name", SHAPES)
def test_equals_the_full_lattice_with_minus_infinity_outside(name, widest, backend):
    for seed in range(3):
        batch = Batch(seed, SHAPES[name], widest)
        got = batch.value_and_gradient(batch.loss, batch.rows, backend=backend)
        want = batch.value_and_gradient(batch.defined, batch.rows)
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "options", [{"clamp": 0.05}, {"fastemit_lambda": 0.3}, {"clamp": 0.1, "fastemit_lambda": 0.2}]
)
def test_options(options, backend):
    batch = Batch(5, SHAPES["ragged"])
    got = batch.value_and_gradient(batch.loss, batch.rows, backend=backend, **options)
    want = batch.value_and_gradient(batch.loss, batch.rows, backend="reference", **options)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    plain = batch.value_and_gradient(batch.loss, batch.rows, backend=backend)
    torch.testing.assert_close(got[0], plain[0], rtol=1e-12, atol=0)
    assert not torch.equal(got[1], plain[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dtypes(dtype):
    batch = Batch(6, SHAPES["ragged"])
    rows = batch.rows.to(dtype)
    costs, gradient = batch.value_and_gradient(batch.loss, rows)
    want = batch.value_and_gradient(batch.defined, rows.double())
    torch.testing.assert_close(costs.double(), want[0], rtol=3e-7, atol=3e-7)
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(gradient.double(), want[1], rtol=step, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_log_probabilities(backend):
    batch = Batch(7, SHAPES["ragged"])
    log_probs = batch.rows.log_softmax(-1)
    options = {"fused_log_softmax": False, "backend": backend}
    got = batch.value_and_gradient(batch.loss, log_probs, **options)

    def defined(rows):
        return batch.loss(
            batch.in_full_lattice(rows), band=None, fused_log_softmax=False, backend="reference"
        )

    want = batch.value_and_gradient(defined, log_probs)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_log_probabilities_that_lead_out_of_the_band_are_not_read(backend):
    # Frame 0 holds column 0, frame 1 columns 0 and 1, frame 2 column 1.
    band = torch.tensor([[[0, 0], [0, 1], [1, 1]]])
    lengths = torch.tensor([[1]]), torch.tensor([3]), torch.tensor([1])
    log_probs = torch.full((4, 3), -1.0)
    log_probs[0, 1] = math.nan  # the label of (0, 0)
    log_probs[1, 0] = math.nan  # the blank of (1, 0)
    cost = rnnt_loss(
        log_probs, *lengths, blank=0, fused_log_softmax=False, band=band, backend=backend
    )
    # blank, label, blank, blank
    assert cost.item() == 4.0


def test_gradcheck():
    batch = Batch(8, SHAPES["small"])
    rows = batch.rows.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: batch.loss(x, backend="cpu"), (rows,))
    assert torch.autograd.gradgradcheck(lambda x: batch.loss(x, backend="reference"), (rows,))


def test_in_place_and_outside_of_autograd():
    batch = Batch(9, SHAPES["ragged"])
    lengths = batch.targets, batch.frames, batch.labels
    want = rnnt_loss_and_grad(batch.rows, *lengths, BLANK, band=batch.band)
    rows = batch.rows.clone()
    got = rnnt_loss_and_grad(rows, *lengths, BLANK, band=batch.band, reuse_logits=True)
    assert got[1].data_ptr() == rows.data_ptr()
    assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])


def test_bits_do_not_depend_on_the_number_of_threads():
    batch = Batch(10, [(300, 60)] * 9, widest=4)
    before = torch.get_num_threads()
    answers = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            answers.append(batch.value_and_gradient(batch.loss, batch.rows.float()))
    finally:
        torch.set_num_threads(before)
    for costs, gradient in answers[1:]:
        assert torch.equal(costs, answers[0][0]) and torch.equal(gradient, answers[0][1])


def test_samples_side_by_side_have_the_bits_of_each_alone():
    """The kernel takes a cell of several samples at a time, in the lanes of one vector."""
    batch = Batch(31, [(9, 3), (1, 1), (14, 11), (3, 0), *[(6 + n, n) for n in range(15)]])
    costs, gradient = batch.value_and_gradient(batch.loss, batch.rows)
    with torch.no_grad():
        assert torch.equal(batch.loss(batch.rows), costs)
    starts = row_offsets(batch.frames, batch.labels, batch.band).tolist()
    for b in range(len(costs)):
        one, (first, last) = slice(b, b + 1), starts[b : b + 2]
        rows = batch.rows[first:last].clone().requires_grad_()
        frames, labels = batch.frames[one], batch.labels[one]
        alone = {"band": batch.band[one], "blank": BLANK, "reduction": "none"}
        cost = rnnt_loss(rows, batch.targets[one], frames, labels, **alone)
        assert torch.equal(cost, costs[one])
        (own,) = torch.autograd.grad(cost, rows, batch.upstream[one])
        assert torch.equal(own, gradient[first:last])


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_full_band_is_the_packed_layout(backend):
    batch = Batch(11, SHAPES["ragged"], widest=20)
    T = int(batch.frames.max())
    full = torch.stack([torch.zeros(4, T, dtype=torch.int64), batch.labels[:, None].expand(4, T)])
    rows = torch.randn(int(row_offsets(batch.frames, batch.labels)[-1]), V, dtype=torch.float64)
    banded = batch.value_and_gradient(
        batch.loss, rows, band=full.permute(1, 2, 0).contiguous(), backend=backend
    )
    plain = batch.value_and_gradient(batch.loss, rows, band=None, backend=backend)
    torch.testing.assert_close(banded, plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_band_without_a_path(backend):
    """Frame 1 lies one label above frame 0: no blank leads there."""
    band = torch.tensor([[[0, 0], [1, 1]], [[0, 1], [0, 1]]])
    lengths = torch.tensor([[1], [1]]), torch.tensor([2, 2]), torch.tensor([1, 1])
    rows = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    costs = rnnt_loss(rows, *lengths, blank=0, reduction="none", band=band, backend=backend)
    assert costs[0] == math.inf and costs[1].isfinite()
    costs.sum().backward()
    assert torch.equal(rows.grad[:2], torch.zeros(2, 3, dtype=torch.float64))
    assert rows.grad[2:].abs().sum() > 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_row_spoils_its_own_sample(backend, bad):
    batch = Batch(12, [(6, 3), (6, 3), (6, 3)])
    clean = batch.value_and_gradient(batch.loss, batch.rows, backend=backend)
    offsets = row_offsets(batch.frames, batch.labels, batch.band)
    for row in range(int(offsets[1]), int(offsets[2])):
        rows = batch.rows.clone()
        rows[row, 4] = bad
        costs, gradient = batch.value_and_gradient(batch.loss, rows, backend=backend)
        assert costs.isnan().tolist() == [False, True, False]
        assert gradient[offsets[1] : offsets[2]].isnan().all()
        assert torch.equal(costs[::2], clean[0][::2])
        assert torch.equal(gradient[: offsets[1]], clean[1][: offsets[1]])


@pytest.mark.parametrize("backend", BACKENDS)
def test_large_and_impossible_logits(backend):
    batch = Batch(13, SHAPES["ragged"])
    rows = batch.rows * 1e4
    rows[3, 5] = -math.inf
    got = batch.value_and_gradient(batch.loss, rows, backend=backend)
    want = batch.value_and_gradient(batch.defined, rows)
    torch.testing.assert_close(got[0], want[0], rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_alignment(backend):
    for seed in range(20):
        batch = Batch(seed, SHAPES["ragged"])
        log_probs = batch.rows.log_softmax(-1)
        arguments = batch.targets, batch.frames, batch.labels, BLANK
        got = rnnt_alignment(batch.rows, *arguments, band=batch.band, backend=backend)
        full = batch.in_full_lattice(log_probs)
        want = rnnt_alignment(full, *arguments, fused_log_softmax=False, backend="reference")
        assert torch.equal(got[0], want[0])
        torch.testing.assert_close(got[1], want[1], rtol=1e-12, atol=1e-12)


GOOD = [[0, 1], [0, 2], [1, 2]]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("band", "frame", "wanted"),
    [
        ([[0, 1], [0, 3], [1, 2]], 1, "be a first and a last column in [0, 2]"),
        ([[0, 1], [2, 1], [1, 2]], 1, "be a first and a last column in [0, 2]"),
        ([[-1, 1], [0, 2], [1, 2]], 0, "be a first and a last column in [0, 2]"),
        ([[1, 1], [1, 2], [1, 2]], 0, "hold column 0"),
        ([[0, 1], [0, 2], [0, 1]], 2, "not fall below the frame before it, [0, 2]"),
        (
            [[0, 0], [2, 2], [2, 2]],
            1,
            "overlap the frame before it, [0, 0], or lie one label above",
        ),
        ([[0, 1], [0, 1], [1, 1]], None, "hold the last column 2"),
    ],
)
def test_malformed_bands(band, frame, wanted, backend):
    bands = torch.tensor([GOOD, band])
    rows = torch.zeros(int((bands[..., 1] - bands[..., 0] + 1).clamp(min=0).sum()), V)
    lengths = torch.tensor([[1, 3]] * 2), torch.tensor([3, 3]), torch.tensor([2, 2])
    with pytest.raises(ValueError) as caught:
        rnnt_loss(rows, *lengths, blank=0, band=bands, backend=backend)
    where, found = ("the last frame", band[2]) if frame is None else (f"frame {frame}", band[frame])
    assert (
        str(caught.value) == f"`band` must {wanted} in {where} of sample 1, but is {found} there."
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"band": [GOOD]}, TypeError, "`band` must be a Tensor, but is a list."),
        (
            {"band": torch.tensor([GOOD]).float()},
            TypeError,
            "`band` must be int32 or int64, but is float32.",
        ),
        (
            {"band": torch.tensor([GOOD, GOOD])},
            ValueError,
            "`band` must have shape (1, T, 2), a first and a last column for each frame, "
            "but has shape (2, 3, 2).",
        ),
        (
            {"band": torch.tensor([GOOD[1:]])},
            ValueError,
            "`logit_lengths` must be in [1, 2], but is 3 for sample 0.",
        ),
        (
            {"logits": torch.zeros(9, V)},
            ValueError,
            "packed `logits` must have a row for each of the 7 cells of `band`, but has 9.",
        ),
        (
            {"logits": torch.zeros(1, 3, 3, V)},
            ValueError,
            "`logits` must be packed (N, V) where `band` is given, but has shape (1, 3, 3, 7).",
        ),
    ],
)
def test_errors(changes, error, message, backend):
    arguments = {
        "logits": torch.zeros(7, V),
        "targets": torch.tensor([[1, 3]]),
        "logit_lengths": torch.tensor([3]),
        "target_lengths": torch.tensor([2]),
        "blank": 0,
        "band": torch.tensor([GOOD]),
        "backend": backend,
    }
    assert rnnt_loss(**arguments).isfinite()
    with pytest.raises(error) as caught:
        rnnt_loss(**{**arguments, **changes})
    assert str(caught.value) == message


def test_compiles_in_one_graph():
    batch = Batch(14, SHAPES["small"])
    compiled = torch.compile(lambda rows: batch.loss(rows), fullgraph=True, backend="aot_eager")
    got = batch.value_and_gradient(compiled, batch.rows)
    want = batch.value_and_gradient(batch.loss, batch.rows)
    assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])
