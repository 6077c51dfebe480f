"""Banded lattices: value and gradient are those of the full lattice with -inf outside."""

import math
import random

import pytest
import torch

from asr_ascend.losses import (
    band_around,
    joiner_rnnt_loss,
    lattice_band,
    rnnt_alignment,
    rnnt_loss,
    rnnt_loss_and_grad,
)
from asr_ascend.losses.layout import packed_cells, row_offsets
from tests.support.banded_cases import random_band

BACKENDS = ("cpu", "reference")
V, BLANK = 7, 2


class Batch:
    """Rows of random bands, with what the losses need beside them."""

    def __init__(self, seed: int, sizes: list[tuple[int, int]], widest: int = 2) -> None:
        draws = random.Random(seed)
        generator = torch.Generator().manual_seed(seed)
        self.frames = torch.tensor([t for t, _ in sizes])
        self.labels = torch.tensor([u for _, u in sizes])
        B, T, U = len(sizes), max(t for t, _ in sizes), max(u for _, u in sizes)
        self.band = torch.full((B, T, 2), -7)  # never read past a sample's frames
        for b, (t, u) in enumerate(sizes):
            self.band[b, :t] = torch.tensor(random_band(t, u, draws, widest))
        symbols = [k for k in range(V) if k != BLANK]
        labels = [[draws.choice(symbols) for _ in range(U)] for _ in range(B)]
        self.targets = torch.tensor(labels, dtype=torch.int64)
        count = int(row_offsets(self.frames, self.labels, self.band)[-1])
        self.rows = torch.randn(count, V, generator=generator, dtype=torch.float64)
        self.upstream = torch.rand(B, generator=generator, dtype=torch.float64) + 0.5

    def loss(self, rows, **options):
        lengths = self.targets, self.frames, self.labels
        options = {"band": self.band, "blank": BLANK, "reduction": "none", **options}
        return rnnt_loss(rows, *lengths, **options)

    def in_full_lattice(self, log_probs):
        """Packed rows of every cell, -inf outside of the band."""
        b, t, u = packed_cells(len(log_probs), self.frames, self.labels, "cpu", self.band)
        place = row_offsets(self.frames, self.labels)[b] + t * (self.labels[b] + 1) + u
        count = int(row_offsets(self.frames, self.labels)[-1])
        nothing = log_probs.new_full((count, V), -math.inf)
        return nothing.index_put((place,), log_probs)

    def defined(self, rows, **options):
        """The loss by its definition: the reference on the full lattice."""
        full = self.in_full_lattice(rows.log_softmax(-1))
        options = {"fused_log_softmax": False, "backend": "reference", **options}
        return self.loss(full, band=None, **options)

    def value_and_gradient(self, loss, rows, **options):
        rows = rows.detach().clone().requires_grad_()
        costs = loss(rows, **options)
        (gradient,) = torch.autograd.grad(costs, rows, self.upstream.to(costs.dtype))
        return costs.detach(), gradient


SHAPES = {
    "one": [(1, 0)],
    "one_frame": [(1, 4)],
    "no_labels": [(6, 0)],
    "small": [(4, 2), (7, 5)],
    "ragged": [(9, 3), (1, 1), (14, 11), (3, 0)],
    "more_labels": [(3, 8)],
}


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


def rows_of_band(full, batch_lengths, band):
    """The rows of a band among packed rows of all cells."""
    frames, labels = batch_lengths
    count = int(row_offsets(frames, labels, band)[-1])
    b, t, u = packed_cells(count, frames, labels, "cpu", band)
    return row_offsets(frames, labels)[b] + t * (labels[b] + 1) + u


