"""The results as a table to read; the JSON has everything."""

from __future__ import annotations

SCHEMA_VERSION = 1
NO_CHIP = (
    "**Made without a 910B**, on {device}: times mean nothing here, and no row says anything about "
    "a chip."
)


def is_right(entry: dict) -> bool:
    """Whether a row's number is right, or a shape's; one left out is not wrong."""
    if "pass" in entry:
        return entry["pass"] is True
    return "skipped" in entry or entry["numbers"] == "right"


def verdict(results: dict) -> str:
    """ "passed", or "failed" where a number is wrong or could not be had."""
    entries = results["rows"] + results["times"]
    right = bool(entries) and all(map(is_right, entries)) and "failed" not in results["profile"]
    return "passed" if right else "failed"


def markdown(results: dict) -> str:
    """The table to send back."""
    machine = results["machine"]
    versions = results["versions"]
    lines = [
        f"# RNN-T loss on {machine['device']}: {results['verdict']}",
        "",
        f"{machine['date']}, commit {versions['commit']}, {machine['host']}; "
        + ", ".join(f"{name} {versions[name]}" for name in ("torch", "torch_npu"))
        + f"; CANN {results['build'].get('cann_version', 'unknown')}.",
        "",
    ]
    if not results["on_a_chip"]:
        lines += [NO_CHIP.format(device=machine["device"]), ""]
    lines += section_table(results["rows"]) + precision_table(results["rows"])
    lines += failures(results["rows"])
    lines += time_table(results["times"], results["on_a_chip"]) + profile_lines(results["profile"])
    return "\n".join(lines)


def section_table(rows: list[dict]) -> list[str]:
    lines = ["## Numbers", "", "| section | right | wrong | not measured |", "|---|---|---|---|"]
    for section in dict.fromkeys(row["section"] for row in rows):
        marks = [row["pass"] for row in rows if row["section"] == section]
        counts = " | ".join(str(marks.count(mark)) for mark in (True, False, None))
        lines.append(f"| {section} | {counts} |")
    return [*lines, ""]


def precision_table(rows: list[dict]) -> list[str]:
    """The specification's rows, one by one."""
    rows = [row for row in rows if row["section"] == "precision"]
    if not rows:
        return []
    lines = ["| precision row | quantity | measured | must be | tolerance | |"]
    lines.append("|---|---|---|---|---|---|")
    return [*lines, *("| " + " | ".join(cells(row)) + " |" for row in rows), ""]


def cells(row: dict) -> list[str]:
    numbers = [number(row[key]) for key in ("measured", "expected", "tolerance")]
    mark = {True: "right", False: "**wrong**", None: "not measured"}[row["pass"]]
    return [row["name"], row["quantity"], *numbers, mark]


def number(value: float | str | None) -> str:
    return "" if value is None else f"{value:.9g}" if isinstance(value, float) else str(value)


def failures(rows: list[dict]) -> list[str]:
    wrong = [row for row in rows if not row["pass"]]
    if not wrong:
        return []
    lines = ["## Wrong or not measured", ""]
    lines.append("| section | name | quantity | measured | must be | tolerance | | |")
    lines.append("|---|---|---|---|---|---|---|---|")
    for row in wrong:
        lines.append("| " + " | ".join([row["section"], *cells(row), row["detail"]]) + " |")
    return [*lines, ""]


def time_table(entries: list[dict], on_a_chip: bool) -> list[str]:
    if not entries:
        return []
    lines = [
        "## Times",
        "",
        "Milliseconds of one call: median (quartiles). The model is that of "
        "docs/npu_time_model.md, of one launch for loss and gradient.",
        "",
        "| B x T x U x V | forward alone | loss and gradient | in place | model | / model "
        "| HBM limit | numbers |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for entry in entries:
        lines.append(f"| {entry['shape']} | {' | '.join(time_cells(entry, on_a_chip))} |")
    return [*lines, ""]


def time_cells(entry: dict, on_a_chip: bool) -> list[str]:
    if "milliseconds" not in entry:
        return [""] * 6 + [entry.get("skipped", entry.get("numbers", ""))]
    measured = entry["milliseconds"]
    spans = []
    for name in ("forward alone", "loss and gradient", "loss and gradient in place"):
        lower, upper = measured[name]["quartiles"]
        spans.append(f"{measured[name]['median']:.3f} ({lower:.3f} to {upper:.3f})")
    model = entry["model"]
    if not model:
        return [*spans, "", "", "", entry["numbers"]]
    ratio = measured["loss and gradient"]["median"] / model["model"]
    ratio_text = f"{ratio:.2f}" if on_a_chip else ""
    span = f"{model['model']:.3f} ({model['cheapest']:.3f} to {model['dearest']:.3f})"
    return [*spans, span, ratio_text, f"{model['hbm_limit']:.3f}", entry["numbers"]]


def profile_lines(profile: dict) -> list[str]:
    lines = ["## Profile", ""]
    for key in ("skipped", "failed"):
        if key in profile:
            return [*lines, f"{key}: {profile[key]}.", ""]
    wanted = ("Op Name", "OP Type", "Task Duration(us)", "Block Dim")
    columns = [key for key in profile["operators"][0] if key in wanted or key.endswith("_ratio")]
    lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for launch in profile["operators"]:
        lines.append("| " + " | ".join(launch[key] for key in columns) + " |")
    return [*lines, ""]
