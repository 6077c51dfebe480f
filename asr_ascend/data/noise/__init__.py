"""Substation noise: simulated or recorded, in banks to crop from, mixed at an SNR.

``python -m asr_ascend.data.noise --help`` writes every profile as sound and picture, and makes
banks of simulated noise and of your own recordings.
"""

from asr_ascend.data.clip_folder import NoiseError
from asr_ascend.data.noise.bank import (
    NoiseBank,
    NoiseSource,
    StoredBank,
    WeightedBanks,
    make_noise_bank,
)
from asr_ascend.data.noise.equipment import EQUIPMENT, TRAINING_EQUIPMENT, equipment_noise
from asr_ascend.data.noise.kinds import KINDS, TRAINING_KINDS, substation_noise
from asr_ascend.data.noise.levels import level_db, level_dba
from asr_ascend.data.noise.mixing import active_speech_power, is_active, mix_at_snr
from asr_ascend.data.noise.recordings import import_recordings
from asr_ascend.data.noise.simulate import check_names, simulated_noise

__all__ = [
    "EQUIPMENT",
    "KINDS",
    "TRAINING_EQUIPMENT",
    "TRAINING_KINDS",
    "NoiseBank",
    "NoiseError",
    "NoiseSource",
    "StoredBank",
    "WeightedBanks",
    "active_speech_power",
    "check_names",
    "equipment_noise",
    "import_recordings",
    "is_active",
    "level_db",
    "level_dba",
    "make_noise_bank",
    "mix_at_snr",
    "simulated_noise",
    "substation_noise",
]
