"""The doctor's command: looks at everything, prints a table or JSON, replays a saved batch."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence

from asr_ascend import __version__
from asr_ascend.doctor import build_side, cpu_side, npu_side, python_side, replay_table
from asr_ascend.doctor.lines import (
    MISSING,
    WARNING,
    WRONG,
    Line,
    Section,
    as_json,
    failing,
    listed,
    text,
)
from asr_ascend.doctor.machine import Machine
from asr_ascend.doctor.probing import SECONDS, Child, Outcome, run
from asr_ascend.system.command import CommandParser, run_command
from asr_ascend.system.paths import path_argument

REQUIREMENTS = ("cpu", "npu", "reference", "torchaudio", "training", "build")
_DESCRIPTION = """\
Says what of this machine and installation is right, and what mends the rest; then runs the loss
forward and backward on every backend that is here. Nothing is changed. Imports run in processes of
their own, so a broken one ends nothing.
"""
_STATUS = """\
exit status: 0 if all that was asked for is right; 1 if not, or if a backend gives wrong numbers;
2 for bad input
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; the exit status."""
    options = _parser().parse_args(arguments)
    return run_command(lambda: _doctor(options), (replay_table.ReplayError,))


def examine(machine: Machine, seconds: float = SECONDS, in_full: bool = False) -> list[Section]:
    """Everything of the doctor's table.

    Args:
        machine: to look at.
        seconds: for each process that imports something.
        in_full: all lines of the NPU on a machine with nothing of Ascend, too.
    """
    for_npu = in_full or not npu_side.is_cpu_machine(machine)
    outcomes = run(_children(machine, for_npu, seconds))
    if "torch_npu" in outcomes and outcomes["torch_npu"].failure is not None:
        outcomes |= run([Child(["autoload"], machine.variables, seconds)])
    stand_in = "torch_npu" in outcomes and bool(outcomes["torch_npu"]["stand_in"])
    if for_npu:
        npu = npu_side.lines(machine, outcomes)
    else:
        npu = [Line("NPU", MISSING, npu_side.NO_NPU, "docs/ascend.md, on an Atlas A2", ("npu",))]
    return [
        Section("Python", python_side.lines(machine, outcomes)),
        Section("CPU", cpu_side.lines(machine, outcomes)),
        Section("NPU", npu),
        Section("Building from source", build_side.lines(machine, outcomes, for_npu)),
        Section("This machine", build_side.resources(machine)),
        Section(
            "The loss, forward and backward",
            cpu_side.losses(outcomes, _backends(outcomes, for_npu), stand_in),
        ),
    ]


def _children(machine: Machine, for_npu: bool, seconds: float) -> list[Child]:
    # torch itself is looked at apart from torch_npu, which it would import and fail with.
    without = {**machine.variables, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    packages = [f"package:{name}" for name in python_side.TRAINING]
    losses = ["torch", "cpu_library", "loss:reference", "loss:cpu"]
    children = [
        Child(losses, without, seconds),
        Child(["torchaudio", *packages], without, seconds),
    ]
    if for_npu:
        if python_side.version_of("torch-npu") is not None:
            children.append(Child(["torch_npu", "binding", "loss:npu"], without, seconds))
        library = npu_side.operator_library(machine)
        if library is not None:
            children.append(Child([f"operator_library:{library}"], without, seconds))
    return children


def _backends(outcomes: Mapping[str, Outcome], for_npu: bool) -> dict[str, str | None]:
    """Every backend, and why it can't be run; None where it can."""
    found: dict[str, str | None] = {"reference": None, "cpu": None}
    library = outcomes["cpu_library"]
    if outcomes["torch"].failure is not None:
        found = dict.fromkeys(found, "torch can't be imported")
    elif library.failure is not None:
        found["cpu"] = "the CPU library can't be used"
    if for_npu:
        found["npu"] = None
        for step, reason in (
            ("torch_npu", "torch_npu can't be used"),
            ("binding", "the torch binding can't be used"),
        ):
            outcome = outcomes.get(step)
            if outcome is None or outcome.failure is not None:
                found["npu"] = reason
                break
            if step == "torch_npu" and not outcome["available"]:
                found["npu"] = "torch_npu finds no NPU"
                break
    return found


def _doctor(arguments: argparse.Namespace) -> int:
    machine = Machine(variables=dict(os.environ))
    if arguments.replay is not None:
        return replay_table.replay(arguments.replay, machine, arguments.json, arguments.timeout)
    required = list(dict.fromkeys(arguments.require))
    sections = examine(machine, arguments.timeout, in_full="npu" in required)
    wrong = failing(sections, required)
    losses = [line for line in sections[-1].lines if line.status == WRONG]
    wrong += [line for line in losses if line not in wrong]
    if arguments.json:
        contents = {"asr_ascend": __version__, **as_json(sections, required, wrong)}
        print(json.dumps(contents, indent=1))
    else:
        print(f"asr-ascend {__version__}, {machine.processor}\n\n{text(sections)}\n")
        print(_verdict(sections, required, wrong))
    return 1 if wrong else 0


def _verdict(sections: Sequence[Section], required: Sequence[str], wrong: Sequence[Line]) -> str:
    """The last lines: what was asked for, and else what is amiss."""
    sentences = []
    if required:
        sentences.append(f"Asked for: {listed(required)}.")
        sentences.append(
            f"Not right: {_subjects(wrong)}." if wrong else "All that it needs is right."
        )
        return " ".join(sentences)
    lines = [line for section in sections for line in section.lines]
    for status, words in ((WRONG, "Not right"), (MISSING, "Not here"), (WARNING, "With a warning")):
        some = [line for line in lines if line.status == status]
        if some:
            sentences.append(f"{words}: {_subjects(some)}.")
    return "\n".join(sentences or ["All is right."])


def _subjects(lines: Sequence[Line]) -> str:
    return listed(list(dict.fromkeys(line.subject for line in lines)))


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="asr-ascend doctor",
        description=_DESCRIPTION,
        epilog=_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--require",
        action="append",
        default=[],
        choices=REQUIREMENTS,
        metavar="NAME",
        help=f"fail where this is not right: {', '.join(REQUIREMENTS)}; may be given again",
    )
    parser.add_argument("--json", action="store_true", help="everything as JSON")
    parser.add_argument(
        "--replay",
        type=path_argument,
        metavar="FILE",
        help="run a saved batch on every backend against float64 instead",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=SECONDS,
        metavar="S",
        help=f"seconds for each process that imports something (default: {SECONDS:.0f})",
    )
    return parser


def _seconds(given: str) -> float:
    try:
        value = float(given)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, but is {given}")
    return value
