"""Substation noise: simulated or recorded, in banks to crop from, mixed at an SNR."""

from asr_ascend.data.acoustics.bank import NoiseBank
from asr_ascend.data.acoustics.kinds import KINDS, TRAINING_KINDS, substation_noise
from asr_ascend.data.acoustics.mixing import active_speech_power, is_active, mix_at_snr

__all__ = [
    "KINDS",
    "TRAINING_KINDS",
    "NoiseBank",
    "active_speech_power",
    "is_active",
    "mix_at_snr",
    "substation_noise",
]
