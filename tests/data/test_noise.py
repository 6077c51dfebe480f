"""Substation noise: spectrum, level, SNR, seeds; SpecAugment."""

import math
import re

import pytest
import torch

from asr_ascend.data.augment import SpecAugment
from asr_ascend.data.noise import (
    KINDS,
    NoiseBank,
    active_speech_power,
    mix_at_snr,
    substation_noise,
)
from asr_ascend.data.seeding import seeded_generator, stable_seed


def band_power(wave, low_hz, high_hz, rate_hz=16000):
    """Power between two frequencies by Parseval, under a Hann window."""
    spectrum = torch.fft.rfft(wave.double() * torch.hann_window(len(wave), dtype=torch.float64))
    frequencies = torch.fft.rfftfreq(len(wave), 1 / rate_hz)
    inside = (frequencies >= low_hz) & (frequencies < high_hz)
    return float((spectrum[inside].abs() ** 2).sum() / (spectrum.abs() ** 2).sum())


@pytest.mark.parametrize("mains_hz", [50, 60])
@pytest.mark.parametrize("seed", range(4))
def test_hum_is_at_harmonics_of_twice_the_mains(mains_hz, seed):
    wave = substation_noise(64000, generator=seed, kinds=("hum",), mains_hz=mains_hz)
    twice = 2 * mains_hz
    # The mains drifts by 0.4% at most, so harmonic k lies within 0.4% of k * 2f, plus modulation.
    powers = [band_power(wave, k * twice * 0.995 - 4, k * twice * 1.005 + 4) for k in range(1, 14)]
    mains = band_power(wave, mains_hz - 5, mains_hz + 5)
    assert sum(powers) + mains > 0.999
    assert 1e-5 < mains < 0.02
    assert powers[0] > 0.15
    assert all(power > 1e-9 for power in powers)
    assert band_power(wave, 14 * twice, 8000) < 1e-6


def test_drift_stays_within_the_grids():
    peaks = []
    for seed in range(8):
        wave = substation_noise(160000, generator=seed, kinds=("hum",))
        spectrum = torch.fft.rfft(wave).abs()
        peaks.append((900 + int(spectrum[900:1100].argmax())) / 10)
    assert all(99.5 <= peak <= 100.5 for peak in peaks)
    assert len(set(peaks)) > 3


@pytest.mark.parametrize("seed", range(4))
def test_fan_is_broadband(seed):
    wave = substation_noise(64000, generator=seed, kinds=("fan",))
    below, middle, high = (band_power(wave, *band) for band in ((0, 60), (100, 3000), (3000, 8000)))
    assert below < 0.02
    assert middle > 0.5
    assert high > 0.02
    tones = max(band_power(wave, hz, hz + 10) for hz in range(100, 1000, 10))
    assert tones < 0.1


@pytest.mark.parametrize("seed", range(4))
def test_impulses_last_as_long_as_a_tap_changers(seed):
    wave = substation_noise(16000, generator=seed, kinds=("impulse",))
    sounding = wave.nonzero()
    length_ms = float(sounding[-1] - sounding[0] + 1) / 16
    assert 39 <= length_ms <= 71


