"""Equipment profiles: where their energy lies, how loud, how long, in time with the mains."""

import math
import re

import pytest
import torch

from asr_ascend.data.noise import KINDS, active_speech_power, events, mix_at_snr, substation_noise
from asr_ascend.data.noise.equipment import EQUIPMENT, TRAINING_EQUIPMENT, equipment_noise
from asr_ascend.data.noise.levels import a_weighting_db, at_level, level_db, level_dba
from asr_ascend.data.noise.mains import MAX_DEVIATION_HZ, Mains
from asr_ascend.data.noise.simulate import clip_kinds, simulated_noise
from asr_ascend.data.seeding import seeded_generator

RATE_HZ = 16000
STEADY = [name for name, profile in EQUIPMENT.items() if profile.steady]
TONAL = ["oil_transformer", "converter_transformer", "filter_reactor", "capacitor_bank"]


def spectrum(wave):
    """Power by bin under a Hann window, and the bins' frequencies in Hz."""
    window = torch.hann_window(len(wave), dtype=torch.float64)
    power = torch.fft.rfft(wave.double() * window).abs().square()
    return power / power.sum(), torch.fft.rfftfreq(len(wave), 1 / RATE_HZ, dtype=torch.float64)


def harmonics(wave, mains_hz):
    """Part of the power within 1.5% of each multiple of the mains, by multiple 1 to 40."""
    power, frequencies = spectrum(wave)
    found = {}
    for multiple in range(1, 41):
        centre = multiple * mains_hz
        inside = (frequencies - centre).abs() < max(2.0, MAX_DEVIATION_HZ * multiple + 2.0)
        found[multiple] = float(power[inside].sum())
    return found


@pytest.mark.parametrize("mains_hz", [50, 60])
@pytest.mark.parametrize("name", TONAL)
def test_hum_is_at_even_multiples_of_the_mains(name, mains_hz):
    for seed in range(3):
        wave = equipment_noise([name], 2 * RATE_HZ, generator=seed, mains_hz=mains_hz)
        found = harmonics(wave, mains_hz)
        even = sum(power for multiple, power in found.items() if multiple % 2 == 0)
        odd = sum(power for multiple, power in found.items() if multiple % 2 == 1)
        # The rest is the site's ambience, 15 dB softer at least.
        assert even > 0.95
        assert odd < 0.02
        assert sum(found[multiple] for multiple in range(28, 41)) < 1e-3  # none above 1300 Hz
        assert found[2] > 5e-4


def test_each_hum_has_its_own_spectrum():
    part = {name: [] for name in TONAL}
    for name in TONAL:
        for seed in range(8):
            found = harmonics(equipment_noise([name], 2 * RATE_HZ, generator=seed), 50)
            part[name].append([sum(found[m] for m in band) for band in ((2, 4), (10, 12, 14, 26))])
    low, high = ({n: [row[i] for row in rows] for n, rows in part.items()} for i in (0, 1))
    assert min(low["oil_transformer"]) > 0.7  # falls from 2f on
    assert max(low["converter_transformer"]) < 0.85  # 100 to 500 Hz alike
    assert min(high["filter_reactor"]) > max(high["oil_transformer"])  # 10f, 12f, 14f, 22f-26f


def test_the_mains_drifts_within_its_bounds_and_hum_follows():
    mains = Mains(60 * RATE_HZ, RATE_HZ, 50, seeded_generator("drift", 3))
    deviation = mains.frequency_hz - 50
    assert 0.01 < float(deviation.max() - deviation.min()) < 2 * MAX_DEVIATION_HZ
    assert float(deviation.abs().max()) <= MAX_DEVIATION_HZ
    assert float(deviation.diff().abs().max()) * RATE_HZ < 0.5  # Hz per second: no jumps
    assert float(mains.cycles[-1]) == pytest.approx(float(mains.frequency_hz.mean()) * 60)
    # The 20th multiple, demodulated at its nominal 1 kHz, turns with 20 times the deviation.
    time = torch.arange(mains.num_samples, dtype=torch.float64) / RATE_HZ
    turn = torch.polar(torch.ones_like(time), -2 * math.pi * 1000 * time)
    slow = (mains.tone(20, seeded_generator(1)) * turn).view(-1, 1600).mean(1).angle()
    steps = torch.remainder(slow.diff() + math.pi, 2 * math.pi) - math.pi
    tenths = deviation.view(-1, 1600).mean(1)
    expected = 20 * 2 * math.pi * (tenths[:-1] + tenths[1:]) / 2 * 0.1
    torch.testing.assert_close(steps, expected, atol=0.02, rtol=0)


