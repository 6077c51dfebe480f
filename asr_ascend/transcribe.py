"""Transcribes files, folders or standard input as a stream.

``python -m asr_ascend.transcribe wav=FILE|DIR|- checkpoint=outputs/demo/checkpoints/last.ckpt``
"""

from __future__ import annotations

import os

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # see train.py

import json
import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from asr_ascend.checkpoint import CheckpointError, TrainedModel, load_model
from asr_ascend.config import run_entry
from asr_ascend.config_rules import ConfigError
from asr_ascend.data.audio import AudioError, load_audio, resample
from asr_ascend.data.features import FeatureStream, LogMel
from asr_ascend.decoding import StreamingDecoder
from asr_ascend.metrics import FRAME_HOP_MS, frame_end_ms

AUDIO_SUFFIXES = {".wav", ".flac", ".ogg", ".opus", ".mp3", ".aiff", ".aif", ".au"}
SAMPLE_RATE_HZ = 16000
BLOCK_MS = 100


class StreamResampler:
    """Resamples a waveform that arrives in pieces; equals resampling the whole.

    Args:
        from_hz: rate of the pieces.
        to_hz: rate wanted.
    """

    def __init__(self, from_hz: int, to_hz: int) -> None:
        divisor = math.gcd(from_hz, to_hz)
        self.from_hz, self.to_hz = from_hz, to_hz
        # `period` samples in are `step` samples out, so cuts at whole periods keep the phase.
        self.period, self.step = from_hz // divisor, to_hz // divisor
        # The filter reaches 6 zero crossings of the lower rate to either side.
        self.context = math.ceil(8 * from_hz / min(from_hz, to_hz) / self.period) * self.period
        self.pending = torch.zeros(0)
        self.history = 0

    def push(self, samples: Tensor, final: bool = False) -> Tensor:
        """Samples that `samples` (n,) settles; with `final`, all that remain."""
        if self.from_hz == self.to_hz:
            return samples
        self.pending = torch.cat([self.pending, samples])
        ready = self.pending.numel() - self.history - (0 if final else self.context)
        if not final:
            ready = ready // self.period * self.period
        if ready <= 0:
            return samples.new_zeros(0)
        out = resample(self.pending, self.from_hz, self.to_hz)
        start = self.history // self.period * self.step
        stop = out.numel() if final else start + ready // self.period * self.step
        keep = min(self.history + ready, self.context)
        self.pending = self.pending[self.history + ready - keep :]
        self.history = keep
        return out[start:stop]