class TestBandOfWindows:
    frames, labels = torch.tensor([9, 6]), torch.tensor([4, 2])
    windows = torch.tensor([[[0, 2], [1, 3], [2, 7], [5, 8]], [[-3, 1], [1, 99], [0, 0], [0, 0]]])

    def test_holds_the_columns_between_the_earliest_and_the_latest_frames(self):
        band = lattice_band(self.windows, self.frames, self.labels)
        # Sample 0: labels come no earlier than 0, 1, 2, 5 and no later than 2, 3, 7, 8.
        assert band[0].tolist() == [
            [0, 1], [0, 2], [0, 3], [1, 3], [2, 3], [2, 4], [2, 4], [2, 4], [3, 4],
        ]  # fmt: skip
        assert band[1, :6].tolist() == [[0, 1], [0, 2], [1, 2], [1, 2], [1, 2], [1, 2]]

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_the_windowed_loss_is_the_same_with_and_without(self, backend):
        band = lattice_band(self.windows, self.frames, self.labels)
        count = int(row_offsets(self.frames, self.labels)[-1])
        full = torch.randn(count, V, dtype=torch.float64)
        places = rows_of_band(full, (self.frames, self.labels), band)
        targets = torch.tensor([[1, 3, 3, 0], [4, 5, 0, 0]])
        arguments = targets, self.frames, self.labels, BLANK
        options = {"emission_windows": self.windows, "backend": backend}
        costs, gradient = rnnt_loss_and_grad(full, *arguments, **options)
        banded = rnnt_loss_and_grad(full[places], *arguments, band=band, **options)
        torch.testing.assert_close(banded[0], costs, rtol=1e-12, atol=0)
        torch.testing.assert_close(banded[1], gradient[places], rtol=1e-12, atol=1e-12)
        outside = torch.ones(count, dtype=torch.bool).index_fill(0, places, False)
        assert outside.any() and gradient[outside].abs().max() == 0

    def test_a_sample_without_an_alignment(self):
        windows = self.windows.clone()
        windows[1, 1] = torch.tensor([0, -1])
        with pytest.raises(ValueError) as caught:
            lattice_band(windows, self.frames, self.labels)
        assert str(caught.value) == (
            "`emission_windows` must allow an alignment, but allow none for sample 1."
        )
        usual = lattice_band(self.windows, self.frames, self.labels)
        full = lattice_band(windows, self.frames, self.labels, on_empty="full")
        assert full[1, :6].tolist() == [[0, 2]] * 6
        assert torch.equal(full[0], usual[0])
        widened = lattice_band(windows, self.frames, self.labels, on_empty="widen")
        assert torch.equal(widened[0], usual[0])
        # Label 1 may now come as soon as label 0 can, in frame 0.
        assert widened[1, :6].tolist() == [[0, 2], [2, 2], [2, 2], [2, 2], [2, 2], [2, 2]]

    def test_no_labels_and_an_empty_batch(self):
        none = lattice_band(torch.zeros(1, 0, 2, dtype=torch.int64), *torch.tensor([[3], [0]]))
        assert none.tolist() == [[[0, 0]] * 3]
        nothing = torch.zeros(0, dtype=torch.int64)
        empty = lattice_band(torch.zeros(0, 2, 2, dtype=torch.int64), nothing, nothing)
        assert empty.shape == (0, 0, 2)

    @pytest.mark.parametrize(
        ("changes", "error", "message"),
        [
            (
                {"on_empty": "skip"},
                ValueError,
                '`on_empty` must be "error", "widen" or "full", but is "skip".',
            ),
            (
                {"emission_windows": torch.zeros(2, 4, dtype=torch.int64)},
                ValueError,
                "`emission_windows` must be (B, U, 2), but has shape (2, 4).",
            ),
            (
                {"emission_windows": torch.zeros(2, 4, 2)},
                TypeError,
                "`emission_windows` must be int32 or int64, but is float32.",
            ),
            (
                {"logit_lengths": torch.tensor([9, 0])},
                ValueError,
                "`logit_lengths` must be at least 1, but is 0 for sample 1.",
            ),
            (
                {"target_lengths": torch.tensor([5, 0])},
                ValueError,
                "`target_lengths` must be in [0, 4], but is 5 for sample 0.",
            ),
        ],
    )
    def test_errors(self, changes, error, message):
        arguments = {
            "emission_windows": self.windows,
            "logit_lengths": self.frames,
            "target_lengths": self.labels,
        }
        with pytest.raises(error) as caught:
            lattice_band(**{**arguments, **changes})
        assert str(caught.value) == message


def test_band_around_an_alignment():
    frames = torch.tensor([[1, 4, -1]])
    band = band_around(frames, torch.tensor([6]), torch.tensor([2]), radius=1)
    # Label 0 comes in frames 0 to 2, label 1 in frames 3 to 5.
    assert band.tolist() == [[[0, 1], [0, 1], [0, 1], [1, 2], [1, 2], [1, 2]]]
    with pytest.raises(ValueError) as caught:
        band_around(frames, torch.tensor([6]), torch.tensor([2]), radius=-1)
    assert str(caught.value) == "`radius` must be an int of at least 0, but is -1."


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


