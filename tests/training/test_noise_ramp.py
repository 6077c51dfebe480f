"""Noise that rises over the first epochs."""

import pytest

from asr_ascend.data.augment import SpecAugment
from asr_ascend.data.dataset import NoiseMix, SpeechDataset
from asr_ascend.data.features import LogMel
from asr_ascend.data.filtering import Limits
from asr_ascend.data.noise import NoiseBank
from asr_ascend.training.callbacks import NoiseRamp


@pytest.fixture
def dataset():
    bank = NoiseBank(num_clips=1, clip_seconds=0.1)
    limits = Limits(20.0, 10, 4, 2**20, None)
    noise = NoiseMix(bank, (-5.0, 20.0), 0.8)
    return SpeechDataset([], [], LogMel(), limits, noise=noise, spec_augment=SpecAugment())


def test_snr_falls_to_what_the_config_says_and_specaugment_comes_last(dataset):
    masks = dataset.spec_augment
    ramp = NoiseRamp(dataset, epochs=4, raise_db=30.0)
    seen = []
    for epoch in (0, 1, 2, 3, 4, 5, 1):  # back again: only the number of the epoch counts
        ramp.set_epoch(epoch)
        seen.append((dataset.noise.snr_db, dataset.spec_augment is masks))
    assert seen == [
        ((25.0, 50.0), False),
        ((17.5, 42.5), False),
        ((10.0, 35.0), False),
        ((2.5, 27.5), False),
        ((-5.0, 20.0), True),
        ((-5.0, 20.0), True),
        ((17.5, 42.5), False),
    ]
    assert dataset.noise.probability == 0.8


def test_without_a_ramp_all_noise_comes_at_once(dataset):
    NoiseRamp(dataset, epochs=0, raise_db=30.0).set_epoch(0)
    assert dataset.noise.snr_db == (-5.0, 20.0)
    assert dataset.spec_augment is not None


def test_clean_training_stays_clean(dataset):
    dataset.noise = None
    NoiseRamp(dataset, epochs=4, raise_db=30.0).set_epoch(0)
    assert dataset.noise is None
