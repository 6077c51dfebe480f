"""Transcribes files, folders or standard input as a stream.

``python -m asr_ascend.transcribe wav=FILE|DIR|- checkpoint=outputs/demo/checkpoints/last.ckpt``
"""

from __future__ import annotations

import os

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # see train.py

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from asr_ascend.checkpoints.checkpoint import CheckpointError, TrainedModel, load_model
from asr_ascend.config.command_options import TranscribeOptions
from asr_ascend.config.composing import run_entry
from asr_ascend.config.frames import encoder_frames, frame_end_ms
from asr_ascend.config.keys import ConfigError
from asr_ascend.data.audio import (
    AudioError,
    AudioReader,
    StreamResampler,
    mono,
    print_warnings,
)
from asr_ascend.data.audio_files.finding import find_audio
from asr_ascend.data.features import FeatureStream
from asr_ascend.data.standard_input import NAME, StdinPieces
from asr_ascend.decoding import StreamingDecoder, token_frames
from asr_ascend.decoding.chunks import attention_bytes, stream_chunks
from asr_ascend.decoding.words import word_times
from asr_ascend.evaluation.lattice_picture import plot_alignment
from asr_ascend.system.command import describe_os_error, print_error
from asr_ascend.system.memory import available_bytes
from asr_ascend.system.paths import folder_fault
from asr_ascend.system.streams import json_text

MAX_DRAWN_LOGITS = 2**26


class TooLongError(ValueError):
    """An utterance that full context has no memory for; the message is one sentence."""


class Transcript:
    """One utterance or stream, decoded chunk by chunk.

    Args:
        trained: from `load_model`.
        chunk_ms: a multiple of 40, or "full".
        left_chunks: chunks of the past that attention sees.
        times: keep what `token_times` needs; memory grows with the stream.
        name: of the utterance, for messages.
    """

    def __init__(
        self,
        trained: TrainedModel,
        chunk_ms: int | str,
        left_chunks: int,
        times: bool,
        name: str = "The utterance",
    ) -> None:
        self.name = name
        self._room = available_bytes() if chunk_ms == "full" else None
        self._samples = 0
        chunks = stream_chunks(trained.model.encoder, chunk_ms, left_chunks)
        self.tokenizer = trained.tokenizer
        self._features = FeatureStream(trained.log_mel())
        self._decoder = StreamingDecoder(trained.model, *chunks, keep_encoded=times)

    @torch.inference_mode()
    def push(self, samples: Tensor) -> str:
        """What `samples`, the next ones at the model's rate, add to the text; often nothing.

        Raises:
            TooLongError: full context over so many samples needs more memory than is free.
        """
        self._samples += samples.numel()
        self._refuse_beyond_memory()
        return self.tokenizer.decode(self._decoder.push(self._features.push(samples)))

    @torch.inference_mode()
    def finish(self) -> str:
        """What the last, partial chunk adds to the text; nothing can be pushed after it."""
        return self.tokenizer.decode(self._decoder.finish())

    def _refuse_beyond_memory(self) -> None:
        if self._room is None:
            return
        frames = encoder_frames(self._features.log_mel.num_frames(self._samples))
        needed = attention_bytes(self._decoder.model.encoder, frames)
        if needed > self._room:
            seconds = self._samples / self._features.log_mel.sample_rate_hz
            raise TooLongError(
                f"{self.name}: full context over {seconds:.0f} s or more takes {needed / 1e9:.1f} "
                f"GB of memory, but {self._room / 1e9:.1f} GB are free; choose chunks, "
                "chunk_ms=320 for one."
            )

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
                "token": self.tokenizer.id_to_piece(token).replace("▁", " "),
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
    """Transcribes what `options` name; 1 where audio is missing or a picture can't be written."""
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
        return 0 if all(_transcribe_file(trained, source, options, named=False)) else 1
    return _transcribe_folder(trained, source, options)


