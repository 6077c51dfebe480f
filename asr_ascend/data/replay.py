"""Older data mixed back into a fine-tuning, so that the model doesn't forget it."""

from __future__ import annotations

import torch

from asr_ascend.data.seeding import seeded_generator


def replay_count(share: float, count: int) -> int:
    """How many utterances make up `share`, in (0, 1), of an epoch with `count` others; 1 or more.

    Raises:
        ValueError: `share` out of range.
    """
    if not 0 < share < 1:
        raise ValueError(f"`replay_share` must be above 0 and below 1, but is {share}.")
    return max(1, round(share / (1 - share) * count))


def rotation(available: int, wanted: int, seed: int) -> list[list[int]]:
    """Groups of utterances, one for each epoch in turn, that go through all there are.

    Epoch e has group e mod the number of groups. Each group has `wanted` of them, and between two
    uses of an utterance nearly all others have been used. More than there are: all of them as often
    as they fit, and a group of the rest.

    Args:
        available: utterances to choose from, at least 1.
        wanted: utterances of a group, at least 1.
        seed: of their order.

    Returns:
        Lists of indices in [0, available), a function of the arguments alone.
    """
    order = torch.randperm(available, generator=seeded_generator("replay", seed)).tolist()
    whole, rest = divmod(wanted, available)
    groups = -(-available // rest) if rest else 1
    return [
        order * whole + [order[(group * rest + i) % available] for i in range(rest)]
        for group in range(groups)
    ]
