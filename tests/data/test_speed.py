"""Speed perturbation, and all augmentation together in the data module."""

import math
import re

import pytest
import torch

from asr_ascend.data.augment import SpecAugment, SpeedPerturbation
from asr_ascend.data.noise import make_noise_bank
from asr_ascend.data.rooms import make_rooms
from asr_ascend.data.seeding import seeded_generator
from tests.support.data_module import make_data_module

TEXTS = ["ab", "ba", "abba", "b", "a b", "bab", "aab", "bba"]
CLEAN = {"noise_clips": 4, "noise_clip_seconds": 1.0}


def make_module(manifests, **changes):
    module = make_data_module(*manifests, **{**CLEAN, **changes})
    module.setup("fit")
    return module


def features_by_id(module, epoch=0):
    """Features of each training utterance as they are in an epoch."""
    dataset = module.train_dataset
    batch = dataset[(epoch, range(len(dataset)))]
    return {
        name: batch.features[row, : batch.feature_lengths[row]]
        for row, name in enumerate(batch.ids)
    }


@pytest.fixture
def manifests(tone_corpus):
    return tone_corpus("train", TEXTS), tone_corpus("valid", ["ab", "ba"])


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_speed_changes_length_and_pitch(factor):
    wave = torch.sin(2 * math.pi * 1000 * torch.arange(16000) / 16000)
    faster = SpeedPerturbation()(wave, factor)
    assert abs(len(faster) - 16000 / factor) <= 1
    spectrum = torch.fft.rfft(faster * torch.hann_window(len(faster))).abs()
    assert int(spectrum.argmax()) * 16000 / len(faster) == pytest.approx(1000 * factor, abs=1)
    middle = slice(2000, 12000)
    assert float(faster[middle].square().mean()) == pytest.approx(0.5, rel=1e-2)


def test_a_factor_of_one_changes_nothing():
    wave = torch.randn(100, generator=seeded_generator(0))
    assert SpeedPerturbation()(wave, 1.0) is wave


def test_speeds_are_drawn_by_seed_epoch_and_id(manifests):
    plain = features_by_id(make_module(manifests))
    module = make_module(manifests, speed_factors=[0.9, 1.0, 1.1])
    ratios = []
    for epoch in range(12):
        heard = features_by_id(module, epoch)
        ratios += [round(len(plain[name]) / len(heard[name]), 1) for name in plain]
    shares = {ratio: ratios.count(ratio) / len(ratios) for ratio in sorted(set(ratios))}
    assert list(shares) == [0.9, 1.0, 1.1]
    assert all(0.2 < share < 0.47 for share in shares.values())
    # One utterance alone, in another module: the same bits.
    again = make_module(manifests, speed_factors=[0.9, 1.0, 1.1])
    alone = again.train_dataset[(11, [3])]
    assert torch.equal(alone.features[0], heard["train3"])
    other = make_module(manifests, speed_factors=[0.9, 1.0, 1.1], seed=1)
    lengths = [[len(f) for f in features_by_id(m).values()] for m in (module, other)]
    assert lengths[0] != lengths[1]


def test_speed_leaves_the_other_draws_alone(manifests):
    """Noise and masks of an utterance at its own speed are those of a run without perturbation."""
    noisy = {"noise_probability": 0.8, "spec_augment": {}}
    plain = features_by_id(make_module(manifests, **noisy), 2)
    perturbed = features_by_id(make_module(manifests, **noisy, speed_factors=[0.9, 1.0, 1.1]), 2)
    same = [name for name in plain if len(plain[name]) == len(perturbed[name])]
    assert 0 < len(same) < len(plain)
    assert all(torch.equal(plain[name], perturbed[name]) for name in same)


def test_a_speed_that_breaks_a_limit_is_not_drawn(tone_corpus):
    # 1.00 s is 98 frames, 23 of the encoder: as many tokens fit as they are, none faster.
    manifests = tone_corpus("train", ["ab" * 11 + "a"]), tone_corpus("valid", ["ab"])
    dataset = make_module(manifests, speed_factors=[0.9, 1.0, 1.1]).train_dataset
    assert dataset.speeds(0) == [0.9, 1.0]
    assert dataset.longest_seconds(0) == pytest.approx(1 / 0.9)
    tight = make_module(manifests, speed_factors=[0.9, 1.0, 1.1], max_utterance_seconds=1.05)
    assert tight.train_dataset.speeds(0) == [1.0]
    assert tight.train_dataset.longest_seconds(0) == 1.0


def test_batches_have_room_for_slow_speech(manifests):
    module = make_module(manifests, speed_factors=[0.5], max_batch_seconds=4.0)
    longest = 0.0
    for batch in module.train_dataloader():
        assert batch.num_skipped == {}
        frames = int(batch.feature_lengths.max()) * len(batch.ids)
        longest = max(longest, frames / 100)
        assert frames / 100 <= 4.0
    assert longest > 2.0
    assert len(module.train_dataloader()) > len(
        make_module(manifests, max_batch_seconds=4.0).train_dataloader()
    )


