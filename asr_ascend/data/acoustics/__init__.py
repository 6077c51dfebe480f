"""Noise, rooms and levels: the parts behind `asr_ascend.data.noise` and `asr_ascend.data.rooms`."""
