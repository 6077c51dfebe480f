"""Lines about Ascend's driver, chip, CANN toolkit and its environment.

The rules are those of kernels/build_npu/environment.sh, and what both need to know is in
npu_versions.json.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from asr_ascend.doctor.lines import MISSING, OK, WARNING, WRONG, Line, listed
from asr_ascend.doctor.machine import (
    Machine,
    exists,
    first_line,
    folder_reason,
    is_file,
    is_folder,
    matching,
    read,
    real,
)
from asr_ascend.doctor.versions import at_least, soc_of_chip, table

# Folders of CANN whose names end the search for its version.
_VERSION_FILES = (
    "{machine}-linux/ascend_toolkit_install.info",
    "*/ascend_toolkit_install.info",
    "ascend_toolkit_install.info",
    "version.cfg",
    "compiler/version.info",
)
_SET_ENV = ("ascend-toolkit/set_env.sh", "cann/set_env.sh", "set_env.sh")
_CHIP = re.compile(r"(?:Ascend ?|\s)((?:910|310)[A-Za-z0-9_-]*)")


def driver(machine: Machine) -> Line:
    """The driver, and whether this user may use its device."""
    subject, needed_by = "driver", ("npu",)
    found = "no version file"
    for root in machine.ascend_roots():
        version = re.search(r"^Version=(.+)$", read(root / "driver/version.info") or "", re.M)
        if version:
            found = version[1].strip()
            break
    else:
        if machine.program("npu-smi") is None and not exists(machine.device_manager):
            text = "there is no driver: no version.info, no npu-smi, no device file"
            mend = "install the driver and firmware of Atlas A2 (docs/ascend.md)"
            return Line(subject, MISSING, text, mend, needed_by)
    if exists(machine.device_manager) and not os.access(machine.device_manager, os.R_OK | os.W_OK):
        text = f"{found}, but this user may not open {machine.device_manager}"
        mend = "sudo usermod -aG HwHiAiUser $USER, and log in again"
        return Line(subject, WRONG, text, mend, needed_by)
    if not exists(machine.device_manager):
        text = f"{found}, but there is no {machine.device_manager}: in a container, it must be "
        text += "handed in"
        mend = "docker run --device=/dev/davinci0 --device=/dev/davinci_manager "
        mend += "--device=/dev/devmm_svm --device=/dev/hisi_hdc ..."
        return Line(subject, WARNING, text, mend, needed_by)
    return Line(subject, OK, found, None, needed_by)


def chip(machine: Machine) -> Line:
    """The chip, and whether the kernels are for it."""
    subject, needed_by = "chip", ("npu",)
    wanted = list(table()["soc"])
    if machine.program("npu-smi") is None:
        text = "npu-smi is not in PATH, so the chip is not known"
        mend = "export PATH=$PATH:/usr/local/bin:/usr/local/sbin"
        return Line(subject, WARNING, text, mend, needed_by)
    works, printed = machine.output("npu-smi", "info", "-m")
    if not works:
        text = f"npu-smi fails, so the driver isn't ready: {first_line(printed)}"
        return Line(subject, WRONG, text, "sudo reboot, or install the driver anew", needed_by)
    rows = [row for row in printed.splitlines() if not re.search(r"\bmcu\b", row, re.I)]
    names = [found[1] for found in map(_CHIP.search, rows) if found]
    if not names:
        return Line(subject, WARNING, "npu-smi names no chip", "npu-smi info -m", needed_by)
    soc = soc_of_chip(names[0])
    if soc is None:
        text = f"npu-smi names a chip {names[0]} that is not known here"
        return Line(subject, WARNING, text, "npu-smi info -m", needed_by)
    if soc not in wanted:
        text = f"{names[0]} ({soc}), but the kernels are for {listed(wanted)} and don't start on it"
        return Line(subject, WRONG, text, None, needed_by)
    count = f", {len(names)} of them" if len(names) > 1 else ""
    return Line(subject, OK, f"{names[0]} ({soc}){count}", None, needed_by)


def toolkit_version(machine: Machine) -> tuple[str, str]:
    """Version and processor of the CANN that ASCEND_HOME_PATH names, "unknown" and ""."""
    home = Path(machine.variable("ASCEND_HOME_PATH"))
    if not machine.variable("ASCEND_HOME_PATH"):
        return "unknown", ""
    for pattern in _VERSION_FILES:
        for path in matching(home, pattern.format(machine=machine.processor)):
            contents = read(path) or ""
            version = re.search(r"^[Vv]ersion=(.+)$", contents, re.M)
            made_for = re.search(r"^arch=(.+)$", contents, re.M)
            if version:
                return version[1].strip(), made_for[1].strip() if made_for else ""
    return "unknown", ""


def cann(machine: Machine) -> Line:
    """The toolkit itself."""
    subject, needed_by = "CANN", ("npu", "build")
    least, home = table()["least_cann"], machine.variable("ASCEND_HOME_PATH")
    if not home:
        script = _unsourced(machine)
        if script is not None:
            text = f"`ASCEND_HOME_PATH` is not set, but there is {script}"
            return Line(subject, MISSING, text, f"source {script}", needed_by)
        text = "`ASCEND_HOME_PATH` is not set and there is no toolkit in "
        text += listed([str(root) for root in machine.ascend_roots()], "or")
        mend = f"install the CANN toolkit for Atlas A2, {least} or later (docs/ascend.md)"
        return Line(subject, MISSING, text, mend, needed_by)
    reason = folder_reason(Path(home))
    if reason is not None:
        text = f"`ASCEND_HOME_PATH` names {home}, which can't be read: {reason}"
        return Line(subject, WRONG, text, source_command(machine), needed_by)
    version, made_for = toolkit_version(machine)
    if made_for and made_for != machine.processor:
        text = f"the toolkit in {home} is for {made_for}, but this machine is {machine.processor}"
        mend = f"install the toolkit for {machine.processor}"
        return Line(subject, WRONG, text, mend, needed_by)
    if version == "unknown":
        text = f"the toolkit in {home} doesn't say its version; it must be {least} or later"
        return Line(subject, WARNING, text, f"ls {home}", needed_by)
    if not at_least(version, least):
        text = f"the toolkit in {home} is {version}, but must be {least} or later"
        mend = f"install CANN {least} or later and source its set_env.sh"
        return Line(subject, WRONG, text, mend, needed_by)
    return Line(subject, OK, f"{version} in {home}", None, needed_by)


def environment(machine: Machine) -> Line:
    """Whether all of set_env.sh's variables are set, and for the same toolkit."""
    subject, needed_by = "set_env", ("npu",)
    home, opp = machine.variable("ASCEND_HOME_PATH"), machine.variable("ASCEND_OPP_PATH")
    command = source_command(machine)
    if not home:
        if not opp:
            text = "set_env.sh is not sourced"
        else:
            text = f"half of it is set: `ASCEND_OPP_PATH` is {opp}, `ASCEND_HOME_PATH` is not set"
        return Line(subject, MISSING, text, command, needed_by)
    if not opp:
        text = f"half of it is set: `ASCEND_HOME_PATH` is {home}, `ASCEND_OPP_PATH` is not set"
        return Line(subject, WRONG, text, command, needed_by)
    if not is_folder(Path(opp)):
        text = f"`ASCEND_OPP_PATH` names {opp}, which is no folder"
        return Line(subject, WRONG, text, command, needed_by)
    # In CANN 8, folders of the toolkit in use are links into the one of its version.
    its_own = Path(opp).is_relative_to(home) or real(Path(opp)) == real(Path(home) / "opp")
    if not its_own:
        text = f"two toolkits are mixed: `ASCEND_HOME_PATH` is {home}, `ASCEND_OPP_PATH` is {opp}"
        return Line(subject, WRONG, text, f"open a new shell and {command}", needed_by)
    return Line(subject, OK, "`ASCEND_HOME_PATH` and `ASCEND_OPP_PATH` are set", None, needed_by)