def test_validation_is_heard_as_it_is(manifests):
    plain, perturbed = (
        make_module(manifests, speed_factors=factors).val_dataloader()[0]
        for factors in ([1.0], [0.9])
    )
    assert torch.equal(plain.features, perturbed.features)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Two noise banks and a folder of rooms."""
    pytest.importorskip("pyroomacoustics", reason="needs pip install 'asr-ascend[rooms]'")
    folder = tmp_path_factory.mktemp("stored")
    make_noise_bank(folder / "fans", 2, 2.0, ["cooler_fans"])
    make_noise_bank(folder / "hum", 2, 2.0, ["oil_transformer"])
    make_rooms(folder / "rooms", 4)
    return folder


def test_banks_and_rooms_by_config(manifests, stored):
    settings = {
        "noise_probability": 1.0,
        "snr_db": (0.0, 0.0),
        "noise_banks": [str(stored / "fans"), str(stored / "hum")],
        "rooms_dir": str(stored / "rooms"),
        "room_probability": 0.5,
        "speed_factors": [0.9, 1.0, 1.1],
        "spec_augment": {},
    }
    first = features_by_id(make_module(manifests, **settings), 3)
    module = make_module(manifests, **settings, num_workers=2)
    assert all(torch.equal(f, first[n]) for n, f in features_by_id(module, 3).items())
    loader = module.train_dataloader()
    loader.sampler.set_epoch(3)
    for batch in loader:
        for row, name in enumerate(batch.ids):
            assert torch.equal(batch.features[row, : batch.feature_lengths[row]], first[name])
    clean = features_by_id(make_module(manifests), 3)
    assert all(len(first[n]) != len(clean[n]) or not torch.equal(first[n], clean[n]) for n in clean)


def test_weights_choose_the_bank(manifests, stored):
    """Fans fill the high bands, hum leaves them to the speech."""
    high = {}
    for weights in ([1.0, 0.0], [0.0, 1.0]):
        settings = {"noise_banks": [str(stored / "fans"), str(stored / "hum")]}
        module = make_module(
            manifests, **settings, noise_weights=weights, noise_probability=1.0, snr_db=(0.0, 0.0)
        )
        high[weights[0]] = min(float(f[:, 60:].mean()) for f in features_by_id(module).values())
    assert high[1.0] > high[0.0] + 1.0


def test_rooms_change_what_they_are_drawn_for(manifests, stored):
    plain = features_by_id(make_module(manifests))
    changed = []
    for epoch in range(4):
        settings = {"rooms_dir": str(stored / "rooms"), "room_probability": 0.5}
        heard = features_by_id(make_module(manifests, **settings), epoch)
        changed += [not torch.equal(plain[name], heard[name]) for name in plain]
        assert all(len(plain[name]) == len(heard[name]) for name in plain)
    assert 0.25 < sum(changed) / len(changed) < 0.75


def test_validation_noise_from_banks(manifests, stored):
    settings = {"valid_snr_db": 0.0, "valid_noise_banks": [str(stored / "hum")]}
    hum = make_module(manifests, **settings).val_dataloader()
    simulated = make_module(manifests, valid_snr_db=0.0).val_dataloader()
    assert torch.equal(hum[0].features, hum[0].features)
    assert not torch.equal(hum[0].features, simulated[0].features)


def test_widths_of_masks_are_uniform():
    augment = SpecAugment(num_freq_masks=1, max_freq_bins=3, num_time_masks=0)
    features = torch.ones(10, 80)
    widths = [
        int((augment(features, seeded_generator("mask", n)) == 0).any(0).sum()) for n in range(800)
    ]
    assert [160 < widths.count(width) < 240 for width in range(4)] == [True] * 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"speed_factors": [0.1]},
            "`data.speed_factors` must be a list of values, each a number in [0.5, 2], but is "
            "[0.1].",
        ),
        (
            {"room_probability": 2.0},
            "`data.room_probability` must be a number in [0, 1], but is 2.0.",
        ),
        (
            {"noise_weights": [1.0]},
            "`data.noise_weights` must be null without `data.noise_banks`, but is given.",
        ),
        ({"rooms_dir": "nowhere"}, "The folder of rooms nowhere is not a folder."),
    ],
)
def test_errors_of_augmentation(changes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make_data_module("a.jsonl", "b.jsonl", **changes)


def test_a_bank_that_is_none_is_told_at_setup(manifests, tmp_path):
    message = f"{tmp_path} has no index.json."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make_module(manifests, noise_probability=1.0, noise_banks=[str(tmp_path)])