@pytest.mark.parametrize("seed", range(4))
def test_corona_is_above_1_khz_and_gated_at_twice_the_mains(seed):
    wave = substation_noise(64000, generator=seed, kinds=("corona",))
    assert band_power(wave, 1000, 8000) + band_power(wave, 98, 102) > 0.98
    assert band_power(wave, 2500, 8000) > 0.5
    spectrum = torch.fft.rfft(wave)
    spectrum[: 64000 * 900 // 16000] = 0  # without the tone at 100 Hz
    envelope = torch.fft.irfft(spectrum, n=64000).square()
    modulation = torch.fft.rfft(envelope - envelope.mean()).abs()[: 4 * 400]
    assert abs(int(modulation.argmax()) / 4 - 100) < 1


@pytest.mark.parametrize("kinds", [KINDS, ("hum", "fan", "impulse"), ("corona",)])
def test_unit_power_and_seeded(kinds):
    wave = substation_noise(30000, generator=3, kinds=kinds)
    assert wave.dtype == torch.float32
    assert float(wave.double().square().mean()) == pytest.approx(1.0, abs=1e-5)
    assert torch.equal(wave, substation_noise(30000, generator=3, kinds=kinds))
    assert not torch.equal(wave, substation_noise(30000, generator=4, kinds=kinds))
    before = torch.get_rng_state()
    substation_noise(1000, generator=5, kinds=kinds)
    assert torch.equal(before, torch.get_rng_state())


def test_active_power_leaves_out_silence():
    # 20 ms frames of 320 samples: ten at 0.5, ten at 30 dB less, ten at 50 dB less, ten silent.
    levels = [0.5, 0.5 * 10 ** (-30 / 20), 0.5 * 10 ** (-50 / 20), 0.0]
    speech = torch.cat([torch.full((3200,), level) for level in levels])
    assert active_speech_power(speech) == pytest.approx(0.25 * (1 + 1e-3) / 2, rel=1e-6)
    assert active_speech_power(torch.zeros(1000)) == 0
    assert active_speech_power(torch.zeros(0)) == 0
    assert active_speech_power(torch.full((100,), 0.5)) == pytest.approx(0.25)


@pytest.mark.parametrize("snr_db", [20.0, 5.0, 0.0, -5.0])
def test_mixture_has_the_snr(snr_db):
    voiced = torch.sin(torch.arange(16000) * 0.1) * 0.3
    speech = torch.cat([torch.zeros(8000), voiced, torch.zeros(8000)])
    noise = substation_noise(32000, generator=1)
    added = mix_at_snr(speech, noise, snr_db) - speech
    found_db = 10 * math.log10(float(voiced.square().mean() / added.double().square().mean()))
    assert abs(found_db - snr_db) < 0.1
    torch.testing.assert_close(added / added.std(), noise / noise.std(), atol=1e-3, rtol=1e-3)


def test_silent_and_empty_speech_come_back():
    assert torch.equal(mix_at_snr(torch.zeros(500), torch.ones(500), 0.0), torch.zeros(500))
    assert mix_at_snr(torch.zeros(0), torch.zeros(0), 0.0).shape == (0,)


def test_bank_is_seeded_and_crops_by_the_generator_alone():
    bank, again = NoiseBank(4, 1.0, seed=7), NoiseBank(4, 1.0, seed=7)
    assert torch.equal(bank.clips, again.clips)
    assert not torch.equal(bank.clips, NoiseBank(4, 1.0, seed=8).clips)
    first = bank.crop(5000, seeded_generator(1))
    assert torch.equal(first, bank.crop(5000, seeded_generator(1)))
    assert not torch.equal(first, bank.crop(5000, seeded_generator(2)))
    windows = bank.clips.float().unfold(1, 5000, 1)
    assert bool((windows == first).all(-1).any())


def test_a_crop_longer_than_the_clips_repeats_them():
    bank = NoiseBank(1, 0.5)
    crop = bank.crop(20000, seeded_generator(0))
    assert crop.shape == (20000,)
    assert torch.equal(crop[:8000], bank.clips[0].float())
    assert torch.equal(crop[8000:16000], crop[:8000])


def test_bank_keeps_to_its_kinds():
    quiet = NoiseBank(6, 2.0, kinds=("hum",)).clips.float()
    assert all(band_power(clip, 1500, 8000) < 1e-5 for clip in quiet)
    loud = NoiseBank(6, 2.0, kinds=("corona",)).clips.float()
    assert all(band_power(clip, 1000, 8000) > 0.9 for clip in loud)


def test_spec_augment_hides_bands_and_spans():
    fill = torch.arange(80.0)
    augment = SpecAugment(fill=fill)
    features = torch.full((200, 80), -1.0)
    hidden_bins = hidden_frames = 0
    for seed in range(20):
        masked = augment(features, seeded_generator(seed))
        hidden = masked != features
        assert torch.equal(masked[hidden], fill.expand(200, 80)[hidden])
        bins, frames = hidden.all(0), hidden.all(1)
        assert torch.equal(hidden, bins[None, :] | frames[:, None])
        assert int(bins.sum()) <= 30 and int(frames.sum()) <= 40
        hidden_bins += int(bins.sum())
        hidden_frames += int(frames.sum())
        assert torch.equal(masked, augment(features, seeded_generator(seed)))
    assert hidden_bins > 100 and hidden_frames > 100
    assert bool((features == -1).all())


def test_spec_augment_leaves_short_utterances_their_time():
    augment = SpecAugment(num_freq_masks=0)
    features = torch.ones(40, 80)
    spans = [int((augment(features, seeded_generator(s)) == 0).all(1).sum()) for s in range(30)]
    assert 0 < max(spans) <= 10  # two spans of an eighth of 40 frames
    assert augment(torch.ones(0, 80), seeded_generator(0)).shape == (0, 80)


def test_stable_seed_does_not_depend_on_the_process():
    assert stable_seed(1, "a") == 1836665311988765781
    assert stable_seed("1", "a") == stable_seed(1, "a")
    assert stable_seed(1, "a") != stable_seed("1a")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: substation_noise(-1), "`num_samples` must not be negative, but is -1."),
        (
            lambda: substation_noise(10, 4000),
            "`sample_rate_hz` must be at least 8000, but is 4000.",
        ),
        (
            lambda: substation_noise(10, kinds=("rain",)),
            "`kinds` must name one or more of hum, fan, impulse, corona, but is ('rain',).",
        ),
        (
            lambda: substation_noise(10, kinds=()),
            "`kinds` must name one or more of hum, fan, impulse, corona, but is ().",
        ),
        (lambda: substation_noise(10, mains_hz=55), "`mains_hz` must be 50 or 60, but is 55."),
        (
            lambda: mix_at_snr(torch.ones(3), torch.ones(4), 0.0),
            "`speech` and `noise` must be 1-D and of one length, but have shapes (3,) and (4,).",
        ),
        (
            lambda: mix_at_snr(torch.ones(3), torch.ones(3), math.inf),
            "`snr_db` must be finite, but is inf.",
        ),
        (
            lambda: mix_at_snr(torch.ones(3), torch.zeros(3), 0.0),
            "`noise` must not be silent, but its power is 0.",
        ),
        (lambda: NoiseBank(0), "`num_clips` must be at least 1, but is 0."),
        (lambda: NoiseBank(1, 0.0), "`clip_seconds` must be at least 0.1, but is 0.0."),
        (
            lambda: SpecAugment(max_freq_bins=-1),
            "`max_freq_bins` must not be negative, but is -1.",
        ),
        (
            lambda: SpecAugment(max_time_fraction=2.0),
            "`max_time_fraction` must be in [0, 1], but is 2.0.",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call()
