"""Pieces that every part of a report is made of: tables, titles, the plot of CER by SNR."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from asr_ascend.system.figures import picture
from asr_ascend.system.streams import escaped

STREAMING, FULL = "streaming", "full context"


def draw_cer(summary: dict[str, Any], path: Path) -> None:
    """Draws CER by SNR: a colour for each set, solid for the stream, dashed for full context.

    With a baseline, both models' curves of one context are drawn: dotted before, solid after.
    """
    names = unique(row["snr_db"] for row in summary["cer"])
    drawn = []
    for rows, set_name, context, line, label in curves(summary):
        shown = cer_cells(rows, set_name, context, names)
        if any(shown):
            values = [float(cell) if cell else float("nan") for cell in shown]
            drawn.append((values, line, escaped(label)))
    apart = min(0.04, 0.3 / max(1, len(drawn)))  # curves of equal values stand side by side
    with picture(path, (7, 4.2), dpi=150) as figure:
        axes = figure.add_subplot()
        for index, (values, line, label) in enumerate(drawn):
            shift = apart * (index - (len(drawn) - 1) / 2)
            axes.plot([place + shift for place in range(len(names))], values, line, label=label)
        axes.set_xticks(range(len(names)), [str(name) for name in names])
        axes.set_xlabel("SNR over active speech in dB")
        axes.set_ylabel("character error rate in %")
        axes.set_ylim(bottom=-0.03 * axes.get_ylim()[1])  # a curve at 0 is seen
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)


def curves(summary: dict[str, Any]) -> list[tuple[list[dict[str, Any]], str, str, str, str]]:
    """Returns rows, set, context, line and label of each curve."""
    curves = []
    baseline = summary.get("baseline")
    for index, set_name in enumerate(unique(row["set"] for row in summary["cer"])):
        if baseline is not None:
            context = first_context(summary)
            for rows, when, line in (
                (baseline["cer"], "before", "o:"),
                (summary["cer"], "after", "o-"),
            ):
                curves.append((rows, set_name, context, f"C{index}{line}", f"{set_name}, {when}"))
            continue
        for context, line in ((STREAMING, "o-"), (FULL, "x--")):
            shown = f"streaming {chunk_title(summary)}" if context == STREAMING else context
            curves.append(
                (summary["cer"], set_name, context, f"C{index}{line}", f"{set_name}, {shown}")
            )
    return curves


def first_context(summary: dict[str, Any]) -> str:
    """Returns the streaming context if it was evaluated, else full context."""
    contexts = unique(row["context"] for row in summary["cer"])
    return STREAMING if STREAMING in contexts else FULL


def has_words(summary: dict[str, Any]) -> bool:
    """Returns whether the texts of a set have spaces."""
    return any("wer" in row for row in summary["cer"])


def cer_cells(
    rows: Iterable[dict[str, Any]],
    set_name: str,
    context: str,
    names: Sequence[Any],
    rate: str = "cer",
) -> list[str]:
    """Returns the CER in % (or WER) of one set in one context at each SNR.

    A cell is "" where there is no result.
    """
    chosen = [r for r in rows if (r["set"], r["context"]) == (set_name, context) and rate in r]
    found = {r["snr_db"]: r[rate] for r in chosen}
    return [f"{100 * found[name]:.2f}" if name in found else "" for name in names]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table whose cells may hold any text."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Returns text on one line that ends no cell and holds no Markdown."""
    return "".join(f"\\{c}" if c in "\\|`*_<[" else c for c in " ".join(text.split()))


def unique(values: Iterable[Any]) -> list[Any]:
    """Returns the values without repeats, in order."""
    return list(dict.fromkeys(values))


def snr_name(snr_db: float | None) -> float | str:
    """Returns the name of an SNR in a summary: "clean" for None."""
    return "clean" if snr_db is None else f"{snr_db:g}"


def snr_title(name: str) -> str:
    """Returns the name of an SNR as a reader sees it, with its unit."""
    return name if name == "clean" else f"{name} dB"


def chunk_title(summary: dict[str, Any]) -> str:
    """Returns the chunk of the stream as a reader sees it."""
    return "full" if summary["chunk_ms"] == "full" else f"{summary['chunk_ms']} ms"
