"""Sections of a report: its headline, errors, emission delay, the worst utterances."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from asr_ascend.evaluation.comparison import HEADLINE
from asr_ascend.evaluation.tables import first_context, markdown_table, snr_title


def emission_sentence(emission: dict[str, Any]) -> str:
    """Returns a sentence about the emission delay, for a terminal.

    It has median and 90th percentile, and the share of tokens that came too early.
    """
    return (
        f"Emission delay, streaming: median {_whole(emission['median_delay_ms'])} ms, 90th "
        f"percentile {_whole(emission['p90_delay_ms'])} ms. Of {emission['tokens']} correct tokens "
        f"{100 * emission['share_before_onset']:.2f}% have a frame before their onset, "
        f"{100 * emission['share_guessed']:.2f}% were guessed: their chunk ended before it."
    )


def _whole(value: float) -> str:
    """Formats a rounded number; nothing rounds to minus zero."""
    return str(round(value))


def emission_part(summary: dict[str, Any]) -> list[str]:
    """Returns what the emission delay is, and a table of it by SNR."""
    if not summary["emission"]["tokens"]:
        return ["The manifests hold no `token_start_ms`, so delays can't be measured."]
    rows = [
        [
            snr_title(row["snr_db"]),
            str(row["tokens"]),
            _whole(row["median_delay_ms"]),
            _whole(row["p90_delay_ms"]),
            f"{100 * row['share_before_onset']:.2f}",
            f"{100 * row['share_guessed']:.2f}",
        ]
        for row in summary["emission_by_snr"]
        if row["tokens"]
    ]
    wait = summary["emission"]["median_chunk_wait_ms"]
    head = ["SNR", "correct tokens", "median in ms", "90th percentile in ms"]
    head += ["% frame before onset", "% guessed"]
    explained = (
        "End of the emitting frame minus end of the spoken token, correct tokens only. Waiting for "
        f"the chunk to fill adds {wait:.0f} ms (median). The frames of a chunk see all of it, so a "
        "token may stand at a frame before its onset and yet have been heard; it was guessed where "
        "even its chunk ended before its onset."
    )
    return [explained, markdown_table(head, rows)]


def headline(summary: dict[str, Any]) -> str:
    """Returns one sentence for a report without a baseline: CERs of all sets together."""
    context = first_context(summary)
    found = {r["snr_db"]: r["cer"] for r in summary["cer_all_sets"] if r["context"] == context}
    chosen = [name for name in (*HEADLINE, "clean") if name in found] or list(found)
    shown = [
        f"{100 * found[name]:.2f}% " + ("on clean speech" if name == "clean" else f"at {name} dB")
        for name in chosen
    ]
    return f"**Character error rate, {context}, all sets together: {', '.join(shown)}.**"


def error_table(rows: Iterable[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Returns head and rows of a table: the kinds of errors by set, context and SNR."""
    head = ["set", "context", "SNR", "CER in %", "substitutions", "deletions", "insertions", "of"]
    counts = ("substitutions", "deletions", "insertions", "reference_length")
    body = [
        [row["set"], row["context"], snr_title(row["snr_db"]), f"{100 * row['cer']:.2f}"]
        + [str(row[count]) for count in counts]
        for row in rows
    ]
    return head, body


def worst_part(summary: dict[str, Any]) -> str:
    """Returns the worst utterances with reference and hypothesis, and the number of wrong ones."""
    worst, wrong = summary["worst"], summary["wrong"]
    if not wrong:
        return "Every utterance was right, at every SNR."
    if not worst:
        return f"{wrong} are wrong in some way, counted at every SNR; none is listed."
    head = ["id", "SNR", "CER in %", "said", "decoded"]
    body = [
        [
            *(row["id"], snr_title(row["snr_db"]), f"{100 * row['cer']:.0f}"),
            *(row["reference"], row["hypothesis"] or "(nothing)"),
        ]
        for row in worst
    ]
    counted = f"{len(worst)} of {wrong} that are wrong in some way, counted at every SNR."
    return f"{counted}\n\n{markdown_table(head, body)}"
