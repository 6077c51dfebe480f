"""Report of an evaluation: summary, table, Markdown, JSON and picture, all from the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asr_ascend.decoding.metrics import EmissionDelays, ErrorCounts, word_errors
from asr_ascend.evaluation import comparison
from asr_ascend.evaluation.sections import (
    emission_part,
    emission_sentence,
    error_table,
    headline,
    worst_part,
)
from asr_ascend.evaluation.tables import FULL as FULL  # for those who make `Decoded`
from asr_ascend.evaluation.tables import STREAMING as STREAMING
from asr_ascend.evaluation.tables import (
    cer_cells,
    chunk_title,
    draw_cer,
    first_context,
    has_words,
    markdown_table,
    snr_name,
    snr_title,
    unique,
)
from asr_ascend.system.atomic import write_json, write_json_lines, write_text

_PICTURE_TITLES = {
    "training.png": "## Training",
    "example.png": "## An example",
    "example_alignment.png": "### What was heard, and when",
}


@dataclass(frozen=True)
class Decoded:
    """One utterance decoded in one condition.

    Args:
        id: of the utterance.
        set_name: stem of its manifest.
        snr_db: None for clean speech.
        context: "streaming" or "full context".
        noise: "none", "known" (kinds that training hears) or "unseen".
        reference, hypothesis: texts.
        errors: of the hypothesis.
        delays: of the correct tokens, where the manifest says when each was spoken.
        guessed: how many of these came out of a chunk that ended before their onset.
    """

    id: str
    set_name: str
    snr_db: float | None
    context: str
    noise: str
    reference: str
    hypothesis: str
    errors: ErrorCounts
    delays: EmissionDelays = field(default_factory=EmissionDelays)
    guessed: int = 0


def summarise(
    results: Sequence[Decoded],
    about: dict[str, Any],
    worst: int,
    before: tuple[Sequence[Decoded], dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Summarises everything that the report says, as plain Python.

    Args:
        results: every utterance in every condition.
        about: what was evaluated; copied to the top of the summary.
        worst: how many of the worst utterances to list; of the stream, if it was evaluated.
        before: results of a baseline in the same conditions, and its `about`; None: no comparison.
    """
    streaming = [result for result in results if result.context == STREAMING]
    listed = streaming or list(results)
    spoiled = sorted(listed, key=lambda r: (-r.errors.cer, -r.errors.errors, r.id))
    return {
        **about,
        "utterances": len({(result.set_name, result.id) for result in results}),
        **_cer_rows(results),
        "cer_by_noise": _rows(
            sorted((r for r in listed if r.noise != "none"), key=lambda r: r.noise),
            lambda r: (f"{r.noise} kinds of noise", r.context, r.snr_db),
        ),
        "emission": _emission(streaming),
        "emission_by_snr": [
            {"snr_db": snr_name(snr), **_emission([r for r in streaming if r.snr_db == snr])}
            for snr in unique(r.snr_db for r in streaming)
        ],
        "worst": [utterance_record(result) for result in spoiled[:worst] if result.errors.errors],
        "wrong": sum(result.errors.errors > 0 for result in listed),
        **({} if before is None else {"baseline": {**before[1], **_cer_rows(before[0])}}),
    }


def _cer_rows(results: Sequence[Decoded]) -> dict[str, Any]:
    return {
        "cer": _rows(results, lambda r: (r.set_name, r.context, r.snr_db)),
        "cer_all_sets": _rows(results, lambda r: ("all", r.context, r.snr_db)),
    }


def utterance_record(result: Decoded) -> dict[str, Any]:
    """Returns one line of utterances.jsonl."""
    return {
        "id": result.id,
        "set": result.set_name,
        "snr_db": snr_name(result.snr_db),
        "context": result.context,
        "noise": result.noise,
        "cer": round(result.errors.cer, 4),
        "substitutions": result.errors.substitutions,
        "deletions": result.errors.deletions,
        "insertions": result.errors.insertions,
        "reference": result.reference,
        "hypothesis": result.hypothesis,
    }


def table(summary: dict[str, Any]) -> str:
    """Returns CER by set, context and SNR, and the emission delay, as text for a terminal."""
    lines = [f"CER in % by SNR in dB ({summary['utterances']} utterances, {summary['decoder']})"]
    lines += comparison.table(summary) if "baseline" in summary else _rate_lines(summary, "cer")
    if has_words(summary):
        lines += ["WER in % by SNR in dB", *_rate_lines(summary, "wer")]
    emission = summary["emission"]
    if emission["tokens"]:
        lines.append(emission_sentence(emission))
    return "\n".join(lines)


def _rate_lines(summary: dict[str, Any], rate: str) -> list[str]:
    """CER, or WER of the sets that have words, by set, context and SNR."""
    names = unique(row["snr_db"] for row in summary["cer"])
    lines = [f"{'':12s}{'':22s}" + "".join(f"{name:>8}" for name in names)]
    for set_name in unique(row["set"] for row in summary["cer"]):
        label = set_name
        for context in unique(row["context"] for row in summary["cer"]):
            shown = f"streaming {chunk_title(summary)}" if context == STREAMING else context
            cells = cer_cells(summary["cer"], set_name, context, names, rate)
            if not any(cells):
                continue
            lines.append(f"{label:12s}{shown:22s}" + "".join(f"{cell:>8}" for cell in cells))
            label = ""
    return lines


