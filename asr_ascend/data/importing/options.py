"""The command line of `asr_ascend.data.importing`."""

from __future__ import annotations

import argparse
import os
import textwrap
from collections.abc import Sequence

from asr_ascend.data.importing.hold_out import KEYS
from asr_ascend.data.importing.problems import MEANINGS, NEVER_WRITTEN
from asr_ascend.data.importing.source import SPACES
from asr_ascend.system.command import CommandParser
from asr_ascend.system.paths import path_argument

_FORMATS = {
    "folder": (
        "recordings, each with a text file of the same name beside it",
        "SOURCE is a folder, searched at any depth. The id of an utterance is its path without "
        "the suffix; several lines of a text are joined by spaces.",
    ),
    "aishell": (
        "AISHELL-1: wav/{train,dev,test}/S0002/*.wav and one transcript",
        "SOURCE is data_aishell or the folder above it, with the archives in wav/ unpacked. Gives "
        "train, valid (AISHELL's dev) and test; spaces within the transcripts are removed.",
    ),
    "kaldi": (
        "Kaldi data directories: wav.scp, text, segments, utt2spk",
        "SOURCE is a data directory, or a folder of several (train, dev, ...), each of which "
        "becomes a set. Commands in wav.scp are not run: flac -c -d FILE and cat FILE stand "
        "for their file, others are refused.",
    ),
    "lhotse": (
        "cuts of lhotse; needs pip install 'asr-ascend[lhotse]'",
        "SOURCE is a CutSet (.jsonl, .jsonl.gz, .json, .yaml). Spans of files are referred to; "
        "mixed or transformed cuts and single channels are rendered to OUT/audio.",
    ),
    "csv": (
        "a table with a recording per row",
        "SOURCE is a file, or a folder whose *.csv each become a set. Columns are found by their "
        "usual names (audio_filepath, path, wav, ...; text, sentence, transcript, ...).",
    ),
    "tsv": (
        "the same with tabs, where quotes mean nothing (Common Voice)",
        "SOURCE is a file, or a folder whose *.tsv each become a set. Columns are found by their "
        "usual names (path, ...; sentence, text, ...).",
    ),
    "jsonl": (
        "an object per line: NeMo's and WeNet's lists, manifests of this package",
        "SOURCE is a file, or a folder whose *.jsonl each become a set. Keys are found by their "
        "usual names (audio_filepath, wav, ...; text, txt, ...).",
    ),
}
_DESCRIPTION = (
    "Reads a corpus, checks every recording and text, and writes JSONL manifests for training. "
    "Lists all problems; where there are any, no manifest is written until --fix or --ignore says "
    "what to do with them. Killed or interrupted, the same command goes on. FORMAT --help lists "
    "the options."
)
_EXAMPLES = """\
examples:
  python -m asr_ascend.data.importing folder recordings --out data/mine --hold-out valid=0.05
  python -m asr_ascend.data.importing aishell /corpora/data_aishell --out data/aishell --fix drop
  python -m asr_ascend.data.importing kaldi egs/mine/s5/data --out data/mine --text-field text.en
  python -m asr_ascend.data.importing tsv cv/train.tsv --out data/cv --text-field sentence
  python -m asr_ascend.data.importing FORMAT --help
"""


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the options; a wrong one ends the program with status 2."""
    parser = CommandParser(
        prog="python -m asr_ascend.data.importing",
        description=textwrap.fill(_DESCRIPTION, 80),
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    formats = parser.add_subparsers(dest="format", metavar="FORMAT", required=True)
    shared = _shared()
    for name, (summary, description) in _FORMATS.items():
        added = formats.add_parser(
            name,
            parents=[shared],
            help=summary,
            description=textwrap.fill(description, 80),
            epilog=_kinds(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        _add_own(added, name)
    options = parser.parse_args(arguments)
    if options.spaces is None:
        options.spaces = "han" if options.format == "aishell" else "keep"
    return options


def _shared() -> CommandParser:
    shared = CommandParser(add_help=False)
    add = shared.add_argument
    add("source", metavar="SOURCE", type=path_argument, help="what to import, see above")
    help_out = "folder for NAME.jsonl and NAME.report.json"
    add("--out", required=True, metavar="DIR", type=path_argument, help=help_out)
    add("--name", help="of the manifest, for a source of one set (default: SOURCE's own name)")
    add(
        "--fix",
        choices=("drop", "keep"),
        help="what to do with utterances that have problems: drop leaves them out of the manifest, "
        "keep writes them and warns (default: write nothing)",
    )
    add(
        "--ignore",
        type=_kinds_list,
        default=frozenset(),
        metavar="KIND,...",
        help="kinds of problems not to look for, see below",
    )
    add(
        "--tokenizer",
        metavar="FILE",
        help="checkpoint (.ckpt) or sentencepiece model that must know every character",
    )
    add(
        "--spaces",
        choices=SPACES,
        help="spaces within texts: keep them, remove those beside Chinese characters (han), or "
        "all (none) (default: keep; aishell: han)",
    )
    add(
        "--hold-out",
        type=_shares,
        default={},
        metavar="NAME=SHARE,...",
        help="further sets to split off, for example valid=0.05,test=0.1; the choice hangs on a "
        "hash and stays when recordings are added",
    )
    add("--hold-out-by", choices=KEYS, default="id", help="what must not be split (default: id)")
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    add(
        "--workers",
        type=_positive,
        default=workers or 1,
        help="processes that inspect recordings (default: one per core)",
    )
    add(
        "--show",
        type=_natural,
        default=10,
        metavar="N",
        help="problems to list of each kind; the report has all (default: 10)",
    )
    shared.set_defaults(audio_root=None, text_field=None, encoding="utf-8")
    return shared


def _add_own(parser: argparse.ArgumentParser, name: str) -> None:
    add = parser.add_argument
    if name == "folder":
        add(
            "--text-field",
            default="txt",
            metavar="ENDING",
            help="of the text files: en.txt for a.en.txt beside a.wav (default: txt)",
        )
        add(
            "--speaker-from-folder",
            action="store_true",
            help="the folder that a recording is in is its speaker",
        )
    elif name == "kaldi":
        add(
            "--text-field",
            default="text",
            metavar="FILE",
            help="with the transcripts, for example text.en for translations (default: text)",
        )
    elif name == "lhotse":
        add(
            "--text-field",
            default="text",
            metavar="FIELD",
            help="of the supervisions: text, or a custom field such as a translation",
        )
    elif name in ("csv", "tsv", "jsonl"):
        for role in ("text", "audio", "id", "speaker", "duration", "offset"):
            add(f"--{role}-field", metavar="COLUMN", help=f"that holds the {role}")
    if name in ("csv", "tsv"):
        add(
            "--columns",
            type=lambda value: value.split(","),
            metavar="A,B,...",
            help="names of the columns, for a file whose first line doesn't give them",
        )
        tab = "\t"
        parser.set_defaults(delimiter=tab if name == "tsv" else ",")
    if name == "csv":
        add("--delimiter", type=_character, help="between columns (default: a comma)")
    if name in ("folder", "csv", "tsv"):
        add("--encoding", default="utf-8", help="of the texts, for example gb18030")
    if name not in ("folder", "aishell"):
        help_root = "what relative paths of recordings start from"
        add("--audio-root", metavar="DIR", type=path_argument, help=help_root)


def _kinds() -> str:
    width = max(map(len, MEANINGS))
    lines = [f"  {kind:{width}}  {meaning}" for kind, meaning in MEANINGS.items()]
    never = ", ".join(kind for kind in MEANINGS if kind in NEVER_WRITTEN)
    return "\n".join(
        [
            "kinds of problems:",
            *lines,
            "",
            f"No manifest can hold {never}: --fix keep leaves it out.",
        ]
    )


def _kinds_list(value: str) -> frozenset[str]:
    kinds = frozenset(value.split(","))
    unknown = sorted(kinds - MEANINGS.keys())
    if unknown:
        raise argparse.ArgumentTypeError(
            f"kinds are {', '.join(MEANINGS)}, but one is '{unknown[0]}'"
        )
    return kinds


def _shares(value: str) -> dict[str, float]:
    shares: dict[str, float] = {}
    for part in value.split(","):
        name, equals, share = part.partition("=")
        try:
            shares[name] = float(share)
        except ValueError:
            equals = ""
        if not name or not equals:
            raise argparse.ArgumentTypeError(f"it must be NAME=SHARE, but is '{part}'")
    return shares


def _positive(value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"it must be a whole number above 0, but is '{value}'")
    return int(value)


def _natural(value: str) -> int:
    if not value.isdecimal():
        raise argparse.ArgumentTypeError(f"it must be a whole number, but is '{value}'")
    return int(value)


def _character(value: str) -> str:
    if len(value) != 1:
        raise argparse.ArgumentTypeError(f"it must be one character, but is '{value}'")
    return value