def libraries(machine: Machine) -> Line:
    """The libraries of CANN that torch_npu is linked to."""
    subject, needed_by = "CANN libraries", ("npu",)
    folders = machine.folders("LD_LIBRARY_PATH")
    lacks = [
        name for name in table()["libraries"] if not any(is_file(each / name) for each in folders)
    ]
    if not lacks:
        return Line(subject, OK, "in LD_LIBRARY_PATH", None, needed_by)
    verb = "is" if len(lacks) == 1 else "are"
    text = f"{listed(lacks)} {verb} in no folder of LD_LIBRARY_PATH, so torch_npu can't be imported"
    return Line(subject, MISSING, text, source_command(machine), needed_by)


def _unsourced(machine: Machine) -> Path | None:
    for root in machine.ascend_roots():
        for name in _SET_ENV:
            if is_file(root / name):
                return root / name
    return None


def source_command(machine: Machine) -> str:
    """Sources set_env.sh, which is next to the toolkit in CANN 8 and inside of it from 9 on."""
    home = machine.variable("ASCEND_HOME_PATH")
    if home:
        for script in (Path(home) / "set_env.sh", Path(home).parent / "set_env.sh"):
            if is_file(script):
                return f"source {script}"
    script_found = _unsourced(machine)
    return f"source {script_found or machine.ascend_roots()[0] / 'ascend-toolkit/set_env.sh'}"
