"""The id of blank, which may be given from the end."""

from __future__ import annotations


def normalise_blank(blank: int, vocab_size: int) -> int:
    """Returns the non-negative id of ``blank``, which may count from the end as -1 does.

    Raises:
        ValueError: ``vocab_size`` is below 2, or ``blank`` outside [-vocab_size, vocab_size - 1].
    """
    if vocab_size < 2:
        raise ValueError(f"`vocab_size` must be at least 2, but is {vocab_size}.")
    if not -vocab_size <= blank < vocab_size:
        raise ValueError(f"`blank` must be in [{-vocab_size}, {vocab_size - 1}], but is {blank}.")
    return blank % vocab_size
