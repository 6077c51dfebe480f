"""Two models in the same noise, before and after a fine-tuning: what was won, what it cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from asr_ascend.evaluation.tables import cer_cells, first_context, markdown_table, snr_title, unique

# SNRs in dB that the headline is about, where they were evaluated.
HEADLINE = ("5", "0")
# A model with a CER like this one's hasn't learnt to hear, and has nothing to lose.
NOT_RECOGNISED = 0.8


def headline(summary: dict[str, Any]) -> list[str]:
    """Returns a sentence for each SNR of the headline, then one for the cost on clean speech.

    They are about all sets together.

    Args:
        summary: from `report.summarise`, with a baseline.
    """
    context = first_context(summary)
    noisy = [row["snr_db"] for row in summary["cer_all_sets"] if row["snr_db"] != "clean"]
    names = [name for name in HEADLINE if name in noisy] or unique(noisy)
    sentences = []
    for name in names:
        before, after = _cers(summary, context, name)
        sentences.append(f"At {name} dB the CER {_went(before, after)}.")
    if any(row["snr_db"] == "clean" for row in summary["cer_all_sets"]):
        before, after = _cers(summary, context, "clean")
        points = round(100 * after, 2) - round(100 * before, 2)
        price = f"{points:.2f} points" if points > 0 else "nothing"
        told = f"Clean speech pays {price}"
        if min(before, after) >= NOT_RECOGNISED:
            told = "Neither model recognises clean speech"
        sentences.append(f"{told}: the CER {_went(before, after)}.")
    return sentences


def table(summary: dict[str, Any]) -> list[str]:
    """Returns lines for a terminal: both models by set, context and SNR, then the headline."""
    names = unique(row["snr_db"] for row in summary["cer"])
    lines = [" " * 34 + "".join(f"{name:>8}" for name in names)]
    shown_set = shown_context = ""
    for set_name, context, when, values in _rows(summary):
        first = "" if set_name == shown_set else set_name
        second = "" if (set_name, context) == (shown_set, shown_context) else context
        shown_set, shown_context = set_name, context
        lines.append(f"{first:12s}{second:14s}{when:8s}" + "".join(f"{v:>8}" for v in values))
    return [*lines, *headline(summary)]


def markdown(summary: dict[str, Any]) -> list[str]:
    """Returns the comparison's part of the report, as paragraphs of Markdown."""
    names = unique(row["snr_db"] for row in summary["cer"])
    baseline = summary["baseline"]
    sentences = "\n".join(f"- **{sentence}**" for sentence in headline(summary))
    head = ["set", "context", "model", *(snr_title(name) for name in names)]
    rows = [[name, context, when, *values] for name, context, when, values in _rows(summary)]
    return [
        "## Before and after",
        f"Before: `{baseline['checkpoint']}` (step {baseline['step']}). After: "
        f"`{summary['checkpoint']}` (step {summary['step']}). Both heard the same speech in the "
        f"same noise; {first_context(summary)}, all sets together:",
        sentences,
        "CER in %, and its change in points:",
        markdown_table(head, rows),
    ]


def _rows(summary: dict[str, Any]) -> Iterator[tuple[str, str, str, list[str]]]:
    """Yields set, context, model and CERs: before, after and the change of each set."""
    names = unique(row["snr_db"] for row in summary["cer"])
    models = {"before": summary["baseline"], "after": summary}
    for key in ("cer", "cer_all_sets"):
        sets = unique(row["set"] for row in summary["cer"])
        if key == "cer_all_sets" and len(sets) < 2:
            return
        for set_name in unique(row["set"] for row in summary[key]):
            for context in unique(row["context"] for row in summary[key]):
                shown = {
                    when: cer_cells(model[key], set_name, context, names)
                    for when, model in models.items()
                }
                for when, values in shown.items():
                    yield set_name, context, when, values
                pairs = zip(shown["before"], shown["after"], strict=True)
                change = [_signed(float(b) - float(a)) if a and b else "" for a, b in pairs]
                yield set_name, context, "change", change


def _signed(points: float) -> str:
    """Formats a difference with its sign; zero has none."""
    shown = f"{points:+.2f}"
    return shown[1:] if float(shown) == 0 else shown


def _cers(summary: dict[str, Any], context: str, name: str) -> tuple[float, float]:
    """Returns the CER of all sets before and after."""
    before, after = (
        next(
            row["cer"]
            for row in model["cer_all_sets"]
            if (row["context"], row["snr_db"]) == (context, name)
        )
        for model in (summary["baseline"], summary)
    )
    return before, after


def _went(before: float, after: float) -> str:
    shown = f"{100 * before:.2f}%", f"{100 * after:.2f}%"
    if shown[0] == shown[1]:
        return f"stays {shown[0]}"
    return f"{'falls' if after < before else 'rises'} from {shown[0]} to {shown[1]}"
