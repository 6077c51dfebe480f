"""The bands of emission windows and of alignments."""

import pytest
import torch

from asr_ascend.losses import band_around, lattice_band, rnnt_loss_and_grad
from asr_ascend.losses.layout import row_offsets
from tests.support.banded_batch import BLANK, V
from tests.support.banded_cases import places_in_full_lattice

BACKENDS = ("cpu", "reference")


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
        places = places_in_full_lattice(self.frames, self.labels, band)
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
