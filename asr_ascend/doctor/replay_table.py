"""The table of `--replay`: a saved batch on every backend against float64."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asr_ascend.doctor import npu_side, python_side
from asr_ascend.doctor.lines import MISSING, OK, WARNING, WRONG, Line, Section, as_json, text
from asr_ascend.doctor.machine import Machine
from asr_ascend.doctor.probing import NOT_REACHED, Child, Outcome, run


class ReplayError(Exception):
    """The file can't be replayed; the message is a sentence."""


def replay(path: Path, machine: Machine, in_json: bool, seconds: float) -> int:
    """Prints the table.

    Returns:
        0 where every backend that is here agrees with float64, else 1.

    Raises:
        ReplayError: the file is no saved batch.
    """
    section = examine(path, machine, seconds)
    wrong = [line for line in section.lines if line.status == WRONG]
    if in_json:
        print(json.dumps(as_json([section], ["replay"], wrong), indent=1))
    else:
        print(text([section]))
    return 1 if wrong else 0


def examine(path: Path, machine: Machine, seconds: float) -> Section:
    """The lines of the table; as `replay`."""
    without = {**machine.variables, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    file = str(path.absolute())
    outcome = run([Child([f"batch:{file}"], without, seconds)])[f"batch:{file}"]
    if outcome.values is None:
        raise ReplayError(f"{outcome.failure}.")
    lines = [_about(outcome.values)]
    if outcome["logits"] is None:
        lines += [_statistics(name, value) for name, value in outcome["statistics"].items()]
        reason = "the file holds no logits, only their statistics, so nothing can be run"
        return _section(path, [*lines, Line("replay", WRONG, reason, None, ("replay",))])
    lines.append(_logits(outcome["logits"]))
    children = [Child([f"replay:reference:{file}", f"replay:cpu:{file}"], without, seconds)]
    names = ["reference", "cpu"]
    if not npu_side.is_cpu_machine(machine) and python_side.version_of("torch-npu"):
        children.append(Child([f"replay:npu:{file}"], machine.variables, seconds))
        names.append("npu")
    outcomes = run(children)
    by_name = {name: outcomes.get(f"replay:{name}:{file}", NOT_REACHED) for name in names}
    return _section(path, [*lines, *_costs(by_name), *map(_backend, by_name, by_name.values())])


def _section(path: Path, lines: list[Line]) -> Section:
    return Section(f"Saved batch {path}", lines)


def _about(values: Mapping[str, Any]) -> Line:
    parts = [f"{values['utterances']} utterances"]
    parts += [f"{name} {value}" for name, value in values["about"].items()]
    return Line("batch", OK, ", ".join(parts))


def _statistics(name: str, value: Mapping[str, Any]) -> Line:
    found = ", ".join(f"{key.replace('_', ' ')} {number:.6g}" for key, number in value.items())
    return Line(name, WARNING if value.get("not_finite") else OK, found)


def _logits(values: Mapping[str, Any]) -> Line:
    shape = f"{values['rows']} rows of {values['symbols']} in {values['dtype']}"
    if values["not_finite"]:
        total = values["rows"] * values["symbols"]
        found = f"{shape}; {values['not_finite']} of {total} are not finite; the first is of "
        return Line("logits", WARNING, found + values["first"])
    return Line("logits", OK, f"{shape}, all finite")


def _costs(outcomes: Mapping[str, Outcome]) -> list[Line]:
    """The costs in float64, by any backend's process that got there."""
    exact = next((each["exact"] for each in outcomes.values() if each["exact"]), None)
    if exact is None:
        return []
    bad = [number for number in exact if number in ("nan", "inf", "-inf")]
    found = "in float64: " + ", ".join(exact[:8]) + (", ..." if len(exact) > 8 else "") + " nats"
    return [Line("costs", WARNING if bad else OK, found)]


def _backend(name: str, outcome: Outcome) -> Line:
    subject, needed_by = f"loss on {name}", ("replay",)
    if outcome.failure is not None:
        return Line(subject, MISSING, f"it can't be run: {outcome.failure}", None, needed_by)
    if outcome["refused"] is not None:
        text = f"it doesn't take the batch: {outcome['refused']}"
        return Line(subject, WARNING, text, None, needed_by)
    if outcome["fault"] is not None:
        return Line(subject, WRONG, outcome["fault"], "please report it, with the file", needed_by)
    return Line(subject, OK, "costs and gradient agree with float64", None, needed_by)
