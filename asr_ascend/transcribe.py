"""Transcribes files, folders or standard input as a stream.

``python -m asr_ascend.transcribe wav=FILE|DIR|- checkpoint=outputs/demo/checkpoints/last.ckpt``
"""

from __future__ import annotations

import os

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # see train.py

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from asr_ascend.checkpoints.checkpoint import CheckpointError, TrainedModel, load_model
from asr_ascend.config.command_options import TranscribeOptions
from asr_ascend.config.composing import run_entry
from asr_ascend.config.frames import frame_end_ms
from asr_ascend.config.keys import ConfigError
from asr_ascend.data.audio import AudioError, load_audio, resample
from asr_ascend.data.features import FeatureStream
from asr_ascend.decoding import StreamingDecoder, token_frames
from asr_ascend.decoding.chunks import stream_chunks
from asr_ascend.evaluation.lattice_picture import plot_alignment
from asr_ascend.system.command import describe_os_error, print_error
from asr_ascend.system.paths import folder_fault
from asr_ascend.system.streams import json_text

AUDIO_SUFFIXES = {".wav", ".flac", ".ogg", ".opus", ".mp3", ".aiff", ".aif", ".au"}
BLOCK_MS = 100
MAX_DRAWN_LOGITS = 2**26


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


class Transcript:
    """One utterance or stream, decoded chunk by chunk.

    Args:
        trained: from `load_model`.
        chunk_ms: a multiple of 40, or "full".
        left_chunks: chunks of the past that attention sees.
        times: keep what `token_times` needs; memory grows with the stream.
    """

    def __init__(
        self, trained: TrainedModel, chunk_ms: int | str, left_chunks: int, times: bool
    ) -> None:
        chunks = stream_chunks(trained.model.encoder, chunk_ms, left_chunks)
        self.tokenizer = trained.tokenizer
        self._features = FeatureStream(trained.log_mel())
        self._decoder = StreamingDecoder(trained.model, *chunks, keep_encoded=times)

    @torch.inference_mode()
    def push(self, samples: Tensor) -> str:
        """What `samples`, the next ones at the model's rate, add to the text; often nothing."""
        return self.tokenizer.decode(self._decoder.push(self._features.push(samples)))

    @torch.inference_mode()
    def finish(self) -> str:
        """What the last, partial chunk adds to the text; nothing can be pushed after it."""
        return self.tokenizer.decode(self._decoder.finish())

    @property
    def text(self) -> str:
        """All that was heard."""
        return self.tokenizer.decode(self._decoder.hypothesis.tokens)

    @torch.inference_mode()
    def token_times(self) -> list[dict[str, Any]]:
        """Each token with its times in ms, after `finish`.

        `end_ms` is the end of the frame in which the likeliest alignment of the whole utterance
        gives the token, `emitted_ms` that of the frame in which the stream gave it.
        """
        hypothesis = self._decoder.hypothesis
        aligned = token_frames(self._decoder.model, self._decoder.encoded, hypothesis)
        return [
            {
                "token": self.tokenizer.id_to_piece(token),
                "end_ms": round(frame_end_ms(frame), 1),
                "emitted_ms": round(frame_end_ms(emitted), 1),
            }
            for token, frame, emitted in zip(
                hypothesis.tokens, aligned, hypothesis.frames, strict=True
            )
        ]

    @torch.inference_mode()
    def plot(self, path: Path, title: str) -> None:
        """Draws the lattice of what was heard, after `finish`.

        Raises:
            ValueError: no frame or no token to draw, or a lattice too large for one picture.
        """
        model, enc = self._decoder.model, self._decoder.encoded
        hypothesis = self._decoder.hypothesis
        columns = len(hypothesis.tokens) + 1
        if columns == 1:
            raise ValueError(f"{title} has no tokens to draw.")
        if len(enc) * columns * model.vocab_size > MAX_DRAWN_LOGITS:
            raise ValueError(f"{title} is too long to be drawn as one lattice.")
        tokens = torch.tensor(hypothesis.tokens)
        sizes = torch.tensor([len(enc)]), torch.tensor([len(tokens)])
        logits = model.join_packed(enc[None], sizes[0], tokens[None], sizes[1])
        pieces = [self.tokenizer.id_to_piece(token) for token in hypothesis.tokens]
        logits = logits.unflatten(0, (len(enc), columns))
        plot_alignment(path, logits, tokens, model.blank, pieces, title, hypothesis.frames)


