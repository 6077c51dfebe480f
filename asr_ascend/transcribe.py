"""Transcribes files, folders or standard input as a stream.

``python -m asr_ascend.transcribe wav=FILE|DIR|- checkpoint=outputs/demo/checkpoints/last.ckpt``
"""

from __future__ import annotations

import os

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # see train.py

import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from asr_ascend.checkpoints.checkpoint import CheckpointError, TrainedModel, load_model
from asr_ascend.config.command_options import TranscribeOptions
from asr_ascend.config.composing import run_entry
from asr_ascend.config.keys import ConfigError
from asr_ascend.data.audio import (
    AudioError,
    AudioReader,
    StreamResampler,
    mono,
    print_warnings,
)
from asr_ascend.data.audio_files.finding import find_audio
from asr_ascend.data.standard_input import NAME, StdinPieces
from asr_ascend.decoding.words import word_times
from asr_ascend.recognizer import TooLongError, Transcript
from asr_ascend.system.command import describe_os_error, print_error
from asr_ascend.system.paths import folder_fault
from asr_ascend.system.streams import json_text


def main(options: TranscribeOptions) -> int:
    """Transcribes what `options` name and returns the exit status.

    It is 1 where audio is missing or a picture can't be written.
    """
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
    """Draws the picture, if one is asked for; returns False where it can't be written."""
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
    """Prints a line per token: a tab, seconds, a tab, the token."""
    if options.times:
        for token in transcript.token_times():
            print(f"\t{token['end_ms'] / 1000:.3f}\t{token['token']}")
    sys.stdout.flush()


def cli(arguments: Sequence[str] | None = None) -> None:
    """Runs the command and ends the program; see `--help`."""
    run_entry(
        "transcribe",
        main,
        (CheckpointError, AudioError, TooLongError),
        results_on_stdout=True,
        arguments=arguments,
    )


if __name__ == "__main__":
    cli()
