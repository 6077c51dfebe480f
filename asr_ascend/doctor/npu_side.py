"""Lines about torch_npu, the operator package and the torch binding."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from asr_ascend.doctor import ascend_side
from asr_ascend.doctor.lines import MISSING, OK, WARNING, WRONG, Line, checked, listed
from asr_ascend.doctor.machine import (
    Machine,
    exists,
    foreign_library,
    is_file,
    is_folder,
    matching,
    read,
)
from asr_ascend.doctor.probing import NOT_REACHED, Outcome
from asr_ascend.doctor.python_side import version_of
from asr_ascend.doctor.versions import (
    aclnn_symbols,
    cann_fault,
    cann_of,
    header_fault,
    table,
    torch_npu_fault,
    torch_npu_install,
)

_LIBRARY = Path("op_api") / "lib" / "libcust_opapi.so"
BUILD = "kernels/build.sh"
NO_NPU = "there is no driver, no CANN and no torch_npu here, so the loss runs on the CPU"


def is_cpu_machine(machine: Machine) -> bool:
    """Whether nothing of Ascend is here, or was meant to be."""
    signs = ("ASCEND_HOME_PATH", "ASCEND_OPP_PATH", "ASCEND_CUSTOM_OPP_PATH")
    return not (
        any(map(machine.variable, signs))
        or machine.program("npu-smi")
        or exists(machine.device_manager)
        or version_of("torch-npu")
        or any(is_folder(root) for root in machine.ascend_roots())
    )


def operator_packages(machine: Machine) -> list[Path]:
    """Folders of vendors whose package has our operator, in the order in which they are used.

    torch_npu looks into the folders of ASCEND_CUSTOM_OPP_PATH, then into vendors/ of
    ASCEND_OPP_PATH in the order of its config.ini.
    """
    vendors = Path(machine.variable("ASCEND_OPP_PATH")) / "vendors"
    folders = machine.folders("ASCEND_CUSTOM_OPP_PATH")
    if machine.variable("ASCEND_OPP_PATH"):
        order = re.search(r"^load_priority=(.*)$", read(vendors / "config.ini") or "", re.M)
        folders += [vendors / name.strip() for name in (order[1] if order else "").split(",")]
        folders += matching(vendors, "*")
    found: list[Path] = []
    for folder in folders:
        if folder not in found and _has_operator(folder / _LIBRARY):
            found.append(folder)
    return found


def operator_library(machine: Machine) -> Path | None:
    """The library of the package that is used."""
    packages = operator_packages(machine)
    return packages[0] / _LIBRARY if packages else None


def lines(machine: Machine, outcomes: Mapping[str, Outcome]) -> list[Line]:
    """All of the NPU but the loss on it."""
    needed_by = ("npu",)
    return [
        *checked("driver", needed_by, ascend_side.driver, machine),
        *checked("chip", needed_by, ascend_side.chip, machine),
        *checked("CANN", needed_by, ascend_side.cann, machine),
        *checked("set_env", needed_by, ascend_side.environment, machine),
        *checked("CANN libraries", needed_by, ascend_side.libraries, machine),
        *checked("torch_npu", needed_by, torch_npu, machine, outcomes),
        *checked("operator package", needed_by, operator_package, machine, outcomes),
        *checked("torch binding", needed_by, binding, machine, outcomes),
    ]


def torch_npu(machine: Machine, outcomes: Mapping[str, Outcome]) -> list[Line]:
    """The package, its torch, its CANN, its headers; and whether plain `import torch` works."""
    subject, needed_by = "torch_npu", ("npu", "build")
    torch = str(outcomes.get("torch", NOT_REACHED)["version"] or version_of("torch") or "unknown")
    version = version_of("torch-npu")
    install = torch_npu_install(torch)
    if version is None:
        return [Line(subject, MISSING, "it is not installed", install, needed_by)]
    fault = torch_npu_fault(version, torch)
    if fault is not None:
        return [Line(subject, WRONG, fault, install, needed_by), *_autoload(outcomes)]
    outcome = outcomes.get("torch_npu", NOT_REACHED)
    if outcome.failure is not None:
        found = f"{version} can't be imported: {outcome.failure}"
        mend = ascend_side.source_command(machine)
        return [Line(subject, WRONG, found, mend, needed_by), *_autoload(outcomes)]
    fault = header_fault(Path(outcome["includes"]), version, torch)
    if fault is not None:
        return [Line(subject, WRONG, fault, install, needed_by)]
    cann, _ = ascend_side.toolkit_version(machine)
    fault = cann_fault(version, cann)
    if fault is not None:
        mend = f"install CANN {cann_of(version)}"
        return [Line(subject, WARNING, fault, mend, needed_by)]
    if not outcome["available"]:
        found = f"{version} is imported, but finds no NPU"
        return [Line(subject, WRONG, found, "npu-smi info", ("npu",))]
    name = "the stand-in for CANN, no chip" if outcome["stand_in"] else outcome["name"]
    goes_with = cann_of(version)
    made_for = f"released with CANN {goes_with}" if goes_with else "its CANN is not known here"
    found = f"{version} ({made_for}) sees {outcome['count']} device(s): {name}"
    if machine.variable("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        found += "; but `TORCH_DEVICE_BACKEND_AUTOLOAD` is 0, so torch doesn't import it by itself"
        found += " and training finds no NPU"
        return [Line(subject, WRONG, found, "unset TORCH_DEVICE_BACKEND_AUTOLOAD", ("npu",))]
    return [Line(subject, OK, found, None, needed_by)]


def _autoload(outcomes: Mapping[str, Outcome]) -> list[Line]:
    """torch imports torch_npu by itself, and fails with it."""
    failure = outcomes.get("autoload", NOT_REACHED).failure
    if failure is None or failure == NOT_REACHED.failure:
        return []
    text = "even `import torch` fails in this Python, since torch imports torch_npu by itself"
    mend = "export TORCH_DEVICE_BACKEND_AUTOLOAD=0"
    return [Line("import torch", WRONG, text, mend, ("cpu", "training", "npu"))]


def operator_package(machine: Machine, outcomes: Mapping[str, Outcome]) -> list[Line]:
    """The package that runs, others that it hides, and folders that are named in vain."""
    subject, needed_by = "operator package", ("npu",)
    named = _named_in_vain(machine)
    packages = operator_packages(machine)
    if not packages:
        text = "no folder of `ASCEND_CUSTOM_OPP_PATH` or vendors/ of `ASCEND_OPP_PATH` has "
        text += f"{table()['operators'][0]}"
        scripts = _unsourced_packages(machine)
        mend = f"source {scripts[0]}" if scripts else BUILD
        return [Line(subject, MISSING, text, mend, needed_by), *named]
    first = packages[0]
    library = first / _LIBRARY
    outcome = outcomes.get(f"operator_library:{library}", NOT_REACHED)
    foreign = foreign_library(library, machine.processor)
    build = f"{BUILD} --only package"
    if foreign is not None:
        line = Line(subject, WRONG, foreign, build, needed_by)
    elif outcome.failure is not None:
        text = f"{library} doesn't load: {outcome.failure}"
        line = Line(subject, WRONG, text, ascend_side.source_command(machine), needed_by)
    elif outcome["lacks"]:
        text = f"{library} lacks {len(outcome['lacks'])} of {len(aclnn_symbols())} functions: "
        line = Line(subject, WRONG, text + listed(outcome["lacks"]), build, needed_by)
    elif not (outcomes.get("torch_npu", NOT_REACHED)["stand_in"] or _has_kernels(first)):
        text = f"{first} has no compiled kernels for {listed(list(table()['soc']))}"
        line = Line(subject, WRONG, text, build, needed_by)
    else:
        text = f"{first}; its {len(aclnn_symbols())} functions load"
        line = Line(subject, OK, text, None, needed_by)
    others = [str(folder) for folder in packages[1:]]
    if others:
        text = f"{listed(others)} also {'has' if len(others) == 1 else 'have'} the operator; "
        text += f"{first} hides {'it' if len(others) == 1 else 'them'}"
        mend = f"export ASCEND_CUSTOM_OPP_PATH={first}"
        named.append(Line("other packages", WARNING, text, mend, needed_by))
    return [line, *named]


def binding(machine: Machine, outcomes: Mapping[str, Outcome]) -> Line:
    """The torch binding."""
    subject, needed_by = "torch binding", ("npu",)
    outcome = outcomes.get("binding", NOT_REACHED)
    build = f"{BUILD} --only binding"
    path = binding_path(machine)
    override = machine.variable("ASR_ASCEND_NPU_LIBRARY")
    if path is None:
        if override:
            text = f"`ASR_ASCEND_NPU_LIBRARY` names {override}, which is no file"
            return Line(subject, WRONG, text, "unset ASR_ASCEND_NPU_LIBRARY", needed_by)
        return Line(subject, MISSING, "it is not built", build, needed_by)
    foreign = foreign_library(path, machine.processor)
    if foreign is not None:
        return Line(subject, WRONG, foreign, build, needed_by)
    if outcomes.get("torch_npu", NOT_REACHED).failure is not None:
        text = f"{path} is there, but not looked at: torch_npu can't be used"
        return Line(subject, MISSING, text, None, needed_by)
    if outcome.failure is not None:
        text = f"{path} can't be used: {outcome.failure}"
        if "undefined symbol" in outcome.failure:
            text += "; it was compiled for another torch, or with another C++ ABI"
        return Line(subject, WRONG, text, build, needed_by)
    if outcome["lacks"]:
        text = f"{path} has no {listed(outcome['lacks'])} for the NPU"
        return Line(subject, WRONG, text, build, needed_by)
    if override:
        text = f"{path}, since `ASR_ASCEND_NPU_LIBRARY` names it"
        return Line(subject, WARNING, text, "unset ASR_ASCEND_NPU_LIBRARY", needed_by)
    return Line(subject, OK, f"{path}; torch takes its operators", None, needed_by)


def binding_path(machine: Machine) -> Path | None:
    """The binding's library, where there is one."""
    override = machine.variable("ASR_ASCEND_NPU_LIBRARY")
    path = Path(override) if override else machine.package / "lib" / "libasr_ascend_npu.so"
    return path if is_file(path) else None


