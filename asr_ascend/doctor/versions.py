"""What belongs together: reads npu_versions.json, for the doctor and for kernels/build.sh."""

from __future__ import annotations

import functools
import json
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

_PATH = Path(__file__).resolve().parents[1] / "npu_versions.json"


@functools.cache
def table() -> dict[str, Any]:
    """The contents of asr_ascend/npu_versions.json."""
    contents: dict[str, Any] = json.loads(_PATH.read_text(encoding="utf-8"))
    return contents


def release(version: str) -> str:
    """2.13.0 of 2.13.0+cpu and of 2.13.0.post2; the text itself where it is no version."""
    found = re.match(r"\d+(\.\d+){0,2}", version)
    return found[0] if found else version


def minor(version: str) -> str:
    """9.1 of 9.1.0 and of 9.1.RC1."""
    return ".".join(version.split(".")[:2])


def at_least(version: str, least: str) -> bool:
    """Whether a version is another one or newer; words such as RC1 count as numbers."""
    numbers = [[int(part) for part in re.findall(r"\d+", each)] for each in (version, least)]
    return numbers[0] >= numbers[1]


def torch_npu_install(torch: str) -> str:
    """The pip command for the newest known torch_npu of a torch.

    Args:
        torch: a version, or "unknown". Where the table lacks it, the command brings the torch of
            the same minor release, or else the newest, too.
    """
    sets = table()["sets"]
    known = [each for each in sets if each["torch"] == release(torch)]
    if known:
        return f"pip install torch-npu=={known[0]['torch_npu']}"
    near = [each for each in sets if minor(each["torch"]) == minor(torch)] or sets
    return f"pip install torch=={near[0]['torch']} torch-npu=={near[0]['torch_npu']}"


def torch_npu_fault(torch_npu: str, torch: str) -> str | None:
    """A sentence where a torch_npu is made for another torch; else None."""
    if release(torch_npu) == release(torch):
        return None
    return f"torch_npu {torch_npu} is made for torch {release(torch_npu)}, but torch is {torch}"


def header_fault(includes: Path, torch_npu: str, torch: str) -> str | None:
    """A sentence where torch_npu's headers lack what the binding includes; else None."""
    for name, word in table()["binding_headers"].items():
        header = includes / name
        try:
            if word in header.read_text(errors="replace"):
                continue
            lacks = f"{word} in {header.name}"
        except OSError:
            lacks = header.name
        known = [each for each in table()["sets"] if each["torch"] == release(torch)]
        advice = f", such as torch-npu=={known[0]['torch_npu']}" if known else ""
        return (
            f"torch_npu {torch_npu} has no {lacks}, which the binding needs: install a package of "
            f"TorchNPU {table()['least_torch_npu_release']} or later{advice}"
        )
    return None


def cann_fault(torch_npu: str, cann: str) -> str | None:
    """A sentence where a torch_npu is not known to run with a CANN; else None.

    Args:
        torch_npu: version of the package. One that the table lacks has no fault.
        cann: version of the toolkit, or "unknown". One that is too old for this project has none.
    """
    if cann == "unknown" or not at_least(cann, table()["least_cann"]):
        return None
    if minor(cann) in table()["compatible_cann"]:
        return None
    for each in table()["sets"]:
        if each["torch_npu"] == torch_npu and minor(cann) != minor(each["cann"]):
            *most, last = table()["compatible_cann"]
            return (
                f"torch_npu {torch_npu} (TorchNPU {each['torch_npu_release']}) goes with CANN "
                f"{each['cann']} and runs with {', '.join(most)} and {last}, "
                f"but the toolkit is {cann}"
            )
    return None


def cann_of(torch_npu: str) -> str | None:
    """The CANN that a torch_npu package is released with; None where the table lacks it."""
    found = [each["cann"] for each in table()["sets"] if each["torch_npu"] == torch_npu]
    return found[0] if found else None


def soc_of_chip(chip: str) -> str | None:
    """CANN's name of a chip that npu-smi names, such as ascend910b of 910B3; None if unknown."""
    for row in table()["chips"]:
        patterns, soc = row.split()
        if any(fnmatchcase(chip, pattern) for pattern in patterns.split("|")):
            return str(soc)
    return None


def aclnn_symbols() -> list[str]:
    """Functions of the operator package that the binding calls."""
    return [
        f"aclnn{name}{end}" for name in table()["operators"] for end in ("GetWorkspaceSize", "")
    ]
