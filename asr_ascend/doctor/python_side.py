"""Lines about Python, torch, the other packages, and installs that hide each other."""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from asr_ascend.doctor.lines import MISSING, OK, WARNING, WRONG, Line, checked, listed
from asr_ascend.doctor.machine import Machine, real
from asr_ascend.doctor.probing import NOT_REACHED, Outcome
from asr_ascend.doctor.versions import at_least, table

EVERYWHERE = ("cpu", "npu", "reference", "training", "torchaudio")
# What training imports, and the packages that these come from.
TRAINING = {
    "lightning.pytorch": "lightning",
    "hydra": "hydra-core",
    "sentencepiece": "sentencepiece",
    "soundfile": "soundfile",
}
_TORCHAUDIO = "pip install --force-reinstall torch torchaudio"


@dataclass(frozen=True)
class Install:
    """A package as pip put it somewhere.

    Args:
        version: of the package.
        folder: on Python's path.
        source: the source tree of an editable install, else None.
    """

    version: str
    folder: Path
    source: Path | None


def installs(name: str) -> list[Install]:
    """Every install of a package on Python's path; the first is the one in use."""
    found: dict[Path, Install] = {}
    with suppress(Exception):  # metadata that is damaged, in any way
        for distribution in metadata.distributions(name=name):
            with suppress(Exception):
                folder = Path(str(distribution.locate_file("")))
                found.setdefault(
                    real(folder), Install(distribution.version, folder, _source(distribution))
                )
    return list(found.values())


def version_of(name: str) -> str | None:
    """The version of a package that is installed; None where it isn't."""
    known = installs(name)
    return known[0].version if known else None


def requirement(name: str) -> str:
    """What this package requires of another, such as "torch>=2.9"; its name where unknown."""
    with suppress(Exception):
        for line in metadata.requires("asr-ascend") or []:
            text, _, marker = line.partition(";")
            if not marker.strip() and re.match(rf"{re.escape(name)}\b(?!-)", text):
                return text.strip()
    return name


def requirement_fault(name: str, version: str) -> str | None:
    """What a version must be and isn't, such as "at least 2.9" or "not 2.6.2"; None if it fits."""
    for sign, number in re.findall(r"(>=|!=)\s*([\w.]+)", requirement(name)):
        if sign == ">=" and not at_least(version, number):
            return f"at least {number}"
        if sign == "!=" and version == number:
            return f"not {number}"
    return None


def lines(machine: Machine, outcomes: Mapping[str, Outcome]) -> list[Line]:
    """Python and what is installed in it."""
    torch = outcomes.get("torch", NOT_REACHED)
    audio = outcomes.get("torchaudio", NOT_REACHED)
    return [
        *checked("Python", EVERYWHERE, _python),
        *checked("asr_ascend", EVERYWHERE, _package, machine),
        *checked("torch", EVERYWHERE, _torch, torch),
        *checked("installs", (), _doubled),
        *checked("torchaudio", ("torchaudio", "training"), _torchaudio, torch, audio),
        *checked("recipe", ("training",), _training, outcomes),
    ]


def _python() -> Line:
    version, known = platform.python_version(), table()["python"]
    found = f"{version} at {sys.executable}"
    needed_by = (*EVERYWHERE, "build")
    if not at_least(version, known[0]):
        return Line("Python", WRONG, f"{found}; {known[0]} or later is needed", None, needed_by)
    if ".".join(version.split(".")[:2]) not in known:
        found += f"; the package is tested with {listed(known)}"
        return Line("Python", WARNING, found, None, needed_by)
    return Line("Python", OK, found, None, needed_by)


def _package(machine: Machine) -> Line:
    """Whether Python takes the asr_ascend that pip installed."""
    subject, here = "asr_ascend", machine.package
    known = installs("asr-ascend")
    install = f"pip install -e {here.parent}" if machine.checkout() else "pip install asr-ascend"
    if not known:
        found = f"Python takes it from {here}, where it was never installed by pip"
        return Line(subject, WARNING, found, install, EVERYWHERE)
    first = known[0]
    owner = first.source if first.source is not None else first.folder
    if len(known) > 1:
        places = listed([str(each.source or each.folder) for each in known])
        found = f"{len(known)} installs are on Python's path ({places}); Python takes {here}"
        return Line(subject, WARNING, found, "pip uninstall asr-ascend", EVERYWHERE)
    if real(here.parent) != real(owner):
        found = f"Python takes it from {here}, which hides the install in {owner}"
        return Line(subject, WARNING, found, install, EVERYWHERE)
    kind = "editable install of" if first.source is not None else "installed in"
    return Line(subject, OK, f"{first.version}, {kind} {owner}", None, EVERYWHERE)


