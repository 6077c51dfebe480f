"""Older data mixed back into a fine-tuning, so that the model doesn't forget it."""

from __future__ import annotations

import torch

from asr_ascend.data.seeding import seeded_generator


def replay_count(share: float, count: int) -> int:
    """Returns how many utterances make up `share` of an epoch with `count` others, at least 1.

    `share` lies in (0, 1).

    Raises:
        ValueError: `share` is out of range.
    """
    if not 0 < share < 1:
        raise ValueError(f"`replay_share` must be above 0 and below 1, but is {share}.")
    return max(1, round(share / (1 - share) * count))


def rotation(available: int, wanted: int, seed: int) -> list[list[int]]:
    """Divides the utterances into groups of `wanted`, one for each epoch in turn.

    Epoch e uses group e mod the number of groups. Between two uses of an utterance nearly all
    others are used. Where `wanted` exceeds `available`, each group has every utterance as often as
    it fits, and some once more.

    Args:
        available: utterances to choose from, at least 1.
        wanted: utterances of a group, at least 1.
        seed: of their order.

    Returns:
        Lists of indices in [0, available), which depend only on the arguments.
    """
    order = torch.randperm(available, generator=seeded_generator("replay", seed)).tolist()
    whole, rest = divmod(wanted, available)
    groups = -(-available // rest) if rest else 1
    return [
        order * whole + [order[(group * rest + i) % available] for i in range(rest)]
        for group in range(groups)
    ]
