"""The noise command: what it shows, makes and refuses."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile
import torch

from asr_ascend.data.clip_folder import read_index
from asr_ascend.data.noise.command import main


def tone(seconds, rate_hz):
    return 0.1 * torch.sin(torch.arange(round(seconds * rate_hz)) * (2 * math.pi * 440 / rate_hz))


@pytest.fixture
def recordings(tmp_path):
    """A folder of three recordings, one of them stereo."""
    folder = tmp_path / "yard"
    folder.mkdir()
    soundfile.write(folder / "a.wav", tone(1.5, 44100).numpy(), 44100)
    soundfile.write(folder / "b.flac", torch.stack([tone(2.5, 48000)] * 2, 1).numpy(), 48000)
    soundfile.write(folder / "c.ogg", tone(1.2, 16000).numpy(), 16000)
    return folder


def test_the_command_shows_profiles(tmp_path, capsys):
    soundfile.write(tmp_path / "speech.wav", tone(1.0, 16000).numpy(), 16000)
    arguments = ["--profiles", "filter_reactor", "tap_changer", "--seconds", "1"]
    speech = ["--speech", str(tmp_path / "speech.wav"), "--snr-db", "5"]
    assert main(["--out", str(tmp_path / "show"), *arguments, *speech]) == 0
    assert sorted(path.name for path in (tmp_path / "show").iterdir()) == [
        "filter_reactor.png",
        "filter_reactor.wav",
        "noise.png",
        "speech.png",
        "speech_5dB.wav",
        "tap_changer.png",
        "tap_changer.wav",
    ]
    assert soundfile.info(tmp_path / "show" / "filter_reactor.wav").frames == 16000
    assert "filter_reactor" in capsys.readouterr().out
    assert main(["--out", str(tmp_path / "show"), "--profiles", "rain"]) == 2
    assert capsys.readouterr().err.startswith("Error: `profiles` must name one or more of oil_")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seconds", "0"], "--seconds must be above 0, but is 0."),
        (["--mains-hz", "55"], "`mains_hz` must be 50 or 60, but is 55.0."),
        (["--sample-rate-hz", "4000"], "`sample_rate_hz` must be at least 8000, but is 4000."),
        (["--snr-db", "5", "nan"], "--snr-db must be finite, but is nan."),
        (["--speech", "no.wav"], "no.wav cannot be read as audio: there is no such file"),
    ],
)
def test_options_are_checked_before_anything_is_made(tmp_path, capsys, arguments, message):
    assert main(["--out", str(tmp_path / "show"), *arguments]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"Error: {message}\n")
    assert not (tmp_path / "show").exists()


def test_the_command_makes_banks(recordings, tmp_path, capsys):
    out = str(tmp_path / "bank")
    arguments = ["bank", "--out", out, "--clips", "2", "--seconds", "0.2", "--workers", "1"]
    assert main(arguments) == 0
    told = capsys.readouterr().out
    assert f"Wrote {out}: 2 clips, 0.0 min. Train with data.noise_banks=[{out}]" in told
    assert main(arguments) == 0
    assert capsys.readouterr().out == (f"{out} is up to date (2 clips, 0.0 min): nothing to do.\n")
    own = str(tmp_path / "own")
    assert main(["recordings", str(recordings), "--out", own, "--workers", "1"]) == 2
    assert capsys.readouterr().err == (
        f"Error: {recordings}/b.flac has 2 channels: choose one with --channel 0 to 1, or "
        "--channel mean.\n"
    )
    mean = ["recordings", str(recordings), "--out", own, "--channel", "mean"]
    assert main(mean) == 0
    told = f"Wrote {own}: 3 clips, 0.1 min. Train with data.noise_banks=[{own}]\n"
    assert capsys.readouterr().out == told
    assert main(mean) == 0
    assert capsys.readouterr().out == f"{own} is up to date (3 clips, 0.1 min): nothing to do.\n"
    assert main(["recordings", str(recordings), "--out", own, "--channel", "x"]) == 2
    assert (
        capsys.readouterr().err == "Error: --channel must be a number from 0 or mean, but is x.\n"
    )


def test_a_bank_beside_its_recordings_is_up_to_date_too(recordings, capsys):
    out = recordings / "bank"
    arguments = ["recordings", str(recordings), "--out", str(out), "--channel", "0"]
    arguments += ["--workers", "1"]
    assert main(arguments) == 0
    assert main(arguments) == 0
    told = f"{out} is up to date (3 clips, 0.1 min): nothing to do.\n"
    assert capsys.readouterr().out.endswith(told)


def test_a_full_disk_is_told_in_a_sentence(tmp_path, capsys, monkeypatch):
    write_bytes = Path.write_bytes

    def full(path, content):
        if "clip-00001" in path.name:
            raise OSError(28, "No space left on device")
        return write_bytes(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    out = tmp_path / "bank"
    arguments = ["bank", "--out", str(out), "--clips", "3", "--seconds", "0.2", "--workers", "1"]
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"Error: {out / 'clip-00001.wav'}: No space left on device.\n"
    assert sorted(path.name for path in out.iterdir()) == [".made.jsonl", "clip-00000.wav"]
    monkeypatch.undo()
    assert main(arguments) == 0
    assert len(read_index(out)["clips"]) == 3


def test_the_module_runs(tmp_path):
    command = [
        sys.executable,
        "-W",
        "error::RuntimeWarning",
        "-m",
        "asr_ascend.data.noise",
        "--help",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=True)
    assert "oil_transformer" in done.stdout and done.stderr == ""
