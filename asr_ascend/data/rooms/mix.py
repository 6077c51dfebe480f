"""How training hears rooms: which, and how often."""

from __future__ import annotations

from dataclasses import dataclass

from asr_ascend.data.rooms.responses import RoomResponses


@dataclass(frozen=True)
class RoomMix:
    """How rooms are heard.

    Args:
        responses: of the rooms, one drawn for an utterance.
        probability: of an utterance to be heard in one.
    """

    responses: RoomResponses
    probability: float = 0.5


def room_mix(folder: str | None, probability: float, sample_rate_hz: int) -> RoomMix | None:
    """Returns the rooms of a folder, or None where `folder` is None or `probability` is 0."""
    if folder is None or probability == 0:
        return None
    return RoomMix(RoomResponses(folder, sample_rate_hz), probability)