def markdown(summary: dict[str, Any]) -> str:
    """Returns the report as Markdown."""
    context = first_context(summary)
    names = unique(row["snr_db"] for row in summary["cer"])
    parts = [
        "# Evaluation",
        f"Checkpoint `{summary['checkpoint']}` (step {summary['step']}), "
        f"{summary['utterances']} utterances, {summary['decoder']} decoding, stream in chunks of "
        f"{chunk_title(summary)}, noise seed {summary['noise_seed']}.",
        *(comparison.markdown(summary) if "baseline" in summary else [headline(summary)]),
        "## Character error rate in %",
        "![CER by SNR](cer_by_snr.png)",
        _rate_table(summary, "cer"),
    ]
    if has_words(summary):
        parts += ["## Word error rate in %", "Of the sets whose texts have spaces."]
        parts += [_rate_table(summary, "wer")]
    if summary["cer_by_noise"]:
        noisy = [name for name in names if name != "clean"]
        parts += [
            f"By kind of noise, {context}. Known: "
            f"{', '.join(summary['noise_kinds'])}, with seeds that training doesn't use. Unseen: "
            f"{', '.join(summary['unseen_noise_kinds']) or 'none'}.",
            markdown_table(
                ["noise", *[snr_title(name) for name in noisy]],
                [
                    [kind, *cer_cells(summary["cer_by_noise"], kind, context, noisy)]
                    for kind in unique(row["set"] for row in summary["cer_by_noise"])
                ],
            ),
        ]
    parts += ["## Errors", "The CER is all three kinds over the characters that were said."]
    parts += [markdown_table(*error_table(summary["cer"]))]
    if context == STREAMING:
        parts += ["## Emission delay, streaming", *emission_part(summary)]
    parts += [f"## Worst utterances, {context}", worst_part(summary)]
    for name, caption in summary.get("pictures", {}).items():
        parts += [_PICTURE_TITLES[name], f"![{name.removesuffix('.png')}]({name})", caption]
    return "\n\n".join(parts) + "\n"


def _rate_table(summary: dict[str, Any], rate: str) -> str:
    names = unique(row["snr_db"] for row in summary["cer"])
    rows = [
        [set_name, context, *cer_cells(summary["cer"], set_name, context, names, rate)]
        for set_name in unique(row["set"] for row in summary["cer"])
        for context in unique(row["context"] for row in summary["cer"])
    ]
    head = ["set", "context", *[snr_title(name) for name in names]]
    return markdown_table(head, [row for row in rows if any(row[2:])])


def write(summary: dict[str, Any], results: Iterable[Decoded], folder: Path) -> None:
    """Writes report.md, report.json, utterances.jsonl and cer_by_snr.png, each in one step."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json_lines(folder / "utterances.jsonl", map(utterance_record, results))
    write_json(folder / "report.json", summary)
    write_text(folder / "report.md", markdown(summary))
    draw_cer(summary, folder / "cer_by_snr.png")


def _rows(results: Iterable[Decoded], key: Callable[[Decoded], Any]) -> list[dict[str, Any]]:
    groups: dict[Any, list[Decoded]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    rows = []
    for (set_name, context, snr_db), members in groups.items():
        errors = sum((member.errors for member in members), ErrorCounts())
        rows.append(
            {
                **_word_error_rate(members),
                "set": set_name,
                "context": context,
                "snr_db": snr_name(snr_db),
                "utterances": len(members),
                "cer": errors.cer,
                "substitutions": errors.substitutions,
                "deletions": errors.deletions,
                "insertions": errors.insertions,
                "reference_length": errors.reference_length,
            }
        )
    return rows


def _word_error_rate(members: Sequence[Decoded]) -> dict[str, float]:
    """The WER, where texts have spaces; nothing for languages that write without them."""
    if not any(" " in member.reference.strip() for member in members):
        return {}
    pairs = (word_errors(member.reference, member.hypothesis) for member in members)
    return {"wer": sum(pairs, ErrorCounts()).cer}


def _emission(results: Sequence[Decoded]) -> dict[str, Any]:
    delays = EmissionDelays(tuple(token for result in results for token in result.delays.tokens))
    if not delays.tokens:
        return {"tokens": 0}
    ranked = sorted(token.delay_ms for token in delays.tokens)
    return {
        "tokens": len(ranked),
        "median_delay_ms": round(delays.median_ms, 1),
        "p90_delay_ms": round(ranked[int(0.9 * (len(ranked) - 1))], 1),
        "share_before_onset": round(delays.share_before_onset, 5),
        "share_guessed": round(sum(result.guessed for result in results) / len(ranked), 5),
        "median_chunk_wait_ms": round(delays.median_chunk_wait_ms, 1),
    }
