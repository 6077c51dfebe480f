"""A made-up Atlas A2 for the doctor: driver, device file, CANN with its libraries, torch."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from pathlib import Path

from asr_ascend.doctor.lines import Line
from asr_ascend.doctor.machine import Machine
from asr_ascend.doctor.probing import Outcome
from asr_ascend.doctor.versions import table
from tests.support.made_up_machine import BARE_PYTHON, FUNCTIONS, REPOSITORY, MadeUpMachine, write

GIB = 2**30
OTHER_PROCESSOR = "aarch64" if os.uname().machine != "aarch64" else "x86_64"
_OTHER_NUMBER = {"aarch64": 183, "x86_64": 62}[OTHER_PROCESSOR]
# The start of an ELF file for another processor: 64 bits, little-endian, a shared library.
FOREIGN_LIBRARY = (
    b"\x7fELF\x02\x01\x01"
    + bytes(9)
    + (3).to_bytes(2, "little")
    + _OTHER_NUMBER.to_bytes(2, "little")
)
# The other files of a package that come into its folder.
KERNELS = Path("op_impl") / "ai_core" / "tbe" / "kernel" / "ascend910b"
# What a process that imported all of it would say.
FINE = {
    "torch": Outcome({"version": "2.13.0+cpu", "abi": True}),
    "torch_npu": Outcome(
        {
            "version": "2.13.0",
            "torch": "2.13.0+cpu",
            "includes": "",
            "available": True,
            "count": 8,
            "name": "Ascend910B3",
            "stand_in": False,
        }
    ),
    "binding": Outcome({"lacks": []}),
}


class AtlasA2(MadeUpMachine):
    """Each part can be broken before `machine` is asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.device = write(folder / "davinci_manager", "")
        self.driver = write(folder / "ascend" / "driver" / "version.info", "Version=25.5.1\n")
        for name in table()["libraries"]:
            write(self.cann / "lib64" / name, "")
        self.vendor = self.opp / "vendors" / "asr_ascend"
        self.environment |= {
            "ASCEND_ROOTS": str(folder / "ascend"),
            "LD_LIBRARY_PATH": str(self.cann / "lib64"),
            "ASCEND_CUSTOM_OPP_PATH": str(self.vendor),
        }

    def install_package(self, folder: Path | None = None, source: str | None = None) -> Path:
        """An operator package with compiled kernels; its library."""
        folder = folder or self.vendor
        library = folder / "op_api" / "lib" / "libcust_opapi.so"
        all_functions = "".join(f"void {name}(void) {{}}\n" for name in FUNCTIONS)
        self.library(all_functions if source is None else source, library)
        for name in ("rnnt_loss_fused", "rnnt_loss_forward", "rnnt_loss_backward"):
            write(folder / KERNELS / name / "kernel.o", "")
        return library

    def machine(self, **changes: object) -> Machine:
        """As the doctor sees it; `changes` are fields of Machine or variables in capitals."""
        variables = self.environment | {
            name: str(value) for name, value in changes.items() if name.isupper()
        }
        machine = Machine(
            variables={name: value for name, value in variables.items() if value},
            processor=os.uname().machine,
            processors=8,
            free_memory=64 * GIB,
            device_manager=self.device,
            package=self.kernels.parent / "asr_ascend",
            work=self.folder,
        )
        fields = {name: value for name, value in changes.items() if not name.isupper()}
        return dataclasses.replace(machine, **fields)  # type: ignore[arg-type]

    def said(self, line: Line) -> list[str | None]:
        """Status, what was found and what mends it; paths of this machine as from /m."""
        mend = line.mend and line.mend.replace(str(self.folder), "/m")
        return [line.status, line.found.replace(str(self.folder), "/m"), mend]

    def run(self, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """`python -m asr_ascend.doctor` on it, by a Python that has the made-up torch alone."""
        environment = {**self.environment, **variables}
        # Only what this checkout has goes with it, no package of the tests' own Python.
        environment["PYTHONPATH"] += f":{self.kernels.parent}"
        result = subprocess.run(
            [str(BARE_PYTHON), "-m", "asr_ascend.doctor", *options],
            env={name: value for name, value in environment.items() if value},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        result.stdout = result.stdout.replace(str(self.folder), "/m").replace(
            str(BARE_PYTHON.resolve()), "/python"
        )
        result.stderr = result.stderr.replace(str(self.folder), "/m")
        return result

    def take_package(self) -> None:
        """The sources of asr_ascend as they are, in place of the made-up ones."""
        folder = self.kernels.parent / "asr_ascend"
        shutil.rmtree(folder)
        shutil.copytree(REPOSITORY / "asr_ascend", folder, ignore=shutil.ignore_patterns("lib"))


def lines_of(printed: str, subject: str) -> list[str]:
    """What a table says of a subject, unwrapped; then what mends it, where it says so."""
    rows = printed.splitlines()
    start = next(i for i, row in enumerate(rows) if row.startswith(f"  {subject}  "))
    found = [" ".join(rows[start].split())]
    for row in rows[start + 1 :]:
        if not row.startswith("      "):
            break
        text = " ".join(row.split())
        if text.startswith("Mend: "):
            found.append(text)
        else:
            found[-1] += f" {text}"
    return found
