"""Results as tables, which read well on a terminal and are Markdown too."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.implementations import IMPLEMENTATIONS

LEGEND = """\
Milliseconds of forward and backward to the gradient by the logits: median (quartiles). Repetitions
are interleaved, after a warm-up, on logits written anew each time. *speed-up*: from the fewest to
the most threads. *of ours*, *of the floor*: with the most threads, as a multiple of "ours, in
place" and of the memory floor of the same minutes: float32 logits read once to sum exp, then read
and overwritten with exp (with fewer threads, where that is faster). *extra memory*: peak beside the
logits, also as a multiple of them. *gradient error*: the largest, against float64 on the same
logits."""


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with even columns."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in (header, *rows)
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def milliseconds(value: float) -> str:
    """Three digits, but whole from a hundred on."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


def time_cell(times: dict) -> str:
    low, high = times["quartiles"]
    spread = f" ({milliseconds(low)} to {milliseconds(high)})" if times["repetitions"] > 1 else ""
    return milliseconds(times["median"]) + spread


def multiple(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def memory_cell(result: dict) -> str:
    if result["peak_extra_bytes"] is None:
        return "not measured"
    return (
        f"{result['peak_extra_bytes'] / 1e6:,.0f} MB ({multiple(result['peak_extra_per_logits'])})"
    )


def timed_cell(measured: Sequence[dict]) -> str:
    """How many repetitions, and whether there was a warm-up."""
    counts = sorted({result["milliseconds"]["repetitions"] for result in measured})
    cold = "" if all(result["warmed_up"] for result in measured) else ", no warm-up"
    return " to ".join(map(str, dict.fromkeys((counts[0], counts[-1])))) + cold


def case_table(case: dict, threads: Sequence[int]) -> str:
    """One case: a row per implementation."""
    columns = [f"{n} thread{'s' * (n > 1)}, ms" for n in threads]
    speed_up = ["speed-up"] if len(threads) > 1 else []
    rest = ["of ours", "of the floor", "extra memory", "gradient error", "timed"]
    header = ["", *columns, *speed_up, *rest]
    rows = []
    if case["floor"]:
        floors = [case["floor"][str(n)] for n in threads]
        gain = [multiple(floors[0]["median"] / floors[-1]["median"])] if speed_up else []
        count = str(floors[-1]["repetitions"])
        rows.append(["memory floor", *map(time_cell, floors), *gain, "", "1", "", "", count])
    for name in IMPLEMENTATIONS:
        entries = [entry for entry in case["results"] if entry["implementation"] == name]
        measured = [entry for entry in entries if "milliseconds" in entry]
        if not entries:
            continue
        if not measured:
            filler = [""] * (len(header) - 2)
            rows.append([IMPLEMENTATIONS[name].title, reason(entries[0]), *filler])
            continue
        last = measured[-1]
        rows.append(
            [
                last["title"],
                *(time_cell(entry["milliseconds"]) for entry in measured),
                *([multiple(last["speed_up"])] if speed_up else []),
                multiple(last["ratio_to_ours"]),
                multiple(last["ratio_to_floor"]),
                memory_cell(last),
                f"{max(entry['numbers']['gradient_error'] for entry in measured):.1e}",
                timed_cell(measured),
            ]
        )
    return aligned(header, rows)


def reason(entry: dict) -> str:
    """Why there is no time."""
    for kind in ("skipped", "refused", "failed"):
        if kind in entry:
            return f"{kind}: {entry[kind]}"
    raise ValueError(f"{entry} has neither a time nor a reason")


def case_title(case: dict) -> str:
    return (
        f"**{case['name']}**: B x T x U x V = {case['shape']}, {case['rows']:,} rows, "
        f"{case['logits_bytes'] / 1e6:,.0f} MB of float32 logits"
    )


def machine_line(results: dict) -> str:
    """Date, machine, versions and commit in a sentence or two."""
    machine, versions = results["machine"], results["versions"]
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    commit = (results["commit"] or "unknown")[:12]
    changed = results["uncommitted_files"]
    return (
        f"{results['date'][:10]}, {machine['cores']} cores of {machine['processor']}, "
        f"{machine['memory_bytes'] / 1e9:.0f} GB, {machine['instruction_set']}; {named}; commit "
        f"{commit}{f' and {changed} changed files' if changed else ''}; load "
        f"{machine['load_average'][0]:.1f} before the start{busy(results)}."
    )


def busy(results: dict) -> str:
    """A warning, if something else ran."""
    load = results["machine"]["load_average"][0]
    return ": **a busy machine, so these times are too long**" if load > 0.5 else ""


def summary_table(results: dict, names: Sequence[str] = tuple(IMPLEMENTATIONS)) -> str:
    """All cases with the most threads: the floor, a row per implementation, a column per case."""
    threads = results["settings"]["threads"][-1]
    cases = results["cases"]
    rows = [["memory floor", *(floor_cell(case, threads) for case in cases)]]
    for name in names:
        cells = [summary_cell(case, name, threads) for case in cases]
        if any(cells):
            rows.append([IMPLEMENTATIONS[name].title, *cells])
    return aligned(["", *(f"{case['name']}: {case['shape']}" for case in cases)], rows)


def floor_cell(case: dict, threads: int) -> str:
    """With as many threads, or with fewer where that is faster."""
    medians = [times["median"] for n, times in case["floor"].items() if int(n) <= threads]
    return milliseconds(min(medians)) if medians else ""


def summary_cell(case: dict, name: str, threads: int) -> str:
    for entry in case["results"]:
        if entry["implementation"] == name and entry.get("threads", threads) == threads:
            if "milliseconds" not in entry:
                return short_reason(entry)
            ratio = entry["ratio_to_ours"]
            times = "" if ratio in (None, 1.0) else f" ({multiple(ratio)}x)"
            return milliseconds(entry["milliseconds"]["median"]) + times
    return ""


def short_reason(entry: dict) -> str:
    if "skipped" in entry:
        return "does not fit" if "GB" in entry["skipped"] else "not run: slow"
    return "refused: wrong numbers" if "refused" in entry else "failed"
