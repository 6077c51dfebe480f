"""Keys of the commands `evaluate` and `transcribe`."""

from __future__ import annotations

from dataclasses import MISSING, dataclass

from asr_ascend.config.data_options import SNR_DB
from asr_ascend.config.keys import Options, key
from asr_ascend.config.values import (
    CHUNK_MS,
    FLAG,
    PATHS,
    TEXT,
    Rule,
    choice,
    either,
    integer,
    list_of,
    number,
    optional,
)

CHUNK = "Chunk of the stream in ms, or `full` for full context."
LEFT = "Chunks of the past that attention sees."
THREADS = "Threads of torch; null: torch's own choice."


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(Options):
    """All keys of the command `evaluate`."""

    checkpoint: str = key(MISSING, TEXT, "A file that `asr_ascend.train` wrote.")
    baseline: str | None = key(
        None,
        optional(TEXT),
        "A checkpoint to compare with, heard in the same noise: before and after a fine-tuning. "
        "null: none.",
    )
    manifest: str | tuple[str, ...] = key(
        ("data/demo/commands.jsonl", "data/demo/unseen.jsonl"),
        PATHS,
        "One manifest or a list of them, each reported as a set of its own.",
    )
    snr_db: tuple[float | str, ...] = key(
        ("clean", 20, 10, 5, 0, -5),
        list_of(either(SNR_DB, choice("clean"))),
        "SNRs over active speech; `clean` adds no noise.",
    )
    chunk_ms: int | str = key(320, CHUNK_MS, CHUNK)
    left_chunks: int = key(4, integer(0), LEFT)
    full_context: bool | None = key(
        None,
        optional(FLAG),
        "Decodes with full context, too; null: if the encoder has it (an Emformer hasn't).",
    )
    decoder: str = key("greedy", choice("greedy", "beam"), "How tokens are searched for.")
    beam_width: int = key(4, integer(1), "Hypotheses that the beam search keeps.")
    noise_banks: tuple[str, ...] | None = key(
        None,
        optional(list_of(TEXT)),
        "Folders of noise banks in place of the simulated `noise_kinds` "
        "(`python -m asr_ascend.data.noise --help` makes them).",
    )
    noise_kinds: tuple[str, ...] = key(
        ("hum", "fan", "impulse"),
        list_of(TEXT),
        "Kinds of noise that training hears; every other utterance gets them.",
    )
    unseen_noise_kinds: tuple[str, ...] = key(
        ("hum", "corona"),
        Rule("a list of kinds of noise", lambda v: isinstance(v, list | tuple)),
        "Kinds of noise of the other utterances; training doesn't hear one of them. []: all "
        "utterances get `noise_kinds`.",
    )
    noise_seed: int = key(7, integer(0), "Seed of the noise; training draws from other seeds.")
    max_utterances: int | None = key(
        None, optional(integer(1)), "Utterances of each manifest; null: all."
    )
    batch_seconds: float = key(60, number(above=0), "Longest padded audio of a batch, in seconds.")
    worst: int = key(20, integer(0), "Worst utterances that the report lists.")
    out_dir: str | None = key(
        None,
        optional(TEXT),
        "Folder of the report; null: that of the run that the checkpoint belongs to.",
    )
    num_threads: int | None = key(None, optional(integer(1, 1024)), THREADS)
    progress_bar: bool = key(True, FLAG, "Shows progress on stderr.")


@dataclass(frozen=True, kw_only=True)
class TranscribeOptions(Options):
    """All keys of the command `transcribe`."""

    checkpoint: str = key(MISSING, TEXT, "A file that `asr_ascend.train` wrote.")
    wav: str = key(
        MISSING,
        TEXT,
        "An audio file, a folder of them, or `-` for stdin: an audio file of any kind, or raw "
        "samples (mono, 16 bits, little-endian).",
    )
    chunk_ms: int | str = key(320, CHUNK_MS, CHUNK)
    left_chunks: int = key(4, integer(0), LEFT)
    sample_rate_hz: int = key(
        16000, integer(4000, 384000), "Rate of raw samples on stdin; files say their own."
    )
    format: str = key(
        "text",
        choice("text", "json"),
        "`json`: an object for each utterance, with the times of each token.",
    )
    times: bool = key(
        False,
        FLAG,
        "With `format=text`: below each text a line for each token, <tab>seconds<tab>token.",
    )
    plot_dir: str | None = key(
        None,
        optional(TEXT),
        "Folder for a picture of each utterance, named after its file: where its alignments go, "
        "the likeliest of them and where the stream gave each token. null: none.",
    )
    num_threads: int | None = key(None, optional(integer(1, 1024)), THREADS)
