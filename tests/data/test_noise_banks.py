"""Banks on disk: simulated and recorded, made once, cropped as a function of the draw alone."""

import hashlib
import json
import math
import re

import pytest
import soundfile
import torch

from asr_ascend.data.audio import load_audio
from asr_ascend.data.clip_folder import make_folder, read_index, write_clip
from asr_ascend.data.noise import (
    NoiseBank,
    NoiseError,
    StoredBank,
    WeightedBanks,
    import_recordings,
    make_noise_bank,
)
from asr_ascend.data.noise import bank as bank_module
from asr_ascend.data.seeding import seeded_generator

SMALL = {"num_clips": 5, "clip_seconds": 0.5, "seed": 3}


def digests(folder):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }


def tone(seconds, rate_hz, frequency_hz=440.0, level=0.1):
    time = torch.arange(round(seconds * rate_hz)) / rate_hz
    return level * torch.sin(2 * math.pi * frequency_hz * time)


@pytest.fixture(scope="module")
def small_bank(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bank") / "noise"
    assert make_noise_bank(folder, **SMALL)
    return folder


def test_a_bank_is_wavs_and_an_index_of_what_they_are(small_bank):
    index = read_index(small_bank)
    assert index["settings"]["seed"] == 3
    assert [clip["file"] for clip in index["clips"]] == [f"clip-0000{n}.wav" for n in range(5)]
    assert sorted(digests(small_bank)) == sorted(
        ["index.json", *(clip["file"] for clip in index["clips"])]
    )
    for clip in index["clips"]:
        info = soundfile.info(small_bank / clip["file"])
        assert (info.frames, info.samplerate, info.subtype) == (8000, 16000, "PCM_16")
        wave = load_audio(small_bank / clip["file"])
        assert float(wave.abs().max()) == pytest.approx(0.9, abs=1e-3)
        # The index tells the level that the file, scaled to its peak, has lost.
        pascal = wave.double() / 10 ** (clip["gain_db"] / 20)
        level = 10 * math.log10(float(pascal.square().mean()) / 20e-6**2)
        assert level == pytest.approx(clip["level_db"], abs=0.1)
        assert 30 < clip["level_dba"] < 101


def test_nothing_to_do_the_second_time_and_other_settings_are_refused(small_bank):
    before = digests(small_bank)
    assert not make_noise_bank(small_bank, **SMALL)
    message = f"{small_bank} holds files of other settings: choose another folder, or use --force."
    with pytest.raises(NoiseError, match=f"^{re.escape(message)}$"):
        make_noise_bank(small_bank, **{**SMALL, "seed": 4})
    assert digests(small_bank) == before


def test_any_number_of_workers_makes_the_same_bits(small_bank, tmp_path):
    make_noise_bank(tmp_path / "two", **SMALL, workers=2)
    assert digests(tmp_path / "two") == digests(small_bank)


def test_a_larger_bank_begins_with_the_same_clips(small_bank, tmp_path):
    make_noise_bank(tmp_path / "more", **{**SMALL, "num_clips": 6})
    more = digests(tmp_path / "more")
    assert all(more[n] == d for n, d in digests(small_bank).items() if n != "index.json")


def test_an_interrupted_bank_goes_on_where_it_was(small_bank, tmp_path, monkeypatch):
    folder = tmp_path / "broken"
    made = []
    make_clip = bank_module.make_clip

    def fails_at_three(where, job):
        if job["number"] == 3 and len(made) == 3:
            (where / ".clip-00003.wav.half").write_bytes(b"half")  # as a killed process leaves it
            raise KeyboardInterrupt
        made.append(job["number"])
        return make_clip(where, job)

    monkeypatch.setattr(bank_module, "make_clip", fails_at_three)
    with pytest.raises(KeyboardInterrupt):
        make_noise_bank(folder, **SMALL)
    with (folder / ".made.jsonl").open("a") as log:
        log.write('{"job": 3, "rec')  # cut off
    with pytest.raises(NoiseError, match="is unfinished, run the command that made it again"):
        StoredBank(folder)
    with pytest.raises(NoiseError, match="holds files of other settings"):
        make_noise_bank(folder, **{**SMALL, "seed": 4})
    (folder / "clip-00001.wav").unlink()
    made.append(None)
    make_noise_bank(folder, **SMALL)
    assert made == [0, 1, 2, None, 1, 3, 4]
    assert digests(folder) == digests(small_bank)


def test_force_removes_its_own_files_alone(small_bank, tmp_path):
    folder = tmp_path / "forced"
    make_noise_bank(folder, **{**SMALL, "num_clips": 7})
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(
        NoiseError, match=r"must be a new or an empty folder, but has notes\.txt\.$"
    ):
        make_noise_bank(folder, **SMALL, force=True)
    (folder / "notes.txt").unlink()
    make_noise_bank(folder, **SMALL, force=True)
    assert digests(folder) == digests(small_bank)


def test_a_failing_job_leaves_no_index(tmp_path):
    def fails(folder, job):
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        make_folder(tmp_path / "x", {}, [1], fails)
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == [".made.jsonl"]


def test_crops_are_of_the_clips_and_depend_on_the_generator_alone(small_bank):
    bank = StoredBank(small_bank)
    clips = torch.stack([load_audio(small_bank / clip["file"]) for clip in bank.clips])
    found = set()
    for seed in range(10):
        crop = bank.crop(3000, seeded_generator(seed))
        assert crop.shape == (3000,) and crop.dtype == torch.float32
        assert torch.equal(crop, bank.crop(3000, seeded_generator(seed)))
        inside = (clips.unfold(1, 3000, 1) == crop).all(-1)
        assert bool(inside.any())
        found.add(int(inside.any(1).nonzero()[0]))
    assert len(found) >= 3
    long = bank.crop(20000, seeded_generator(0))
    assert torch.equal(long[8000:16000], long[:8000])
    assert bank.crop(0, seeded_generator(0)).shape == (0,)


def test_weights_share_the_crops(small_bank):
    class Constant:
        def __init__(self, value):
            self.value = value

        def crop(self, num_samples, generator):
            return torch.full((num_samples,), float(self.value))

    banks = [Constant(0), Constant(1), Constant(2)]
    mixed = WeightedBanks(banks, [3, 0, 1])
    drawn = [int(mixed.crop(1, seeded_generator("w", n))) for n in range(400)]
    assert drawn.count(1) == 0
    assert 0.67 < drawn.count(0) / 400 < 0.83
    assert drawn == [int(mixed.crop(1, seeded_generator("w", n))) for n in range(400)]
    equal = WeightedBanks(banks)
    assert {int(equal.crop(1, seeded_generator("w", n))) for n in range(30)} == {0, 1, 2}
    # One bank alone is what it would be without weights.
    alone = WeightedBanks([StoredBank(small_bank)], [2])
    assert torch.equal(
        alone.crop(500, seeded_generator(1)), StoredBank(small_bank).crop(500, seeded_generator(1))
    )


def test_equipment_in_memory():
    bank = NoiseBank(3, 0.5, kinds=("oil_transformer", "cooler_fans"), seed=1)
    again = NoiseBank(3, 0.5, kinds=("oil_transformer", "cooler_fans"), seed=1)
    assert torch.equal(bank.clips, again.clips)
    power = bank.clips.double().square().mean(1)
    torch.testing.assert_close(power, torch.ones(3, dtype=torch.float64), atol=1e-2, rtol=0)


@pytest.fixture
def recordings(tmp_path):
    """A folder of one 48 kHz stereo flac, one 44.1 kHz float wav, one 8 kHz wav in a subfolder."""
    folder = tmp_path / "yard"
    (folder / "old").mkdir(parents=True)
    left, right = tone(2.5, 48000), tone(2.5, 48000, 1000.0, 0.2)
    soundfile.write(folder / "b.flac", torch.stack([left, right], 1).numpy(), 48000)
    soundfile.write(folder / "a.wav", tone(1.5, 44100).numpy(), 44100, subtype="FLOAT")
    soundfile.write(folder / "old" / "c.WAV", tone(1.2, 8000).numpy(), 8000, format="WAV")
    (folder / "notes.txt").write_text("not audio")
    return folder


def frequency_of(wave, rate_hz=16000):
    spectrum = torch.fft.rfft(wave * torch.hann_window(len(wave))).abs()
    return int(spectrum.argmax()) * rate_hz / len(wave)


def test_recordings_become_a_bank(recordings, tmp_path):
    out = tmp_path / "own"
    assert not import_recordings(recordings, out, channel=0, piece_seconds=1.0, min_seconds=0.4)
    index = read_index(out)
    pieces = [(c["recording"], c["start_seconds"], c["samples"]) for c in index["clips"]]
    assert pieces == [
        ("a.wav", 0.0, 16000),
        ("a.wav", 1.0, 8000),
        ("b.flac", 0.0, 16000),
        ("b.flac", 1.0, 16000),
        ("b.flac", 2.0, 8000),
        ("c.WAV", 0.0, 16000),  # its last fifth of a second is too short
    ]
    bank = StoredBank(out)
    for clip in bank.clips:
        wave = load_audio(out / clip["file"])
        assert frequency_of(wave) == pytest.approx(440, abs=3)
        assert float(wave.abs().max()) == pytest.approx(0.9, abs=1e-3)
    assert bank.crop(4000, seeded_generator(1)).shape == (4000,)
    import_recordings(recordings, tmp_path / "right", channel="mean", piece_seconds=1.0)
    name = next(
        c["file"] for c in read_index(tmp_path / "right")["clips"] if c["recording"][0] == "b"
    )
    wave = load_audio(tmp_path / "right" / name)
    assert frequency_of(wave) == pytest.approx(1000, abs=3)  # the louder of both channels


def test_workers_import_the_same_bits(recordings, tmp_path):
    problems = [
        f"{recordings}/{name} must have a channel 1, counted from 0, but has 1 of them."
        for name in ("a.wav", "old/c.WAV")
    ]
    for workers in (1, 2):
        left_out = import_recordings(
            recordings, tmp_path / str(workers), channel=1, skip_bad=True, workers=workers
        )
        assert left_out == problems
    assert digests(tmp_path / "1") == digests(tmp_path / "2")


def test_a_manifest_names_recordings(recordings, tmp_path):
    manifest = recordings / "noise.jsonl"
    lines = [{"audio_filepath": "a.wav"}, {"audio_filepath": "old/c.WAV"}]
    manifest.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    import_recordings(manifest, tmp_path / "own")
    assert {c["recording"] for c in read_index(tmp_path / "own")["clips"]} == {"a.wav", "c.WAV"}
    manifest.write_text('{"path": "a.wav"}\n[]\n')
    message = "\n".join(
        f"{manifest} line {n} must be a JSON object with audio_filepath." for n in (1, 2)
    )
    with pytest.raises(NoiseError, match=f"^{re.escape(message)}$"):
        import_recordings(manifest, tmp_path / "other")


def test_every_problem_is_told_in_a_sentence(recordings, tmp_path):
    nan = tone(2.0, 16000)
    nan[20000] = math.nan
    soundfile.write(recordings / "nan.wav", nan.numpy(), 16000, subtype="FLOAT")
    soundfile.write(recordings / "short.wav", tone(0.5, 16000).numpy(), 16000)
    soundfile.write(recordings / "silent.wav", torch.zeros(32000).numpy(), 16000)
    (recordings / "text.wav").write_text("not audio")
    expected = [
        f"{recordings}/b.flac has 2 channels: choose one with --channel 0 to 1, or --channel mean.",
        f"{recordings}/nan.wav holds NaN or infinity.",
        f"{recordings}/short.wav must last at least 1 s, but lasts 0.50 s.",
        f"{recordings}/silent.wav is silent: it stays below -80 dB of full scale.",
        f"{recordings}/text.wav cannot be read as audio: Format not recognised.",
    ]
    with pytest.raises(NoiseError) as caught:
        import_recordings(recordings, tmp_path / "own")
    assert caught.value.problems == expected
    assert not (tmp_path / "own").exists()
    assert import_recordings(recordings, tmp_path / "own", skip_bad=True) == expected
    assert {c["recording"] for c in read_index(tmp_path / "own")["clips"]} == {"a.wav", "c.WAV"}


def test_silent_pieces_are_left_out(tmp_path):
    wave = torch.cat([tone(1.0, 16000), torch.zeros(16000), tone(1.0, 16000)])
    (tmp_path / "in").mkdir()
    soundfile.write(tmp_path / "in" / "a.wav", wave.numpy(), 16000)
    import_recordings(tmp_path / "in", tmp_path / "out", piece_seconds=1.0)
    assert [c["start_seconds"] for c in read_index(tmp_path / "out")["clips"]] == [0.0, 2.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda folder: StoredBank(folder / "none"),
            "The noise bank {folder}/none is not a folder.",
        ),
        (lambda folder: StoredBank(folder), "{folder} has no index.json."),
        (
            lambda folder: import_recordings(folder / "none", folder / "x"),
            "{folder}/none must be a folder or a JSONL manifest, but is not there.",
        ),
        (
            lambda folder: import_recordings(folder, folder / "x"),
            "{folder} must have a recording, but has none.",
        ),
        (
            lambda folder: import_recordings(folder, folder / "x", min_seconds=30.0),
            "`min_seconds` must be above 0 and at most `piece_seconds` (20), but is 30.",
        ),
        (
            lambda folder: make_noise_bank(folder / "x", workers=0),
            "`workers` must be at least 1, but is 0.",
        ),
        (
            lambda folder: WeightedBanks([NoiseBank(1, 0.1)], [1.0, 2.0]),
            "`noise_weights` must hold one weight per bank (1), but holds 2.",
        ),
        (
            lambda folder: WeightedBanks([NoiseBank(1, 0.1)], [0]),
            "`noise_weights` must not be negative and not all be 0, but is [0].",
        ),
    ],
)
def test_errors_of_banks(make, message, tmp_path):
    with pytest.raises(ValueError, match=f"^{re.escape(message.format(folder=tmp_path))}$"):
        make(tmp_path)


def test_a_bank_of_another_rate_is_refused(small_bank):
    message = f"The noise bank {small_bank} must be at 8000 Hz, but is at 16000."
    with pytest.raises(NoiseError, match=f"^{re.escape(message)}$"):
        StoredBank(small_bank, 8000)


def test_peaks_and_silence_are_written(tmp_path):
    assert write_clip(tmp_path / "a.wav", torch.tensor([0.0, -0.09]), 16000) == pytest.approx(20.0)
    assert torch.equal(load_audio(tmp_path / "a.wav"), torch.tensor([0.0, -29490 / 32768]))
    assert write_clip(tmp_path / "b.wav", torch.zeros(3), 16000) == 0.0
