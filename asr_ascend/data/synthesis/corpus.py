"""The embedded corpus: synthetic Mandarin defect records as wav files and manifests.

``python -m asr_ascend.data.synthesis --out data/demo``

The corpus is bit for bit the same on every run of a machine, whatever the number of workers:
espeak-ng's samples depend on the calls before, so the utterances are cut into a fixed number of
shards, and each shard is spoken in order by one fresh process.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from asr_ascend.data.manifest import Utterance, write_manifest
from asr_ascend.data.synthesis import espeak, phrases
from asr_ascend.data.wav import write_wav
from asr_ascend.system.atomic import write_json
from asr_ascend.system.command import CommandParser, run_command
from asr_ascend.system.paths import path_argument
from asr_ascend.system.processes import interrupts_held
from asr_ascend.system.progress import progress_bar

TRAINING_VOICES = (
    *("", "m1", "m2", "m3", "m4", "m6", "m7", "m8", "f1", "f2", "f3", "f4"),
    *("Alex", "Andrea", "Andy", "Annie", "Denis", "Mario", "robosoft", "steph"),
)
UNSEEN_VOICES = ("m5", "f5", "linda", "Michael")
SHARDS = 8
SAMPLE_RATE_HZ = 16000
_FORMAT = 1
_DESCRIPTION = "corpus.json"


@dataclass(frozen=True)
class CorpusConfig:
    """Utterances per split; `commands` and `unseen` are held out, `valid` steers training."""

    train: int = 2000
    valid: int = 60
    commands: int = 300
    unseen: int = 120
    seed: int = 0


@dataclass(frozen=True)
class Line:
    """One utterance to speak: where it goes, what is said and how."""

    split: str
    id: str
    text: str
    voice: espeak.Voice


def plan(config: CorpusConfig) -> list[Line]:
    """Plans every utterance of the corpus from `config`; no text occurs twice.

    The same `config` gives the same plan. Training never holds the specification's sentence;
    `commands` starts with it.
    """
    draw = random.Random(config.seed)
    taken = {phrases.SPECIFICATION_SENTENCE}
    wanted = {
        "train": (phrases.training_text, config.train, TRAINING_VOICES),
        "valid": (phrases.training_text, config.valid, TRAINING_VOICES),
        "commands": (phrases.held_out_text, max(0, config.commands - 1), TRAINING_VOICES),
        "unseen": (phrases.held_out_text, config.unseen, UNSEEN_VOICES),
    }
    lines = []
    for split, (kind, count, voices) in wanted.items():
        texts = phrases.distinct_texts(kind, count, draw, taken)
        if split == "commands" and config.commands > 0:
            texts.insert(0, phrases.SPECIFICATION_SENTENCE)
        for number, text in enumerate(texts):
            voice = espeak.Voice(
                variant=draw.choice(voices),
                words_per_minute=draw.randint(160, 260),
                pitch=draw.randint(25, 75),
                volume=draw.randint(60, 140),
            )
            lines.append(Line(split, f"{split}-{number:05d}", text, voice))
    return lines


def corpus_hash(config: CorpusConfig) -> str:
    """Computes the SHA-256 of all that the corpus depends on: config, sources, package versions."""
    digest = hashlib.sha256(json.dumps([_FORMAT, SHARDS, asdict(config)]).encode())
    for module in (espeak.__file__, phrases.__file__, __file__):
        digest.update(Path(module).read_bytes())
    for package in ("espeakng-loader", "pypinyin"):
        digest.update(f"{package} {metadata.version(package)}".encode())
    return digest.hexdigest()


def synthesise(
    out: str | os.PathLike[str], config: CorpusConfig, workers: int = 2, force: bool = False
) -> dict[str, Any]:
    """Makes the corpus in `out`, unless the same corpus is already there.

    All files are written to a folder next to `out`, which then takes its place. So `out` is never
    half written. Wav files are 16 kHz, 16-bit PCM, mono.

    Args:
        out: folder; an existing one must hold a corpus or nothing.
        config: sizes and seed.
        workers: processes at a time; no effect on the samples.
        force: whether to make it even if it is there.

    Returns:
        What `corpus.json` holds, and "made": whether it was made now.

    Raises:
        ValueError: a count or `workers` that does not fit, or `out` holds something else.
        espeak.SynthesisError: packages missing or a shard failed.
        OSError: something can't be written.
    """
    for name, value in asdict(config).items():
        if value < 0:
            raise ValueError(f"`{name}` must not be negative, but is {value}.")
    if workers < 1:
        raise ValueError(f"`workers` must be at least 1, but is {workers}.")
    espeak.require_synthesiser()
    target = Path(out).expanduser().absolute()
    if target.exists() and not target.is_dir():
        raise ValueError(f"`out` must be a folder, but {target} is a file.")
    if target.exists() and any(target.iterdir()) and not (target / _DESCRIPTION).is_file():
        raise ValueError(f"`out` must be empty or hold a corpus, but {target} holds other files.")
    wanted = corpus_hash(config)
    if not force and (found := read_description(target)) and found["hash"] == wanted:
        return {**found, "made": False}
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    temporary.chmod(0o755)
    try:
        description = _write_corpus(temporary, config, workers, wanted)
        if target.exists():
            retired = temporary.with_name(temporary.name + ".old")
            target.rename(retired)
            temporary.rename(target)
            shutil.rmtree(retired)
        else:
            temporary.rename(target)
    except OSError as error:  # of a file in a folder that will be gone
        raise OSError(error.errno, error.strerror, str(target)) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return {**description, "made": True}


def read_description(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Reads `corpus.json` of `folder`; None if no corpus is there."""
    try:
        description = json.loads((Path(folder) / _DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return description if isinstance(description, dict) and "hash" in description else None


def _write_corpus(folder: Path, config: CorpusConfig, workers: int, wanted: str) -> dict[str, Any]:
    lines = plan(config)
    for split in ("train", "valid", "commands", "unseen"):
        (folder / "wav" / split).mkdir(parents=True)
    utterances = _speak_shards(lines, folder, workers)
    splits: dict[str, dict[str, Any]] = {}
    for split in ("train", "valid", "commands", "unseen"):
        chosen = [u for line, u in zip(lines, utterances, strict=True) if line.split == split]
        write_manifest(folder / f"{split}.jsonl", chosen)
        splits[split] = {
            "utterances": len(chosen),
            "hours": round(sum(u.duration for u in chosen) / 3600, 4),
            "characters": len(set("".join(u.text for u in chosen))),
        }
    description = {"hash": wanted, "config": asdict(config), "splits": splits}
    write_json(folder / _DESCRIPTION, description)
    return description


def _speak_shards(lines: Sequence[Line], folder: Path, workers: int) -> list[Utterance]:
    context = multiprocessing.get_context("spawn")
    spoken = context.Value("q", 0)
    failures = context.SimpleQueue()
    waiting = list(range(SHARDS))
    running: dict[int, BaseProcess] = {}
    try:
        with progress_bar("Synthesising utterances", len(lines)) as advance:
            told = 0
            while waiting or running:
                while waiting and len(running) < workers:
                    shard = waiting.pop(0)
                    arguments = (lines[shard::SHARDS], str(folder), shard, spoken, failures)
                    running[shard] = context.Process(target=_try_shard, args=arguments)
                    with interrupts_held():
                        running[shard].start()
                time.sleep(0.05)
                now = spoken.value
                advance(now - told)
                told = now
                for shard in [s for s, process in running.items() if not process.is_alive()]:
                    code = running.pop(shard).exitcode
                    if not failures.empty():
                        raise failures.get()
                    if code != 0:
                        raise espeak.SynthesisError(f"Shard {shard} ended with exit code {code}.")
    finally:
        for process in running.values():
            process.terminate()
            process.join()
    return _collect(lines, folder)


def _try_shard(lines: Sequence[Line], folder: str, shard: int, spoken: Any, failures: Any) -> None:
    try:
        _speak_shard(lines, folder, shard, spoken)
    except (OSError, espeak.SynthesisError) as error:
        failures.put(error)


def _speak_shard(lines: Sequence[Line], folder: str, shard: int, spoken: Any) -> None:
    import numpy as np
    import torch
    import torchaudio

    torch.set_num_threads(1)
    synthesiser = espeak.Synthesiser()
    resampler = torchaudio.transforms.Resample(synthesiser.rate_hz, SAMPLE_RATE_HZ)
    records = []
    for line in lines:
        speech = synthesiser.speak(line.text, line.voice)
        waveform = resampler(torch.from_numpy(speech.samples.astype(np.float32)))
        samples = waveform.round().clamp(-32768, 32767).to(torch.int16).numpy()
        path = Path(folder) / "wav" / line.split / f"{line.id}.wav"
        write_wav(path, samples, SAMPLE_RATE_HZ)
        starts = [round(1000 * start / speech.rate_hz, 1) for start in speech.syllable_starts]
        records.append((len(samples), starts))
        with spoken.get_lock():
            spoken.value += 1
    (Path(folder) / f".shard-{shard}.json").write_text(json.dumps(records))


def _collect(lines: Sequence[Line], folder: Path) -> list[Utterance]:
    utterances: dict[int, Utterance] = {}
    for shard in range(SHARDS):
        path = folder / f".shard-{shard}.json"
        records = json.loads(path.read_text())
        path.unlink()
        numbers = range(shard, len(lines), SHARDS)
        for number, (samples, starts) in zip(numbers, records, strict=True):
            line = lines[number]
            utterances[number] = Utterance(
                id=line.id,
                audio_path=folder / "wav" / line.split / f"{line.id}.wav",
                text=line.text,
                duration=samples / SAMPLE_RATE_HZ,
                speaker=line.voice.variant or "plain",
                token_start_ms=tuple(starts),
            )
    return [utterances[number] for number in range(len(lines))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return run_command(
        lambda: _make(arguments),
        (ValueError, espeak.SynthesisError),
        interrupted="Interrupted; nothing was written.",
    )


def _make(arguments: Sequence[str] | None) -> int:
    defaults = CorpusConfig()
    parser = CommandParser(
        prog="python -m asr_ascend.data.synthesis",
        description="Makes the embedded corpus: synthetic Mandarin defect records with times of "
        "each syllable, as 16 kHz wav files and JSONL manifests. Does nothing if the same corpus "
        "is already there. Needs pip install 'asr-ascend[demo]'.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    help_out = "folder for wav/, *.jsonl and corpus.json"
    parser.add_argument("--out", type=path_argument, required=True, help=help_out)
    parser.add_argument("--train", type=int, default=defaults.train, help="training utterances")
    parser.add_argument("--valid", type=int, default=defaults.valid, help="validation utterances")
    help_commands = "held-out commands and readings, voices of the training set"
    parser.add_argument("--commands", type=int, default=defaults.commands, help=help_commands)
    help_unseen = "held-out commands and readings, voices that training never hears"
    parser.add_argument("--unseen", type=int, default=defaults.unseen, help=help_unseen)
    parser.add_argument("--seed", type=int, default=defaults.seed, help="seed of texts and voices")
    help_workers = "processes at a time; the samples do not depend on it"
    parser.add_argument("--workers", type=int, default=2, help=help_workers)
    parser.add_argument("--force", action="store_true", help="make it again even if it is there")
    options = parser.parse_args(arguments)
    config = CorpusConfig(
        options.train, options.valid, options.commands, options.unseen, options.seed
    )
    started = time.perf_counter()
    result = synthesise(options.out, config, options.workers, options.force)
    if not result["made"]:
        print(f"{options.out} is up to date (hash {result['hash'][:12]}): nothing to do.")
        return 0
    for split, numbers in result["splits"].items():
        print(
            f"{split}: {numbers['utterances']} utterances, {numbers['hours']:.2f} h, "
            f"{numbers['characters']} characters"
        )
    print(f"Wrote {options.out} in {time.perf_counter() - started:.0f} s.")
    return 0