def _doubled() -> list[Line]:
    """Packages that lie on Python's path twice, so that the wrong one may be in use."""
    found = []
    for name in ("torch", "torch-npu", "torchaudio"):
        known = installs(name)
        if len(known) > 1:
            places = listed([f"{each.version} in {each.folder}" for each in known])
            text = f"it is installed {len(known)} times: {places}; Python takes the first"
            found.append(Line(name.replace("-", "_"), WARNING, text, f"pip uninstall {name}"))
    return found


def _torch(outcome: Outcome) -> Line:
    wanted = requirement("torch")
    needed_by = (*EVERYWHERE, "build")
    if outcome.failure is not None:
        if version_of("torch") is None:
            found, mend = "it is not installed", f"pip install '{wanted}'"
            return Line("torch", MISSING, found, mend, needed_by)
        mend = f"pip install --force-reinstall '{wanted}'"
        return Line("torch", WRONG, f"it can't be imported: {outcome.failure}", mend, needed_by)
    version = str(outcome["version"])
    fault = requirement_fault("torch", version)
    if fault is not None:
        found = f"it must be {fault}, but is {version}"
        return Line("torch", WRONG, found, f"pip install '{wanted}'", needed_by)
    return Line("torch", OK, f"{version}, C++11 ABI {int(outcome['abi'])}", None, needed_by)


def _torchaudio(torch: Outcome, outcome: Outcome) -> Line:
    needed_by = ("torchaudio", "training")
    if outcome.failure is None:
        return Line("torchaudio", OK, str(outcome["version"]), None, needed_by)
    version = version_of("torchaudio")
    if version is None:
        mend = "pip install torchaudio"
        return Line("torchaudio", MISSING, "it is not installed", mend, needed_by)
    found = f"{version} can't be used: {outcome.failure}"
    if "libc10_cuda" in outcome.failure or "libcuda" in outcome.failure:
        found += f"; it was built for CUDA, torch {torch['version']} was not"
    return Line(
        "torchaudio", WRONG, f"{found}; the loss needs no torchaudio", _TORCHAUDIO, needed_by
    )


def _training(outcomes: Mapping[str, Outcome]) -> Line:
    """lightning, hydra and the like; the loss needs none of them."""
    subject, needed_by = "recipe", ("training",)
    missing, broken, fine = [], [], []
    for module, name in TRAINING.items():
        failure, version = outcomes.get(f"package:{module}", NOT_REACHED).failure, version_of(name)
        if version is None and failure is not None:
            missing.append(requirement(name))
        elif failure is not None:
            broken.append((name, f"{name} {version} can't be imported: {failure}"))
        elif version is not None and (fault := requirement_fault(name, version)):
            broken.append((name, f"{name} must be {fault}, but is {version}"))
        else:
            fine.append(f"{name} {version}")
    if broken:
        names = " ".join(f"'{requirement(name)}'" for name, _ in broken)
        found = "; ".join(sentence for _, sentence in broken)
        return Line(subject, WRONG, found, f"pip install --force-reinstall {names}", needed_by)
    if missing:
        names = listed([re.split(r"[<>=!~]", each)[0] for each in missing])
        verb = "is" if len(missing) == 1 else "are"
        command = "pip install " + " ".join(f"'{each}'" for each in missing)
        found = f"{names} {verb} not installed; the loss needs none of it"
        return Line(subject, MISSING, found, command, needed_by)
    return Line(subject, OK, ", ".join(fine), None, needed_by)


def _source(distribution: Any) -> Path | None:
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if not origin.get("dir_info", {}).get("editable", False):
        return None
    return Path(str(origin["url"]).removeprefix("file://"))
