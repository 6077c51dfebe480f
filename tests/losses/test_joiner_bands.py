"""The joiner's loss in a band, and with windows, whose band it takes by itself."""

import pytest
import torch

from asr_ascend.losses import joiner_rnnt_loss, lattice_band
from asr_ascend.losses.layout import packed_cells, row_offsets
from tests.support.banded_batch import BLANK, SHAPES, Batch, V

BACKENDS = ("cpu", "reference")


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
