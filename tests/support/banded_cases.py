"""Random bands, cases whose rows are a band's cells, and their exact answers in float64."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import torch
from torch import Tensor

from asr_ascend.losses.layout import packed_cells, row_offsets
from tests.support import oracles

Sizes = Sequence[tuple[int, int]]


def random_band(frames: int, labels: int, draws: random.Random, widest: int) -> list[list[int]]:
    """A legal band in which at least one path stays, at most ``widest`` columns wide if it can."""
    path = sorted(draws.randint(0, labels) for _ in range(frames - 1))
    ends = [*path, labels]  # the column in which each frame is left
    starts = [0, *path]
    band = []
    first, last = 0, 0
    for start, end in zip(starts, ends, strict=True):
        first = max(first, start - draws.randint(0, widest))
        last = max(last, min(labels, end + draws.randint(0, widest)))
        band.append([min(first, start), last])
    return band


def random_bands(sizes: Sizes, widest: int, seed: int = 0, spare_frames: int = 0) -> Tensor:
    """(B, T, 2); -7 in frames that are never read."""
    draws = random.Random(seed)
    band = torch.full((len(sizes), max(t for t, _ in sizes) + spare_frames, 2), -7)
    for b, (frames, labels) in enumerate(sizes):
        band[b, :frames] = torch.tensor(random_band(frames, labels, draws, widest))
    return band


def full_bands(sizes: Sizes) -> Tensor:
    """(B, T, 2): every column of every frame."""
    frames = max(t for t, _ in sizes)
    return torch.tensor([[[0, labels]] * frames for _, labels in sizes])


def places_in_full_lattice(logit_lengths: Tensor, target_lengths: Tensor, band: Tensor) -> Tensor:
    """(N,): where the band's rows are among the packed rows of all cells of the lattices."""
    lengths = logit_lengths, target_lengths
    count = int(row_offsets(*lengths, band)[-1])
    b, t, u = packed_cells(count, *lengths, "cpu", band)
    return row_offsets(*lengths)[b] + t * (target_lengths[b] + 1) + u


def banded(case: oracles.Case, band: Tensor) -> oracles.Case:
    """A case of all cells with the rows of the band alone."""
    return case.with_logits(
        case.logits[places_in_full_lattice(case.logit_lengths, case.target_lengths, band)]
    )


def make_banded_case(sizes: Sizes, vocab: int, band: Tensor, **options: object) -> oracles.Case:
    """As ``oracles.make_case``; the rows are the band's."""
    return banded(oracles.make_case(sizes, vocab, **options), band)


def samples_of(case: oracles.Case, band: Tensor) -> list[slice]:
    """The rows of each sample."""
    offsets = row_offsets(case.logit_lengths, case.target_lengths, band).tolist()
    return [slice(first, end) for first, end in itertools.pairwise(offsets)]


def exact(
    case: oracles.Case, band: Tensor, *, upstream: Tensor | None = None, **options: object
) -> tuple[Tensor, Tensor]:
    """Costs (B,) and gradient (N, V) in float64: the full lattice with -inf outside of the band."""
    fused = options.get("fused_log_softmax", True)
    logits = case.logits.double()
    count = int((case.logit_lengths * (case.target_lengths + 1)).sum())
    places = places_in_full_lattice(case.logit_lengths, case.target_lengths, band)
    log_probs = logits.log_softmax(-1) if fused else logits
    full = log_probs.new_full((count, case.vocab), -math.inf).index_put((places,), log_probs)
    options = {**options, "fused_log_softmax": False}
    clamp = options.pop("clamp", -1.0)
    costs, gradient = oracles.exact(case.with_logits(full), **options)
    gradient = gradient[places]
    if fused:  # the chain rule of log_softmax
        gradient = gradient - logits.softmax(-1) * gradient.sum(-1, keepdim=True)
    if clamp > 0:
        gradient = gradient.clamp(-clamp, clamp)
    if upstream is not None:
        rows = samples_of(case, band)
        for sample, factor in zip(rows, upstream.double(), strict=True):
            gradient[sample] *= factor
    return costs, gradient
