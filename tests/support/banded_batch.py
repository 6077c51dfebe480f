"""Batches of random bands, and their losses by the definition."""

import math
import random

import torch

from asr_ascend.losses import rnnt_loss
from asr_ascend.losses.layout import row_offsets
from tests.support.banded_cases import places_in_full_lattice, random_band

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
        place = places_in_full_lattice(self.frames, self.labels, self.band)
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