class Transcriber:
    """Decodes waveforms chunk by chunk with one trained model.

    Args:
        trained: from `load_model`.
        chunk_ms: a multiple of 40, or "full".
        left_chunks: chunks of the past that attention sees.
    """

    def __init__(self, trained: TrainedModel, chunk_ms: int | str, left_chunks: int) -> None:
        self.trained = trained
        self.log_mel = LogMel(SAMPLE_RATE_HZ)
        self.chunk_frames = None if chunk_ms == "full" else int(int(chunk_ms) // FRAME_HOP_MS)
        self.left_chunks = None if chunk_ms == "full" else left_chunks

    @torch.inference_mode()
    def stream(self, pieces: Iterable[Tensor]) -> Iterator[tuple[list[int], list[int]]]:
        """New tokens and their emitting encoder frames, piece by piece of a 16 kHz waveform."""
        features = FeatureStream(self.log_mel)
        decoder = StreamingDecoder(self.trained.model, self.chunk_frames, self.left_chunks)
        seen = 0
        for piece in pieces:
            decoder.push(features.push(piece))
            yield decoder.hypothesis.tokens[seen:], decoder.hypothesis.frames[seen:]
            seen = len(decoder.hypothesis.tokens)
        decoder.finish()
        yield decoder.hypothesis.tokens[seen:], decoder.hypothesis.frames[seen:]

    def whole(self, waveform: Tensor) -> tuple[list[int], list[int]]:
        """All tokens of a 16 kHz waveform and their emitting frames."""
        block = SAMPLE_RATE_HZ * BLOCK_MS // 1000
        tokens: list[int] = []
        frames: list[int] = []
        for new_tokens, new_frames in self.stream(waveform.split(block)):
            tokens += new_tokens
            frames += new_frames
        return tokens, frames

    def describe(self, name: str, seconds: float, tokens: list[int], frames: list[int]) -> str:
        """One line of JSON for an utterance; times are ends of emitting frames in ms."""
        tokenizer = self.trained.tokenizer
        times = [
            {"token": tokenizer.id_to_piece(token), "end_ms": round(frame_end_ms(frame), 1)}
            for token, frame in zip(tokens, frames, strict=True)
        ]
        record = {
            "audio_filepath": name,
            "text": tokenizer.decode(tokens),
            "duration": round(seconds, 3),
            "tokens": times,
        }
        return json.dumps(record, ensure_ascii=False)


def main(config: dict[str, Any]) -> int:
    """Transcribes what `config` names; 0, or 1 where a file of a folder could not be read."""
    if config["num_threads"]:
        torch.set_num_threads(config["num_threads"])
    trained = load_model(config["checkpoint"])
    transcriber = Transcriber(trained, config["chunk_ms"], config["left_chunks"])
    if config["wav"] == "-":
        _transcribe_stdin(transcriber, config)
        return 0
    source = Path(config["wav"]).expanduser()
    if not source.is_dir():
        _transcribe_file(transcriber, source, config["format"], named=False)
        return 0
    files = sorted(p for p in source.rglob("*") if p.suffix.lower() in AUDIO_SUFFIXES)
    if not files:
        raise ConfigError(f"`wav` must be or hold audio files, but {source} holds none.")
    failed = 0
    for path in files:
        try:
            _transcribe_file(transcriber, path, config["format"], named=True)
        except AudioError as error:
            failed += 1
            print(f"Error: {error}", file=sys.stderr)
    if failed:
        print(f"{failed} of {len(files)} files could not be read.", file=sys.stderr)
    return 1 if failed else 0


def _transcribe_file(transcriber: Transcriber, path: Path, format_: str, named: bool) -> None:
    waveform = load_audio(path, SAMPLE_RATE_HZ)
    tokens, frames = transcriber.whole(waveform)
    text = transcriber.trained.tokenizer.decode(tokens)
    line = f"{path}\t{text}" if named else text
    if format_ == "json":
        seconds = waveform.numel() / SAMPLE_RATE_HZ
        line = transcriber.describe(str(path), seconds, tokens, frames)
    print(line, flush=True)


def _transcribe_stdin(transcriber: Transcriber, config: dict[str, Any]) -> None:
    """Text appears as it is decoded; JSON when the stream has ended."""
    tokens: list[int] = []
    frames: list[int] = []
    pieces = StdinPieces(sys.stdin.buffer, config["sample_rate_hz"])
    for new_tokens, new_frames in transcriber.stream(pieces):
        tokens += new_tokens
        frames += new_frames
        if config["format"] == "text" and new_tokens:
            print(transcriber.trained.tokenizer.decode(new_tokens), end="", flush=True)
    if config["format"] == "json":
        print(transcriber.describe("-", pieces.seconds, tokens, frames), flush=True)
    else:
        print(flush=True)


class StdinPieces:
    """Mono 16-bit little-endian samples of a binary stream as 16 kHz pieces of about 100 ms."""

    def __init__(self, stream: BinaryIO, sample_rate_hz: int) -> None:
        self.stream = stream
        self.sample_rate_hz = sample_rate_hz
        self.seconds = 0.0

    def __iter__(self) -> Iterator[Tensor]:
        resampler = StreamResampler(self.sample_rate_hz, SAMPLE_RATE_HZ)
        size = 2 * (self.sample_rate_hz * BLOCK_MS // 1000)
        rest = b""
        while data := self.stream.read(size):
            data = rest + data
            rest = data[len(data) // 2 * 2 :]
            yield resampler.push(self._samples(data[: len(data) // 2 * 2]))
        if rest:
            raise ConfigError("The samples on stdin must be 16 bits each, but end in half of one.")
        yield resampler.push(torch.zeros(0), final=True)

    def _samples(self, data: bytes) -> Tensor:
        samples = np.frombuffer(data, dtype="<i2").astype(np.float32) / 32768
        self.seconds += len(samples) / self.sample_rate_hz
        return torch.from_numpy(samples)


def cli() -> None:
    """The command: see `--help`."""
    run_entry("transcribe", main, (CheckpointError, AudioError))


if __name__ == "__main__":
    cli()
