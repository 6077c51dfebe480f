"""The batches that are measured, and their logits, made on the spot from a few random numbers."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

BLANK = 0
BLOCK_ELEMENTS = 1 << 24
SMALL_ELEMENTS = 1 << 21  # what the reference computes in a second


@dataclass(frozen=True)
class Case:
    """A batch: its lengths, and labels by a seed. Logits are standard normal.

    Args:
        name: as ``--cases`` takes it.
        logit_lengths, target_lengths: T_b and U_b.
        vocab: V.
    """

    name: str
    logit_lengths: tuple[int, ...]
    target_lengths: tuple[int, ...]
    vocab: int

    @classmethod
    def uniform(cls, name: str, B: int, T: int, U: int, V: int) -> Case:
        return cls(name, (T,) * B, (U,) * B, V)

    def __str__(self) -> str:
        T, U = self.logit_lengths, self.target_lengths
        if len(set(T)) == len(set(U)) == 1:
            return f"{len(T)} x {T[0]} x {U[0]} x {self.vocab}"
        spans = " x ".join(f"{min(lengths)}..{max(lengths)}" for lengths in (T, U))
        return f"{len(T)} x {spans} x {self.vocab}"

    @property
    def sample_rows(self) -> list[int]:
        return [T * (U + 1) for T, U in zip(self.logit_lengths, self.target_lengths, strict=True)]

    @property
    def rows(self) -> int:
        return sum(self.sample_rows)

    @property
    def padded_shape(self) -> tuple[int, int, int, int]:
        return (
            len(self.logit_lengths),
            max(self.logit_lengths),
            max(self.target_lengths) + 1,
            self.vocab,
        )

    def shape(self, layout: str) -> tuple[int, ...]:
        return (self.rows, self.vocab) if layout == "packed" else self.padded_shape

    def logits_bytes(self, layout: str, dtype: torch.dtype) -> int:
        return math.prod(self.shape(layout)) * dtype.itemsize

    def indices(self) -> tuple[Tensor, Tensor, Tensor]:
        """Targets (B, max U), logit_lengths and target_lengths, int64."""
        generator = torch.Generator().manual_seed(len(self.name))
        size = (len(self.target_lengths), max(self.target_lengths))
        targets = torch.randint(1, self.vocab, size, generator=generator)
        return targets, torch.tensor(self.logit_lengths), torch.tensor(self.target_lengths)

    @property
    def is_small(self) -> bool:
        return self.rows * self.vocab <= SMALL_ELEMENTS

    def smaller(self) -> Case:
        """Of the same kind: all lengths shortened by one factor, V as it is."""
        if self.is_small:
            return self
        factor = math.sqrt(SMALL_ELEMENTS / (self.rows * self.vocab))
        return Case(
            self.name,
            tuple(max(4, round(factor * T)) for T in self.logit_lengths),
            tuple(max(2, round(factor * U)) for U in self.target_lengths),
            self.vocab,
        )

    def sample_logits(self, b: int, dtype: torch.dtype) -> Tensor:
        """(rows of sample b, V), as ``fill`` writes them."""
        start = sum(self.sample_rows[:b]) * self.vocab
        rows = torch.empty(self.sample_rows[b], self.vocab, dtype=dtype)
        for part, values in _pieces(rows.view(-1), start):
            part.copy_(values)
        return rows

    def fill(self, logits: Tensor) -> None:
        """Writes the batch's logits into a contiguous packed or padded tensor, zeros as padding."""
        if logits.dim() == 2 or self.rows * self.vocab == logits.numel():
            for part, values in _pieces(logits.view(-1), 0):
                part.copy_(values)
            return
        logits.zero_()
        for b, (T, U) in enumerate(zip(self.logit_lengths, self.target_lengths, strict=True)):
            rows = self.sample_logits(b, logits.dtype)
            logits[b, :T, : U + 1] = rows.view(T, U + 1, self.vocab)

    def sample_of(self, tensor: Tensor, b: int) -> Tensor:
        """(rows, V): what belongs to sample b in a packed or padded tensor."""
        if tensor.dim() == 2:
            start = sum(self.sample_rows[:b])
            return tensor[start : start + self.sample_rows[b]]
        T, U = self.logit_lengths[b], self.target_lengths[b]
        return tensor[b, :T, : U + 1].reshape(-1, self.vocab)


@functools.cache
def _block(dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(BLOCK_ELEMENTS, generator=generator).to(dtype)


def _pieces(flat: Tensor, offset: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Parts of a flat tensor, and the random numbers for them, which repeat after a block."""
    block = _block(flat.dtype)
    done = 0
    while done < flat.numel():
        start = (offset + done) % BLOCK_ELEMENTS
        count = min(BLOCK_ELEMENTS - start, flat.numel() - done)
        yield flat[done : done + count], block[start : start + count]
        done += count


def ragged(name: str, B: int, T: tuple[int, int], U: tuple[int, int], V: int) -> Case:
    """Lengths drawn evenly from T and U, limits included."""
    generator = torch.Generator().manual_seed(3)

    def lengths(low: int, high: int) -> tuple[int, ...]:
        return tuple(torch.randint(low, high + 1, (B,), generator=generator).tolist())

    return Case(name, lengths(*T), lengths(*U), V)


CASES = {
    case.name: case
    for case in (
        Case.uniform("S1", 4, 200, 50, 50),
        Case.uniform("S2", 8, 500, 100, 500),
        Case.uniform("S3", 16, 1000, 200, 500),
        Case.uniform("S4", 2, 500, 100, 5000),
        ragged("RAG", 16, (200, 1000), (20, 200), 500),
    )
}