@pytest.mark.parametrize("seed", range(3))
def test_corona_is_above_1_khz_and_gated_by_the_mains(seed):
    generator = seeded_generator("corona", seed)
    mains = Mains(4 * RATE_HZ, RATE_HZ, 50, generator)
    wave = EQUIPMENT["line_corona"].make(mains, generator)
    power, frequencies = spectrum(wave)
    hum = float(power[(frequencies > 90) & (frequencies < 110)].sum())
    assert 0.005 < hum < 0.3
    assert float(power[frequencies > 800].sum()) + hum > 0.95  # gating spreads the edge at 1 kHz
    crackle = torch.fft.rfft(wave)
    crackle[: 4 * 900] = 0
    envelope = torch.fft.irfft(crackle, n=len(wave)).square()
    # One cycle in 20 bins of 1 ms: bursts around both peaks of the voltage, near silence between.
    cycle = envelope.view(-1, 16).mean(1).view(-1, 20)[:25].mean(0)  # half a second: hardly drifts
    assert float(cycle.max()) > 30 * float(cycle.min())
    lines = torch.fft.rfft(envelope - envelope.mean()).abs()
    strongest = int(lines[4 * 20 : 4 * 400].argmax()) / 4 + 20
    assert min(abs(strongest - 50), abs(strongest - 100)) < 0.5


def test_fans_are_broadband():
    for seed in range(4):
        power, frequencies = spectrum(equipment_noise(["cooler_fans"], 4 * RATE_HZ, generator=seed))
        assert float(power[(frequencies > 200) & (frequencies < 8000)].sum()) > 0.5
        assert float(power[frequencies > 2000].sum()) > 0.02
        hundredths = [
            float(power[(frequencies >= hz) & (frequencies < hz + 10)].sum())
            for hz in range(20, 2000, 10)
        ]
        assert max(hundredths) < 0.2


@pytest.mark.parametrize(
    ("make", "shortest_ms", "longest_ms"),
    [(events.tap_change, 40, 70), (events.breaker_operation, 60, 150)],
)
def test_switching_lasts_as_long_as_its_source_says(make, shortest_ms, longest_ms):
    lengths = []
    for seed in range(40):
        wave = make(RATE_HZ, seeded_generator("switch", seed))
        lengths.append(len(wave) * 1000 / RATE_HZ)
        energy = wave.square().cumsum(0) / wave.square().sum()
        # It sounds through: 10 to 99.9% of its energy span a third of it at least.
        assert int((energy > 0.999).nonzero()[0] - (energy > 0.1).nonzero()[0]) > 0.15 * len(wave)
        assert float(wave[-16:].abs().max()) < 0.15 * float(wave.abs().max())
    assert shortest_ms <= min(lengths) < shortest_ms * 1.2
    assert longest_ms * 0.85 < max(lengths) <= longest_ms


@pytest.mark.parametrize("name", STEADY)
def test_steady_equipment_is_as_loud_as_its_profile(name):
    low, high = EQUIPMENT[name].level_dba
    levels = [
        level_dba(equipment_noise([name], RATE_HZ, generator=seed), RATE_HZ) for seed in range(20)
    ]
    assert low - 0.1 < min(levels) < (low + high) / 2 < max(levels) < high + 0.5
    assert max(levels) - min(levels) > 0.5 * (high - low)


def test_events_are_loud_while_they_sound():
    wave = torch.zeros(RATE_HZ)
    wave[4000:5600] = torch.sin(2 * math.pi * 1000 * torch.arange(1600) / RATE_HZ)
    scaled = events.at_event_level(wave, 90.0, RATE_HZ)
    assert level_db(scaled[4000:5600]) == pytest.approx(90.0, abs=0.1)
    assert float(scaled[:4000].abs().max()) == 0