def _named_in_vain(machine: Machine) -> list[Line]:
    found = []
    for folder in machine.folders("ASCEND_CUSTOM_OPP_PATH"):
        if is_file(folder / _LIBRARY):
            continue
        if is_folder(folder / "vendors"):
            text = f"it must name vendors' own folders, but names {folder}"
            mend = f"export ASCEND_CUSTOM_OPP_PATH={folder}/vendors/asr_ascend"
        else:
            text = f"it names {folder}, where there is no package"
            mend = "unset ASCEND_CUSTOM_OPP_PATH"
        found.append(Line("ASCEND_CUSTOM_OPP_PATH", WARNING, text, mend, ("npu",)))
    return found


def _unsourced_packages(machine: Machine) -> list[Path]:
    """Packages that build.sh or verify_910b.sh made and that no variable names."""
    checkout = machine.checkout()
    places = [Path(machine.variable("ASCEND_OPP_PATH") or "/nonexistent")]
    places += [checkout / "build" / "npu" / "opp"] if checkout else []
    scripts = [place / "vendors" / "asr_ascend" / "bin" / "set_env.bash" for place in places]
    return [script for script in scripts if is_file(script)]


def _has_operator(library: Path) -> bool:
    try:
        return f"aclnn{table()['operators'][0]}".encode() in library.read_bytes()
    except OSError:
        return False


def _has_kernels(folder: Path) -> bool:
    kernels = folder / "op_impl" / "ai_core" / "tbe" / "kernel"
    names = [re.sub(r"([a-z])([A-Z])", r"\1_\2", each).lower() for each in table()["operators"]]
    return all(matching(kernels / soc / name, "*.o") for soc in table()["soc"] for name in names)
