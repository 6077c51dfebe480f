"""Other people's corpora to checked JSONL manifests.

``python -m asr_ascend.data.importing FORMAT SOURCE --out data/mine``

Nothing of the source is changed. Audio is referred to where it lies; only cuts that no span of a
file stands for are rendered.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from asr_ascend.data.importing import report
from asr_ascend.data.importing.aishell import read_aishell
from asr_ascend.data.importing.checking import Checked, UnknownCharacters, check_set
from asr_ascend.data.importing.cuts import read_cuts
from asr_ascend.data.importing.folder import read_folder
from asr_ascend.data.importing.hold_out import hold_out
from asr_ascend.data.importing.inspection_pool import InspectionError, inspect_all
from asr_ascend.data.importing.kaldi import read_kaldi
from asr_ascend.data.importing.options import parse
from asr_ascend.data.importing.source import Entry, EntrySet, SourceError, adjust_spaces
from asr_ascend.data.importing.table import Columns, read_csv, read_jsonl
from asr_ascend.data.manifest import Utterance, write_manifest
from asr_ascend.system.atomic import write_json
from asr_ascend.system.command import run_command
from asr_ascend.system.paths import user_path

NOTES = ".inspected"
RENDERED = "audio"


def read_source(options: argparse.Namespace) -> dict[str, EntrySet]:
    """Reads the sets of the source, by the names of their manifests.

    Texts are as they will be written.

    Raises:
        SourceError: the source can't be read.
    """
    source = options.source.absolute()
    root = None if options.audio_root is None else options.audio_root.absolute()
    if options.format == "folder":
        sets = read_folder(
            source,
            text_field=options.text_field,
            speaker_from_folder=options.speaker_from_folder,
            encoding=options.encoding,
        )
    elif options.format == "aishell":
        sets = read_aishell(source)
    elif options.format == "kaldi":
        sets = read_kaldi(source, text_field=options.text_field, root=root)
    elif options.format == "lhotse":
        rendered = options.out.absolute() / RENDERED
        sets = read_cuts(source, rendered, text_field=options.text_field, root=root)
    else:
        sets = _read_table(source, root, options)
    named = _named(sets, options.name)
    for found in named.values():
        found.entries = [_with_spaces(entry, options.spaces) for entry in found.entries]
    return named


def run(options: argparse.Namespace) -> int:
    """Imports as the options say, and returns the exit status.

    Raises:
        SourceError: the source, the tokenizer or the options don't fit.
        InspectionError: a worker died.
    """
    sets = read_source(options)
    out = options.out.absolute()
    _check_targets(list(sets), out, options)
    unknown = _unknown_characters(options.tokenizer) if options.tokenizer else None
    out.mkdir(parents=True, exist_ok=True)
    checked: dict[str, Checked] = {}
    for name, found in sets.items():
        facts = inspect_all(found.entries, out / NOTES, options.workers, name)
        checked[name] = check_set(found, facts, unknown_characters=unknown, ignore=options.ignore)
        print(report.describe(name, checked[name], options.show))
    undecided = options.fix is None and any(found.problems() for found in checked.values())
    manifests: dict[str, dict[str, list[Utterance]]] = {name: {} for name in checked}
    if not undecided:
        manifests = {name: _manifests(name, checked[name], options) for name in checked}
    for name, written in manifests.items():
        for stem, utterances in written.items():
            write_manifest(out / f"{stem}.jsonl", utterances)
        _write_report(out, name, checked[name], written, options)
    if undecided:
        return _tell_undecided(options, checked)
    for name, written in manifests.items():
        _tell(options, name, checked[name], written)
    return 0


def _read_table(
    source: Path, root: Path | None, options: argparse.Namespace
) -> dict[str, EntrySet]:
    columns = Columns(
        audio=options.audio_field,
        text=options.text_field,
        id=options.id_field,
        speaker=options.speaker_field,
        duration=options.duration_field,
        offset=options.offset_field,
    )
    if options.format == "jsonl":
        return read_jsonl(source, columns=columns, root=root)
    return read_csv(
        source,
        delimiter=options.delimiter,
        header=options.columns,
        columns=columns,
        root=root,
        encoding=options.encoding,
    )


def _named(sets: dict[str, EntrySet], name: str | None) -> dict[str, EntrySet]:
    if name is not None:
        if len(sets) > 1:
            raise SourceError(f"--name needs a source of one set, but there are {', '.join(sets)}.")
        return {name: next(iter(sets.values()))}
    # Training's configs call it valid.
    return {
        "valid" if key == "dev" and "valid" not in sets else key: found
        for key, found in sets.items()
    }


def _with_spaces(entry: Entry, spaces: str) -> Entry:
    text = adjust_spaces(entry.text, spaces)
    if text == entry.text:
        return entry
    return replace(entry, text=text, token_start_ms=None)  # the times were of other characters


def _check_targets(names: Sequence[str], out: Path, options: argparse.Namespace) -> None:
    """Refuses output that can't be written, before hours of inspection."""
    if len(names) > 1 and options.hold_out:
        listing = ", ".join(names)
        raise SourceError(f"--hold-out needs a source of one set, but there are {listing}.")
    if out.exists() and not out.is_dir():
        raise SourceError(f"--out must be a folder, but {out} is a file.")
    if options.hold_out:
        try:
            hold_out([], options.hold_out, names[0], options.hold_out_by)
        except ValueError as error:
            raise SourceError(str(error)) from error
    for name in (*names, *options.hold_out):
        if "/" in name or name in ("", ".", ".."):
            raise SourceError(f"A set's name must be that of a file, but is '{name}'.")
        _refuse_to_replace(out / f"{name}.jsonl", options)


