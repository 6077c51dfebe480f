"""Command line of `asr_ascend.data.noise`."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from asr_ascend.data.audio import print_warnings, read_audio
from asr_ascend.data.clip_folder import INDEX, read_index, write_clip
from asr_ascend.data.noise import pictures
from asr_ascend.data.noise.bank import make_noise_bank
from asr_ascend.data.noise.equipment import (
    EQUIPMENT,
    TRAINING_EQUIPMENT,
    check_profiles,
    equipment_noise,
)
from asr_ascend.data.noise.kinds import check_length
from asr_ascend.data.noise.levels import level_db, level_dba
from asr_ascend.data.noise.mixing import mix_at_snr
from asr_ascend.data.noise.recordings import import_recordings, parse_channel
from asr_ascend.data.seeding import seeded_generator
from asr_ascend.system.command import CommandParser, run_command
from asr_ascend.system.paths import path_argument

_COMMANDS = ("show", "bank", "recordings")
_SPEECH_DBA = (75.0, 85.0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status."""
    return run_command(lambda: _run(arguments), (ValueError, RuntimeError))


def _run(arguments: Sequence[str] | None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or (given[0].startswith("-") and given[0] not in ("-h", "--help")):
        given = ["show", *given]
    options = _parser().parse_args(given)
    return {"show": _show, "bank": _bank, "recordings": _recordings}[options.command](options)


def _show(options: argparse.Namespace) -> int:
    rate_hz = options.sample_rate_hz
    speech = _check_show(options)
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    sounds: dict[str, tuple[Tensor, bool]] = {}
    print(f"{'profile':<24}{'dB(A)':>7}{'dB':>7}   SNR in dB of speech at 75-85 dB")
    for name in options.profiles:
        profile = EQUIPMENT[name]
        generator = seeded_generator("show", options.seed, name)
        length = round(options.seconds * rate_hz)
        wave = equipment_noise([name], length, rate_hz, generator, options.mains_hz)
        dba, db = level_dba(wave, rate_hz), level_db(wave)
        snrs = " to ".join(f"{speech - db:.0f}" for speech in _SPEECH_DBA)
        print(f"{name:<24}{dba:>7.1f}{db:>7.1f}   {snrs}")
        write_clip(folder / f"{name}.wav", wave, rate_hz)
        title = f"{name}: {profile.about}\n{dba:.0f} dB(A), {db:.0f} dB, seed {options.seed}"
        event = not profile.steady
        pictures.draw_profile(folder / f"{name}.png", title, wave, rate_hz, options.mains_hz, event)
        sounds[f"{name}, {dba:.0f} dB(A)"] = (wave, event)
    title = f"Simulated substation noise, mains {options.mains_hz:g} Hz, seed {options.seed}"
    pictures.draw_overview(folder / "noise.png", title, sounds, rate_hz)
    if speech is not None:
        _show_speech(options, folder, speech)
    print(f"Wrote {folder}: a wav and a png of each, all spectrograms in noise.png.")
    return 0


def _check_show(options: argparse.Namespace) -> Tensor | None:
    """The speech, if there is any; ValueError for an option that doesn't fit."""
    check_profiles(options.profiles)
    if not 0 < options.seconds < math.inf:
        raise ValueError(f"--seconds must be above 0, but is {options.seconds:g}.")
    rate_hz = options.sample_rate_hz
    check_length(round(options.seconds * rate_hz), rate_hz, options.mains_hz)
    for snr_db in options.snr_db:
        if not math.isfinite(snr_db):
            raise ValueError(f"--snr-db must be finite, but is {snr_db}.")
    if not options.speech:
        return None
    recording = read_audio(options.speech, rate_hz)
    print_warnings(options.speech, recording.warnings)
    return recording.waveform


def _show_speech(options: argparse.Namespace, folder: Path, speech: Tensor) -> None:
    """Writes the clean speech, and the speech in the noise of all profiles at each SNR."""
    rate_hz = options.sample_rate_hz
    generator = seeded_generator("show speech", options.seed)
    noise = equipment_noise(options.profiles, speech.numel(), rate_hz, generator, options.mains_hz)
    stem = Path(options.speech).stem
    sounds: dict[str, tuple[Tensor, bool]] = {"clean": (speech, True)}
    for snr_db in options.snr_db:
        mixed = mix_at_snr(speech, noise, snr_db, rate_hz)
        write_clip(folder / f"{stem}_{snr_db:g}dB.wav", mixed, rate_hz)
        sounds[f"SNR {snr_db:g} dB"] = (mixed, True)
    title = f"{stem} in {', '.join(options.profiles)}"
    pictures.draw_overview(folder / f"{stem}.png", title, sounds, rate_hz)


def _bank(options: argparse.Namespace) -> int:
    made = make_noise_bank(
        options.out,
        options.clips,
        options.seconds,
        options.profiles,
        options.seed,
        options.sample_rate_hz,
        options.mains_hz,
        options.workers,
        options.force,
    )
    _report(Path(options.out), made)
    return 0


def _recordings(options: argparse.Namespace) -> int:
    channel = None if options.channel is None else parse_channel(options.channel)
    made = options.force or not (Path(options.out) / INDEX).is_file()
    problems = import_recordings(
        options.source,
        options.out,
        channel,
        options.min_seconds,
        options.seconds,
        options.sample_rate_hz,
        options.skip_bad,
        options.workers,
        options.force,
    )
    for problem in problems:
        print(f"Left out: {problem}", file=sys.stderr)
    _report(Path(options.out), made)
    return 0


def _report(folder: Path, made: bool) -> None:
    index = read_index(folder)
    seconds = sum(clip["samples"] for clip in index["clips"]) / index["settings"]["sample_rate_hz"]
    found = f"{len(index['clips'])} clips, {seconds / 60:.1f} min"
    if not made:
        print(f"{folder} is up to date ({found}): nothing to do.")
        return
    counts = Counter(name for clip in index["clips"] for name in clip.get("profiles", []))
    if counts:
        print(f"Clips with {', '.join(f'{name} {counts[name]}' for name in sorted(counts))}.")
    print(f"Wrote {folder}: {found}. Train with data.noise_banks=[{folder}]")


def _parser() -> argparse.ArgumentParser:
    profiles = "\n".join(
        f"  {name:<22} {profile.level_dba[0]:.0f}-{profile.level_dba[1]:.0f} dB(A)  {profile.about}"
        for name, profile in EQUIPMENT.items()
    )
    parser = CommandParser(
        prog="python -m asr_ascend.data.noise",
        description="Substation noise to listen to, to look at, and in banks to train with.\n"
        "Without a command: show.",
        epilog=f"profiles:\n{profiles}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="{show,bank,recordings}"
    )
    with_defaults = argparse.ArgumentDefaultsHelpFormatter
    show = commands.add_parser(
        "show", help="write a wav and a picture of every profile", formatter_class=with_defaults
    )
    help_out = "folder of the wavs and pngs"
    show.add_argument("--out", type=path_argument, default="outputs/noise", help=help_out)
    show.add_argument("--seconds", type=float, default=8.0, help="length of each sound")
    help_speech = "a recording to mix with the noise of all profiles"
    show.add_argument("--speech", type=path_argument, help=help_speech)
    _add_profiles(show, list(EQUIPMENT))
    help_snr = "SNRs of the mixtures with --speech, over active speech"
    show.add_argument("--snr-db", type=float, nargs="+", default=[10.0, 5.0, 0.0], help=help_snr)
    bank = commands.add_parser(
        "bank", help="make a bank of simulated noise", formatter_class=with_defaults
    )
    bank.add_argument("--out", type=path_argument, required=True, help="folder of the bank")
    bank.add_argument("--clips", type=int, default=400, help="clips in the bank")
    bank.add_argument("--seconds", type=float, default=20.0, help="length of each clip")
    _add_profiles(bank, list(TRAINING_EQUIPMENT))
    recordings = commands.add_parser(
        "recordings", help="make a bank of your own noise recordings", formatter_class=with_defaults
    )
    help_source = "a folder, or a JSONL manifest with audio_filepath"
    recordings.add_argument("source", type=path_argument, help=help_source)
    recordings.add_argument("--out", type=path_argument, required=True, help="folder of the bank")
    recordings.add_argument("--seconds", type=float, default=20.0, help="longest piece")
    help_min = "shorter recordings are a problem, shorter rests are left out"
    recordings.add_argument("--min-seconds", type=float, default=1.0, help=help_min)
    help_channel = "of recordings with several channels: a number from 0, or mean"
    recordings.add_argument("--channel", help=help_channel)
    help_bad = "leave out recordings with a problem, and list them"
    recordings.add_argument("--skip-bad", action="store_true", help=help_bad)
    for command in (show, bank, recordings):
        command.add_argument("--sample-rate-hz", type=int, default=16000, help="of what is written")
    for command in (show, bank):
        command.add_argument("--seed", type=int, default=0, help="of every draw")
        command.add_argument("--mains-hz", type=float, default=50.0, help="50 or 60")
    for command in (bank, recordings):
        help_workers = "processes at a time; the samples do not depend on it"
        workers = os.cpu_count() or 1
        command.add_argument("--workers", type=int, default=workers, help=help_workers)
        command.add_argument("--force", action="store_true", help="make it again")
    return parser


def _add_profiles(parser: argparse.ArgumentParser, default: list[str]) -> None:
    parser.add_argument("--profiles", nargs="+", default=default, metavar="NAME", help="equipment")