def main(options: TranscribeOptions) -> int:
    """Transcribes what `options` name; 1 where a file could not be read or a picture written."""
    if options.num_threads:
        torch.set_num_threads(options.num_threads)
    if options.plot_dir is not None and (fault := folder_fault(Path(options.plot_dir))):
        raise ConfigError(f"`plot_dir` must be a folder, but {fault}.")
    if options.wav == "-" and sys.stdin is None:
        raise ConfigError("`wav` is -, but standard input is closed.")
    trained = load_model(options.checkpoint)
    if options.wav == "-":
        return 0 if _transcribe_stdin(trained, options) else 1
    source = Path(options.wav)
    if not source.is_dir():
        return 0 if _transcribe_file(trained, source, options, named=False) else 1
    files = sorted(p for p in source.rglob("*") if p.suffix.lower() in AUDIO_SUFFIXES)
    if not files:
        raise ConfigError(f"`wav` must be or hold audio files, but {source} holds none.")
    failed, drawn = 0, True
    for path in files:
        try:
            drawn &= _transcribe_file(trained, path, options, named=True)
        except AudioError as error:
            failed += 1
            print_error(str(error))
    if failed:
        print(f"{failed} of {len(files)} files could not be read.", file=sys.stderr)
    return 0 if drawn and not failed else 1


def _start(trained: TrainedModel, options: TranscribeOptions) -> Transcript:
    times = options.times or options.format == "json" or options.plot_dir is not None
    return Transcript(trained, options.chunk_ms, options.left_chunks, times)


def _plot(transcript: Transcript, name: str, options: TranscribeOptions) -> bool:
    """Draws the picture, where one is wanted; False where it can't be written."""
    if options.plot_dir is None:
        return True
    path = Path(options.plot_dir) / f"{name}.png"
    try:
        transcript.plot(path, name)
    except ValueError as error:
        print(f"No picture: {error}", file=sys.stderr)
    except OSError as error:  # the texts of the other files are worth more than a picture
        print_error(describe_os_error(error))
        return False
    return True


def _transcribe_file(
    trained: TrainedModel, path: Path, options: TranscribeOptions, named: bool
) -> bool:
    """Prints what a file says; False where its picture can't be written."""
    rate_hz = trained.sample_rate_hz
    waveform = load_audio(path, rate_hz)
    transcript = _start(trained, options)
    for piece in waveform.split(rate_hz * BLOCK_MS // 1000):
        transcript.push(piece)
    transcript.finish()
    if options.format == "json":
        _print_json(transcript, str(path), waveform.numel() / rate_hz)
    else:
        print(f"{path}\t{transcript.text}" if named else transcript.text)
        _print_times(transcript, options)
    return _plot(transcript, path.stem, options)


def _transcribe_stdin(trained: TrainedModel, options: TranscribeOptions) -> bool:
    """Text appears as it is decoded; times and JSON when the stream has ended."""
    transcript = _start(trained, options)
    pieces = StdinPieces(sys.stdin.buffer, options.sample_rate_hz, trained.sample_rate_hz)
    as_text = options.format == "text"
    for piece in pieces:
        new = transcript.push(piece)
        if as_text and new:
            print(new, end="", flush=True)
    new = transcript.finish()
    if as_text:
        print(new)
        _print_times(transcript, options)
    else:
        _print_json(transcript, "-", pieces.seconds)
    return _plot(transcript, "stdin", options)


def _print_json(transcript: Transcript, name: str, seconds: float) -> None:
    record = {
        "audio_filepath": name,
        "text": transcript.text,
        "duration": round(seconds, 3),
        "tokens": transcript.token_times(),
    }
    print(json_text(record, sys.stdout.encoding), flush=True)


def _print_times(transcript: Transcript, options: TranscribeOptions) -> None:
    """A line per token: a tab, seconds, a tab, the token."""
    if options.times:
        for token in transcript.token_times():
            print(f"\t{token['end_ms'] / 1000:.3f}\t{token['token']}")
    sys.stdout.flush()


class StdinPieces:
    """Mono 16-bit little-endian samples of a binary stream in pieces of about 100 ms.

    Args:
        stream: to read.
        sample_rate_hz: of its samples.
        to_hz: of the pieces.
    """

    def __init__(self, stream: BinaryIO, sample_rate_hz: int, to_hz: int) -> None:
        self.stream = stream
        self.to_hz = to_hz
        self.sample_rate_hz = sample_rate_hz
        self.seconds = 0.0

    def __iter__(self) -> Iterator[Tensor]:
        resampler = StreamResampler(self.sample_rate_hz, self.to_hz)
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
    run_entry("transcribe", main, (CheckpointError, AudioError), results_on_stdout=True)


if __name__ == "__main__":
    cli()