def _transcribe_folder(trained: TrainedModel, folder: Path, options: TranscribeOptions) -> int:
    found = find_audio(folder)
    for error in found.closed:
        print_error(f"The folder {error.filename} can't be read: {error.strerror}.")
    if left_out := found.left_out():
        print(left_out, file=sys.stderr)
    if not found.audio:
        raise ConfigError(f"`wav` must be or hold audio files, but {folder} holds none.")
    unread, partly, drawn = 0, 0, True
    for path in sorted(found.audio):
        try:
            whole, picture = _transcribe_file(trained, path, options, named=True)
            partly += not whole
            drawn &= picture
        except (AudioError, TooLongError) as error:
            unread += 1
            print_error(str(error))
    for count, how in ((unread, "could not be read"), (partly, "could be read only in part")):
        if count:
            print(f"{count} of {len(found.audio)} files {how}.", file=sys.stderr)
    return 1 if unread or partly or found.closed or not drawn else 0


def _start(trained: TrainedModel, name: str, options: TranscribeOptions) -> Transcript:
    times = options.times or options.format == "json" or options.plot_dir is not None
    return Transcript(trained, options.chunk_ms, options.left_chunks, times, name)


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
) -> tuple[bool, bool]:
    """Prints what a file says; whether all of it was there, and its picture could be written."""
    samples = 0
    with AudioReader(path) as reader:
        transcript = _start(trained, str(path), options)
        resampler = StreamResampler(reader.rate_hz, trained.sample_rate_hz)
        for block in reader.blocks(reader.rate_hz):
            piece = resampler.push(mono(block, path))
            transcript.push(piece)
            samples += piece.numel()
        piece = resampler.push(torch.zeros(0), final=True)
        transcript.push(piece)
        samples += piece.numel()
        transcript.finish()
        print_warnings(path, reader.warnings)
        whole = not reader.lost
    if options.format == "json":
        _print_json(transcript, str(path), samples / trained.sample_rate_hz)
    else:
        print(f"{path}\t{transcript.text}" if named else transcript.text)
        _print_times(transcript, options)
    return whole, _plot(transcript, path.stem, options)


def _transcribe_stdin(trained: TrainedModel, options: TranscribeOptions) -> bool:
    """Text appears as it is decoded; times and JSON when the stream has ended.

    Returns whether all of the stream was there and its picture could be written.
    """
    transcript = _start(trained, NAME, options)
    pieces = StdinPieces(sys.stdin.buffer, options.sample_rate_hz, trained.sample_rate_hz)
    as_text = options.format == "text"
    for piece in pieces:
        new = transcript.push(piece)
        if as_text and new:
            print(new, end="", flush=True)
    new = transcript.finish()
    print_warnings(NAME, pieces.warnings)
    if as_text:
        print(new)
        _print_times(transcript, options)
    else:
        _print_json(transcript, "-", pieces.seconds)
    return _plot(transcript, "stdin", options) and not pieces.lost


def _print_json(transcript: Transcript, name: str, seconds: float) -> None:
    tokens = transcript.token_times()
    record = {
        "audio_filepath": name,
        "text": transcript.text,
        "duration": round(seconds, 3),
        "tokens": tokens,
    }
    if " " in transcript.text.strip():
        record["words"] = word_times(tokens)
    print(json_text(record, sys.stdout.encoding), flush=True)


def _print_times(transcript: Transcript, options: TranscribeOptions) -> None:
    """A line per token: a tab, seconds, a tab, the token."""
    if options.times:
        for token in transcript.token_times():
            print(f"\t{token['end_ms'] / 1000:.3f}\t{token['token']}")
    sys.stdout.flush()


def cli(arguments: Sequence[str] | None = None) -> None:
    """The command: see `--help`. It ends the program."""
    run_entry(
        "transcribe",
        main,
        (CheckpointError, AudioError, TooLongError),
        results_on_stdout=True,
        arguments=arguments,
    )


if __name__ == "__main__":
    cli()