def test_levels_are_those_of_the_standard():
    # IEC 61672-1, table 3.
    exact = {31.5: -39.4, 63.0: -26.2, 125.0: -16.1, 250.0: -8.6, 500.0: -3.2, 1000.0: 0.0}
    exact |= {2000.0: 1.2, 4000.0: 1.0, 8000.0: -1.1}
    octaves = 1000 * 10.0 ** (0.3 * torch.arange(-5, 4, dtype=torch.float64))
    torch.testing.assert_close(
        a_weighting_db(octaves),
        torch.tensor(list(exact.values()), dtype=torch.float64),
        atol=0.1,
        rtol=0,
    )
    # 94 dB is a pressure of 1 Pa, by the tone at 1 kHz with which meters are calibrated.
    tone = math.sqrt(2) * torch.sin(2 * math.pi * 1000 * torch.arange(RATE_HZ) / RATE_HZ)
    assert level_db(tone) == pytest.approx(93.98, abs=0.01)
    assert level_dba(tone, RATE_HZ) == pytest.approx(93.98, abs=0.01)
    hum = math.sqrt(2) * torch.sin(2 * math.pi * 100 * torch.arange(RATE_HZ) / RATE_HZ)
    assert level_dba(hum, RATE_HZ) == pytest.approx(93.98 - 19.14, abs=0.02)
    assert level_dba(at_level(hum, 80.0, RATE_HZ), RATE_HZ) == pytest.approx(80.0, abs=0.01)
    assert level_dba(torch.zeros(100), RATE_HZ) == level_db(torch.zeros(0)) == -math.inf


@pytest.mark.parametrize("snr_db", [15.0, 0.0, -5.0])
def test_equipment_is_mixed_at_the_snr(snr_db):
    voiced = torch.sin(torch.arange(16000) * 0.1) * 0.3
    speech = torch.cat([torch.zeros(8000), voiced, torch.zeros(8000)])
    noise = equipment_noise(list(EQUIPMENT), len(speech), generator=1)
    added = mix_at_snr(speech, noise, snr_db) - speech
    ratio = active_speech_power(speech) / float(added.double().square().mean())
    assert abs(10 * math.log10(ratio) - snr_db) < 0.1


@pytest.mark.parametrize("name", EQUIPMENT)
def test_a_seed_gives_the_same_bits(name):
    first = equipment_noise([name], 8000, generator=3)
    assert first.dtype == torch.float32 and first.shape == (8000,)
    assert torch.equal(first, equipment_noise([name], 8000, generator=3))
    assert not torch.equal(first, equipment_noise([name], 8000, generator=4))
    before = torch.get_rng_state()
    equipment_noise([name], 800, generator=5)
    assert torch.equal(before, torch.get_rng_state())
    assert equipment_noise([name], 0).shape == (0,)


def test_every_profile_tells_its_source():
    for profile in EQUIPMENT.values():
        assert "Source:" in profile.make.__doc__
        assert profile.about.endswith(".")
    assert set(EQUIPMENT) - set(TRAINING_EQUIPMENT) == {"line_corona"}


def test_noise_by_kind_or_by_equipment():
    assert torch.equal(
        simulated_noise(KINDS, 4000, RATE_HZ, 2), substation_noise(4000, RATE_HZ, 2, KINDS)
    )
    wave = simulated_noise(["oil_transformer", "cooler_fans"], 4000, RATE_HZ, 2)
    assert float(wave.double().square().mean()) == pytest.approx(1.0, abs=1e-5)
    pressure = equipment_noise(["oil_transformer", "cooler_fans"], 4000, RATE_HZ, 2)
    torch.testing.assert_close(wave / wave.std(), pressure / pressure.std())


def test_a_clip_has_one_steady_piece_and_sometimes_others():
    clips = [clip_kinds(TRAINING_EQUIPMENT, seeded_generator("clip", n)) for n in range(200)]
    assert all(any(EQUIPMENT[name].steady for name in clip) for clip in clips)
    for name in TRAINING_EQUIPMENT:
        share = sum(name in clip for clip in clips) / 200
        assert 0.2 < share < 0.6
    only_events = clip_kinds(["tap_changer"], seeded_generator(1))
    assert only_events == ["tap_changer"]


NAMES = (
    "oil_transformer, converter_transformer, filter_reactor, capacitor_bank, cooler_fans, "
    "line_corona, tap_changer, circuit_breaker"
)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: equipment_noise(["rain"], 10),
            f"`profiles` must name one or more of {NAMES}, but is ['rain'].",
        ),
        (
            lambda: equipment_noise([], 10),
            f"`profiles` must name one or more of {NAMES}, but is [].",
        ),
        (
            lambda: equipment_noise(["cooler_fans"], 10, 4000),
            "`sample_rate_hz` must be at least 8000, but is 4000.",
        ),
        (
            lambda: equipment_noise(["cooler_fans"], 10, mains_hz=55),
            "`mains_hz` must be 50 or 60, but is 55.",
        ),
        (
            lambda: simulated_noise(["hum", "tap_changer"], 10, RATE_HZ, 0),
            "Kinds of noise must be one or more of hum, fan, impulse, corona, or of the equipment "
            f"{NAMES}, but are ['hum', 'tap_changer'].",
        ),
    ],
)
def test_errors_of_equipment(call, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call()
