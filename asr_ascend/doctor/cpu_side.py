"""Lines about the CPU library and the loss on each backend."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from asr_ascend.doctor.lines import MISSING, OK, WARNING, WRONG, Line, checked, listed
from asr_ascend.doctor.machine import Machine, foreign_library, is_file
from asr_ascend.doctor.probing import NOT_REACHED, Outcome

_NAME = "libasr_ascend_cpu.so"
_VARIABLE = "ASR_ASCEND_LIBRARY"


def library_path(machine: Machine) -> Path | None:
    """The library that asr_ascend loads, by the rules of losses/backends/cpu_library.py."""
    override = machine.variable(_VARIABLE)
    if override:
        return Path(override) if is_file(Path(override)) else None
    packaged = machine.package / "lib" / _NAME
    if is_file(packaged):
        return packaged
    with suppress(Exception):
        distribution = metadata.distribution("asr-ascend")
        installed = Path(str(distribution.locate_file(f"asr_ascend/lib/{_NAME}")))
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        if is_file(installed) and origin.get("dir_info", {}).get("editable", False):
            return installed
    return None


def install_command(machine: Machine) -> str:
    """What builds the CPU library anew."""
    checkout = machine.checkout()
    return f"pip install -e {checkout}" if checkout else "pip install --force-reinstall asr-ascend"


def lines(machine: Machine, outcomes: Mapping[str, Outcome]) -> list[Line]:
    """The CPU library, and the instruction set that it uses."""
    needed_by = ("cpu", "training")
    return [
        *checked("CPU library", needed_by, _library, machine, outcomes),
        *checked("instruction set", needed_by, _instruction_set, machine, outcomes),
    ]


def _library(machine: Machine, outcomes: Mapping[str, Outcome]) -> Line:
    subject, needed_by = "CPU library", ("cpu", "training")
    outcome = outcomes.get("cpu_library", NOT_REACHED)
    build, path = install_command(machine), library_path(machine)
    override = machine.variable(_VARIABLE)
    if override and path is None:
        text = f"`{_VARIABLE}` names {override}, which is no file"
        return Line(subject, WRONG, text, f"unset {_VARIABLE}", needed_by)
    mend = f"unset {_VARIABLE}" if override else build
    foreign = foreign_library(path, machine.processor) if path is not None else None
    if foreign is not None:
        return Line(subject, WRONG, foreign, mend, needed_by)
    if outcome.failure is not None:
        if "`ASR_ASCEND_ISA`" in outcome.failure:
            return Line(subject, OK, str(path), None, needed_by)
        status = MISSING if path is None else WRONG
        return Line(subject, status, outcome.failure, mend, needed_by)
    text = f"{outcome['path']}, ABI version {outcome['abi']}"
    if override:
        text += f", since `{_VARIABLE}` names it"
        return Line(subject, WARNING, text, mend, needed_by)
    return Line(subject, OK, text, None, needed_by)


def _instruction_set(machine: Machine, outcomes: Mapping[str, Outcome]) -> Line:
    subject, needed_by = "instruction set", ("cpu", "training")
    outcome = outcomes.get("cpu_library", NOT_REACHED)
    asked = machine.variable("ASR_ASCEND_ISA")
    if outcome.failure is not None:
        if "`ASR_ASCEND_ISA`" in outcome.failure:
            return Line(subject, WRONG, outcome.failure, "unset ASR_ASCEND_ISA", needed_by)
        return Line(subject, MISSING, "the CPU library can't say", None, needed_by)
    isa, isas = str(outcome["isa"]), list(outcome["isas"])
    if asked and isa != isas[0]:
        text = f"{isa}, since `ASR_ASCEND_ISA` asks for it; {isas[0]} is faster"
        return Line(subject, WARNING, text, "unset ASR_ASCEND_ISA", needed_by)
    if isa == "plain":
        text = "plain, since this processor has no wider one that the library was built for"
        return Line(subject, WARNING, text, None, needed_by)
    text = f"{isa}, the widest that this processor runs (of {listed(isas)})"
    return Line(subject, OK, text, None, needed_by)


def losses(
    outcomes: Mapping[str, Outcome], backends: Mapping[str, str | None], stand_in: bool
) -> list[Line]:
    """The loss on each backend.

    Args:
        outcomes: of the steps `loss:BACKEND`.
        backends: by name, why it was not run; None where it was.
        stand_in: whether the NPU is the stand-in for CANN.
    """
    found = []
    for name, absent in backends.items():
        outcome = outcomes.get(f"loss:{name}", NOT_REACHED)
        subject, needed_by = f"loss on {name}", (name, *(["training"] if name == "cpu" else []))
        against = "a closed form" if name == "reference" else "the reference in float64"
        if absent is not None:
            found.append(Line(subject, MISSING, f"it was not run: {absent}", None, needed_by))
        elif outcome.failure is not None:
            mend = None if name == "npu" else "see the lines above"
            text = f"it can't be run: {outcome.failure}"
            found.append(Line(subject, WRONG, text, mend, needed_by))
        elif outcome["wrong"]:
            text = f"it differs from {against}: {outcome['wrong'][0]}"
            mend = "please report it, with the output of --json"
            found.append(Line(subject, WRONG, text, mend, needed_by))
        else:
            where = " (over the stand-in for CANN, no chip)" if name == "npu" and stand_in else ""
            text = f"right in {listed(outcome['dtypes'])}, by {against}"
            found.append(Line(subject, OK, text + where, None, needed_by))
    return found
