"""Responses of rooms, made in advance and applied to speech in training.

``python -m asr_ascend.data.rooms --out data/rooms`` makes a folder of them.
"""

from asr_ascend.data.rooms.mix import RoomMix, room_mix
from asr_ascend.data.rooms.responses import PLACES, RoomResponses, make_rooms, reverberate

__all__ = ["PLACES", "RoomMix", "RoomResponses", "make_rooms", "reverberate", "room_mix"]