class TestJoiner:
    """The joiner's loss in a band, both its ways, beside its logits and the loss."""

    H = 5

    def make(self, seed):
        torch.manual_seed(seed)
        batch = Batch(seed, SHAPES["ragged"])
        T, U1 = int(batch.frames.max()), int(batch.labels.max()) + 1
        inputs = [
            torch.randn(4, T, self.H, dtype=torch.float64),
            torch.randn(4, U1, self.H, dtype=torch.float64),
            torch.randn(V, self.H, dtype=torch.float64),
            torch.randn(V, dtype=torch.float64),
        ]
        return batch, [tensor.requires_grad_() for tensor in inputs]

    def apart(self, batch, inputs, band, **options):
        encoder, predictor, weight, bias = inputs
        count = int(row_offsets(batch.frames, batch.labels, band)[-1])
        b, t, u = packed_cells(count, batch.frames, batch.labels, "cpu", band)
        rows = torch.tanh(encoder[b, t] + predictor[b, u]) @ weight.T + bias
        return batch.loss(rows, band=band, **options)

    def fused(self, batch, inputs, **options):
        lengths = batch.targets, batch.frames, batch.labels
        return joiner_rnnt_loss(*inputs, *lengths, BLANK, **options)

    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize(
        "options",
        [{"reduction": "sum"}, {"reduction": "none"}, {"reduction": "mean", "max_bytes": 200}],
    )
    def test_equals_joiner_and_loss(self, options, backend):
        batch, inputs = self.make(3)
        got = self.fused(batch, inputs, band=batch.band, backend=backend, **options).sum()
        reduction = {"reduction": options["reduction"]}
        want = self.apart(batch, inputs, batch.band, backend=backend, **reduction).sum()
        torch.testing.assert_close(got, want, rtol=1e-12, atol=0)
        grads = torch.autograd.grad(got, inputs), torch.autograd.grad(want, inputs)
        torch.testing.assert_close(*grads, rtol=1e-10, atol=1e-12)

    def test_without_a_gradient(self):
        batch, inputs = self.make(4)
        want = self.apart(batch, inputs, batch.band)
        for max_bytes in (None, 200):
            with torch.no_grad():
                got = self.fused(
                    batch, inputs, band=batch.band, reduction="none", max_bytes=max_bytes
                )
            torch.testing.assert_close(got, want, rtol=1e-12, atol=0)

    @pytest.mark.parametrize("max_bytes", [None, 200])
    def test_dropped_mass_bounds_the_change(self, max_bytes):
        batch, inputs = self.make(5)
        options = {"band": batch.band, "reduction": "sum", "max_bytes": max_bytes}
        exact = torch.autograd.grad(self.fused(batch, inputs, **options), inputs[3])
        loss = self.fused(batch, inputs, max_dropped_mass=0.01, **options)
        dropped = torch.autograd.grad(loss, inputs[3])
        change = (exact[0] - dropped[0]).abs().sum()
        assert 0 < change <= 4 * 2 * 0.01

    def test_windows_alone_compute_their_band_and_no_more(self, monkeypatch):
        batch, inputs = self.make(6)
        frames = torch.stack([torch.arange(11)] * 4).minimum(batch.frames[:, None] - 1)
        windows = torch.stack([frames - 1, frames + 1], dim=-1)
        from asr_ascend.losses.joiner import rows as joiner_rows

        made = []
        original = joiner_rows.JoinerTensors.write_logits

        def spy(joiner, logits, hidden):
            made.append(len(logits))
            original(joiner, logits, hidden)

        monkeypatch.setattr(joiner_rows.JoinerTensors, "write_logits", spy)
        got = self.fused(batch, inputs, emission_windows=windows, reduction="sum")
        band = lattice_band(windows, batch.frames, batch.labels, on_empty="widen")
        assert sum(made) == int(row_offsets(batch.frames, batch.labels, band)[-1])
        assert sum(made) < int(row_offsets(batch.frames, batch.labels)[-1])
        want = self.apart(batch, inputs, None, emission_windows=windows, reduction="sum")
        torch.testing.assert_close(got, want, rtol=1e-12, atol=0)
        grads = torch.autograd.grad(got, inputs), torch.autograd.grad(want, inputs)
        torch.testing.assert_close(*grads, rtol=1e-10, atol=1e-12)


def test_compiles_in_one_graph():
    batch = Batch(14, SHAPES["small"])
    compiled = torch.compile(lambda rows: batch.loss(rows), fullgraph=True, backend="aot_eager")
    got = batch.value_and_gradient(compiled, batch.rows)
    want = batch.value_and_gradient(batch.loss, batch.rows)
    assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])
