"""Splitting one set into several, the same way every time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from asr_ascend.data.manifest import Utterance

KEYS = ("id", "speaker", "text")


def hold_out(
    utterances: Sequence[Utterance], shares: Mapping[str, float], rest: str, key: str = "id"
) -> dict[str, list[Utterance]]:
    """Splits utterances into the set `rest` and the sets that are held out.

    A hash of an utterance's key decides its set. Utterances of one key stay together, and
    recordings added later don't move the present ones.

    Args:
        utterances: to split; their order stays.
        shares: share of the keys for each set held out, in (0, 1); their sum is below 1.
        rest: name of the set that gets the others.
        key: "id"; "speaker" or "text", so that no speaker or text is in two sets.

    Raises:
        ValueError: a share is out of range, a name is used twice, or an utterance lacks the key.
    """
    if key not in KEYS:
        raise ValueError(f"`key` must be one of {', '.join(KEYS)}, but is '{key}'.")
    for name, share in shares.items():
        if not 0 < share < 1:
            raise ValueError(f"The share of '{name}' must be in (0, 1), but is {share:g}.")
    if sum(shares.values()) >= 1:
        raise ValueError(f"The shares must be below 1 together, but are {sum(shares.values()):g}.")
    if rest in shares:
        raise ValueError(f"'{rest}' is the set that gets the rest, and can't be held out as well.")
    sets: dict[str, list[Utterance]] = {name: [] for name in (rest, *shares)}
    for utterance in utterances:
        value = getattr(utterance, key)
        if value is None:
            raise ValueError(f"Utterance '{utterance.id}' has no {key} to hold out by.")
        sets[_choose(value, shares, rest)].append(utterance)
    return sets


def _choose(value: str, shares: Mapping[str, float], rest: str) -> str:
    digest = hashlib.sha256(value.encode(errors="surrogatepass")).digest()
    position = int.from_bytes(digest[:8], "big") / 2**64
    for name, share in shares.items():
        if position < share:
            return name
        position -= share
    return rest
