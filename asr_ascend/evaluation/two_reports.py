"""Before and after, from two finished evaluations: nothing is decoded again.

``python -m asr_ascend.compare outputs/base outputs/finetune``
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from asr_ascend.evaluation import comparison
from asr_ascend.evaluation.tables import draw_cer, unique
from asr_ascend.system.atomic import write_text
from asr_ascend.system.command import CommandParser, run_command
from asr_ascend.system.paths import path_argument

PICTURE, TEXT = "cer_before_after.png", "comparison.md"
# Two evaluations heard the same only where these are the same.
_NOISE = ("noise_kinds", "unseen_noise_kinds", "noise_seed")
# These may differ, and are told.
_DECODING = ("decoder", "chunk_ms", "left_chunks")


class ReportError(ValueError):
    """Reports that can't be compared; the message is for the user."""


def read_report(path: Path) -> dict[str, Any]:
    """Reads the summary that an evaluation wrote.

    Args:
        path: report.json, or the folder that holds it.

    Raises:
        ReportError: the file is missing or not a report.
    """
    file = path / "report.json" if path.is_dir() else path
    if not file.is_file():
        raise ReportError(
            f"{file} is not there; python -m asr_ascend.evaluate checkpoint=... writes it."
        )
    try:
        summary = json.loads(file.read_text(encoding="utf-8"))
        needed = ("checkpoint", "step", "utterances", "cer", "cer_all_sets", *_NOISE, *_DECODING)
        if all(key in summary for key in needed) and isinstance(summary, dict):
            return summary
    except (ValueError, TypeError):
        pass
    raise ReportError(f"{file} is not a report.json of asr_ascend.evaluate.")


def compared(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Returns the later summary with the earlier as its baseline.

    Only conditions that both have are kept.

    Raises:
        ReportError: the two didn't hear the same, or have no condition in common.
    """
    problems = list(_differences(before, after))
    if problems:
        raise ReportError(
            "The two evaluations didn't hear the same:\n"
            + "\n".join(f"  {problem}" for problem in problems)
        )
    kept = {}
    for key in ("cer", "cer_all_sets"):
        both = set(map(_condition, before[key])) & set(map(_condition, after[key]))
        for when, summary in (("before", before), ("after", after)):
            kept[when, key] = [row for row in summary[key] if _condition(row) in both]
    if not kept["after", "cer"]:
        raise ReportError("The two evaluations have no SNR and context in common.")
    tables = {key: kept["after", key] for key in ("cer", "cer_all_sets")}
    baseline = {key: before[key] for key in ("checkpoint", "step")}
    baseline |= {key: kept["before", key] for key in ("cer", "cer_all_sets")}
    return {**after, **tables, "baseline": baseline}


def decoding_notes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Returns a sentence for each way in which the two were decoded differently."""
    return [
        f"`{key}` is {before[key]} before, {after[key]} after."
        for key in _DECODING
        if before[key] != after[key]
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return run_command(lambda: _compare(arguments), (ReportError,))


def _compare(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    before, after = read_report(options.before), read_report(options.after)
    summary = compared(before, after)
    folder = options.out or (options.after if options.after.is_dir() else options.after.parent)
    folder.mkdir(parents=True, exist_ok=True)
    notes = decoding_notes(before, after)
    parts = ["# Comparison", *comparison.markdown(summary), *notes]
    draw_cer(summary, folder / PICTURE)
    text = "\n\n".join([*parts, f"![CER by SNR before and after]({PICTURE})"])
    write_text(folder / TEXT, text + "\n")
    print(f"CER in % by SNR in dB ({summary['utterances']} utterances)")
    print("\n".join([*comparison.table(summary), *notes]))
    print(f"Comparison: {folder / TEXT}  plot: {folder / PICTURE}")
    return 0


def _differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for key in _NOISE:
        if before[key] != after[key]:
            yield f"`{key}` is {before[key]} before, {after[key]} after"
    sizes = [
        {row["set"]: (row["utterances"], row["reference_length"]) for row in summary["cer"]}
        for summary in (before, after)
    ]
    for name in unique([*sizes[0], *sizes[1]]):
        shown = [_size(size.get(name)) for size in sizes]
        if shown[0] != shown[1]:
            yield f"the set {name} has {shown[0]} before, {shown[1]} after"


def _size(size: tuple[int, int] | None) -> str:
    return "nothing" if size is None else f"{size[0]} utterances of {size[1]} characters"


def _condition(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["set"], row["context"], row["snr_db"]


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="python -m asr_ascend.compare",
        description="Table and plot of two evaluations of the same speech in the same noise: what "
        "the second model won, and what it cost. Nothing is decoded again.",
    )
    parser.add_argument(
        "before", type=path_argument, help="a folder with a report.json, or that file"
    )
    parser.add_argument("after", type=path_argument, help="the same of the other model")
    parser.add_argument(
        "--out", type=path_argument, help=f"folder of {TEXT} and {PICTURE}; default: that of AFTER"
    )
    return parser