def _refuse_to_replace(target: Path, options: argparse.Namespace) -> None:
    source = options.source.resolve()
    if target.resolve() == source or (
        options.format == "jsonl" and target.exists() and target.resolve().parent == source
    ):
        raise SourceError(f"{target} is the source itself; choose another --out or --name.")


def _unknown_characters(path: str) -> UnknownCharacters:
    """Looks characters up in the tokenizer of a checkpoint or a sentencepiece model."""
    from asr_ascend.data.tokenizer import Tokenizer

    file = user_path(path)
    if not file.is_file():
        raise SourceError(f"The tokenizer {file} is not a file.")
    if file.suffix == ".ckpt":
        from asr_ascend.checkpoints.checkpoint import (
            CheckpointError,
            read_checkpoint,
            read_tokenizer,
        )

        try:
            tokenizer = read_tokenizer(file, read_checkpoint(file))
        except CheckpointError as error:
            raise SourceError(str(error)) from error
    else:
        try:
            tokenizer = Tokenizer(file.read_bytes())
        except ValueError as error:
            raise SourceError(
                f"{file} is neither a checkpoint (.ckpt) nor a sentencepiece model."
            ) from error
    known: dict[str, bool] = {}

    def unknown(text: str) -> list[str]:
        for character in set(text) - known.keys():
            known[character] = tokenizer.unk not in tokenizer.encode(character)
        return [character for character in dict.fromkeys(text) if not known[character]]

    return unknown


def _manifests(
    name: str, checked: Checked, options: argparse.Namespace
) -> dict[str, list[Utterance]]:
    utterances = checked.utterances if options.fix == "keep" else checked.sound()
    try:
        manifests = hold_out(utterances, options.hold_out, name, options.hold_out_by)
    except ValueError as error:
        raise SourceError(str(error)) from error
    empty = [stem for stem, chosen in manifests.items() if not chosen]
    if empty:
        raise SourceError(
            f"`{empty[0]}` would get no utterance of {len(utterances)} without problems."
            if options.fix != "keep"
            else f"`{empty[0]}` would get no utterance of {len(utterances)}."
        )
    return manifests


def _write_report(
    out: Path,
    name: str,
    checked: Checked,
    manifests: Mapping[str, list[Utterance]],
    options: argparse.Namespace,
) -> None:
    content = report.as_json(
        name,
        checked,
        source=options.source.absolute(),
        kind=options.format,
        fix=options.fix,
        written={f"{stem}.jsonl": len(chosen) for stem, chosen in manifests.items()},
    )
    write_json(_report_path(out, name), content)


def _report_path(out: Path, name: str) -> Path:
    return out / f"{name}.report.json"


def _tell(
    options: argparse.Namespace,
    name: str,
    checked: Checked,
    manifests: Mapping[str, list[Utterance]],
) -> None:
    out = options.out
    for stem, chosen in manifests.items():
        print(f"Wrote {out / stem}.jsonl: {report.size(chosen)}.")
    if checked.flagged and options.fix == "drop":
        print(f"  {name}: dropped {len(checked.flagged)} with problems")
    elif warning := report.warn_kept(checked):
        print(f"Warning: {name}: {warning}", file=sys.stderr)
    if left_out := report.count_left_out(checked):
        print(f"  {name}: {left_out}")
    if checked.problems():
        print(f"  {name}: all problems are in {_report_path(out, name)}")


def _tell_undecided(options: argparse.Namespace, checked: Mapping[str, Checked]) -> int:
    for name, found in checked.items():
        if found.problems():
            report_path = _report_path(options.out, name)
            print(f"All {len(found.problems())} problems of {name} are in {report_path}.")
    print(
        "No manifest written. The same command with --fix drop leaves out what has problems, "
        "--fix keep keeps it with a warning, --ignore KIND,... doesn't look for them; recordings "
        "that haven't changed are not read again."
    )
    return 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status: 1 for problems without --fix."""
    return run_command(
        lambda: run(parse(arguments)),
        (SourceError, InspectionError),
        interrupted="Interrupted; the same command goes on from here.",
    )
