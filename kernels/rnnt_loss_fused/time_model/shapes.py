"""Shapes that are modelled, and on a chip measured: the specification's and more of the bench."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """A batch of utterances of (T, U) over V symbols."""

    lengths: tuple[tuple[int, int], ...]
    vocab: int
    dtype: str = "float32"
    band_rows: int = 0  # cells of one utterance's band, if all have one of this size

    def __str__(self) -> str:
        longest = max(self.lengths)
        ragged = "" if len(set(self.lengths)) == 1 else " ragged"
        text = f"{len(self.lengths)} x {longest[0]} x {longest[1]} x {self.vocab}"
        return text + ragged + ("" if self.dtype == "float32" else f", {self.dtype}")

    @property
    def rows(self) -> int:
        if self.band_rows:
            return len(self.lengths) * self.band_rows
        return sum(frames * (labels + 1) for frames, labels in self.lengths)

    @property
    def logits_bytes(self) -> int:
        return self.rows * self.vocab * (4 if self.dtype == "float32" else 2)


# The specification's shapes that fit the chip's memory, and more of the bench.
SHAPES = (
    Shape(((200, 50),) * 4, 50),
    Shape(((500, 100),) * 8, 500),
    Shape(((500, 100),) * 8, 500, "float16"),
    Shape(((1000, 200),) * 16, 500),
    Shape(((1000, 200),) * 16, 5000, "float16"),
    Shape(((500, 100),) * 2, 5000),
    Shape(((500, 100),), 50000),
)
# Those of them that do not fit, whatever is done.
TOO_LARGE = (Shape(((1000, 200),) * 16, 5000), Shape(((2000, 500),) * 32, 50000))
# Its precision rows, with lengths over the ranges that it gives.
PRECISION_ROWS = (
    Shape(((100, 100), (1000, 300)), 50),
    Shape(((200, 50), (800, 200), (1400, 350), (2000, 500)), 128),
    Shape(((100, 50), (500, 200)), 64, "float16"),
    Shape(((100, 50), (400, 150), (700, 200), (1000, 300)), 128, "float16"),
)
