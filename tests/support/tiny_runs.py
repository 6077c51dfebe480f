"""A corpus of tones and a model so small that a training takes seconds."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import soundfile
import torch

SAMPLE_RATE_HZ = 16000
TONES_HZ = {"甲": 400, "乙": 700, "丙": 1200, "丁": 2000, "戊": 3200, "己": 5000}
TEXTS = ("甲乙丙", "丁戊甲乙", "丙丁", "戊丙乙甲丁", "乙丁丙", "甲戊丁", "丙甲戊乙", "丁乙戊丙")
TONE_MS, GAP_MS = 240, 120

TINY = (
    "experiment=smoke",
    "model.subsampling_channels=8",
    "model.encoder_dim=48",
    "model.num_layers=1",
    "model.num_heads=2",
    "model.feedforward_dim=96",
    "model.conv_kernel=7",
    "model.predictor_dim=32",
    "model.joiner_dim=48",
    "data.max_batch_seconds=4.0",
    "optimizer.lr=0.003",
    "optimizer.warmup_steps=10",
    "trainer.num_threads=1",
)
BLANK_LAST = (
    "loss.blank=-1",
    "trainer.max_steps=260",
    "trainer.val_every_steps=130",
    "trainer.chunk_frames=[0,8]",
)


@dataclass(frozen=True)
class TinyRun:
    """Where a tiny run lies, and what its training printed."""

    folder: Path
    manifest: Path
    checkpoint: Path
    stdout: str
    stderr: str


def tone_utterance(text: str, seed: int = 0) -> np.ndarray:
    """Waveform in which every character of `text` is a tone, gaps of faint noise between."""
    noise = np.random.default_rng(seed)
    time = np.arange(SAMPLE_RATE_HZ * TONE_MS // 1000) / SAMPLE_RATE_HZ
    gap = np.zeros(SAMPLE_RATE_HZ * GAP_MS // 1000)
    pieces = [gap]
    for character in text:
        tone = 0.3 * np.hanning(len(time)) * np.sin(2 * np.pi * TONES_HZ[character] * time)
        pieces += [tone, gap]
    wave = np.concatenate(pieces)
    return (wave + 1e-4 * noise.standard_normal(len(wave))).astype(np.float32)


def write_corpus(folder: Path, texts: tuple[str, ...] = TEXTS) -> Path:
    """Wav files and their manifest, with the time of every character."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, text in enumerate(texts):
        wave = tone_utterance(text, seed=number)
        soundfile.write(folder / f"{number}.wav", wave, SAMPLE_RATE_HZ)
        record = {
            "id": f"tone-{number}",
            "audio_filepath": f"{number}.wav",
            "text": text,
            "duration": len(wave) / SAMPLE_RATE_HZ,
            "token_start_ms": [GAP_MS + i * (TONE_MS + GAP_MS) for i in range(len(text))],
        }
        lines.append(json.dumps(record, ensure_ascii=False) + "\n")
    manifest = folder / "tones.jsonl"
    manifest.write_text("".join(lines), encoding="utf-8")
    return manifest


def command(module: str, *arguments: str) -> list[str]:
    """The command line of a command of the package, for a process of its own."""
    return [sys.executable, "-m", f"asr_ascend.{module}", *arguments]


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


def run(
    module: str, *arguments: str, folder: Path, stdin: bytes = b"", encoding: str = "utf-8"
) -> Done:
    """Runs a command of the package in `folder`, in this process: imports take most of the time.

    `encoding` is that of standard output and error, as PYTHONIOENCODING sets it.
    """
    entry = importlib.import_module(f"asr_ascend.{module}")
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    err = io.TextIOWrapper(io.BytesIO(), encoding, "backslashreplace", newline="")
    threads = torch.get_num_threads()
    before = Path.cwd()
    with (
        mock.patch.object(sys, "argv", [f"asr_ascend.{module}", *arguments]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        os.chdir(folder)
        try:
            entry.cli()
            code: Any = 0
        except SystemExit as stop:
            code = stop.code
        finally:
            os.chdir(before)
            torch.set_num_threads(threads)
    out.seek(0)
    err.seek(0)
    return Done(int(code or 0), out.read(), err.read())
