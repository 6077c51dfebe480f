"""The machine as the doctor sees it: variables, programs, files. Nothing here raises."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from asr_ascend.system.memory import available_bytes

PACKAGE_FOLDER = Path(__file__).resolve().parents[1]
_PROGRAM_SECONDS = 10.0
# ELF's e_machine (elf.h): the processors that a library of ours may be made for.
_ELF_MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}


@dataclass(frozen=True)
class Machine:
    """What the checks look at; tests make one up.

    Args:
        variables: of the environment.
        processor: the architecture, as of `uname -m`.
        processors: how many this process may use.
        free_memory: bytes, or None where the system doesn't say.
        device_manager: the driver's device file.
        package: the folder of asr_ascend that Python imports.
        work: the folder in which results would be written.
    """

    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    processor: str = field(default_factory=platform.machine)
    processors: int = field(default_factory=lambda: _processors())
    free_memory: int | None = field(default_factory=available_bytes)
    device_manager: Path = Path("/dev/davinci_manager")
    package: Path = PACKAGE_FOLDER
    work: Path = Path()

    def variable(self, name: str) -> str:
        """Its value; "" where it is not set."""
        return self.variables.get(name, "")

    def folders(self, name: str) -> list[Path]:
        """The folders that a variable such as PATH lists."""
        return [Path(part) for part in self.variable(name).split(":") if part]

    def program(self, name: str) -> str | None:
        """Where a program is found on PATH."""
        return shutil.which(name, path=self.variable("PATH"))

    def output(self, *command: str) -> tuple[bool, str]:
        """Whether a program ran well, and what it printed; at most ten seconds."""
        return output_of(command, self.variables)

    def checkout(self) -> Path | None:
        """The source tree that the package lies in; None for an installed package."""
        parent = self.package.parent
        return parent if is_file(parent / "kernels" / "build.sh") else None

    def ascend_roots(self) -> list[Path]:
        """Where Ascend's software usually is; ASCEND_ROOTS replaces them."""
        if self.variable("ASCEND_ROOTS"):
            return [Path(part) for part in self.variable("ASCEND_ROOTS").split()]
        home = self.variable("HOME")
        return [Path("/usr/local/Ascend"), *([Path(home) / "Ascend"] if home else [])]


def _processors() -> int:
    """Those that this process may use; macOS doesn't say, and has them all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def output_of(command: Sequence[str], variables: Mapping[str, str]) -> tuple[bool, str]:
    """As `Machine.output`."""
    try:
        process = subprocess.Popen(
            command,
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return False, getattr(error, "strerror", None) or str(error)
    try:
        printed, _ = process.communicate(timeout=_PROGRAM_SECONDS)
    except subprocess.TimeoutExpired:
        end(process)
        return False, f"it did not end within {_PROGRAM_SECONDS:.0f} s"
    return process.returncode == 0, printed


def end(process: subprocess.Popen[str]) -> None:
    """Kills a process that leads a session, with all that it started."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired, ValueError):
        process.communicate(timeout=1)


def first_line(printed: str) -> str:
    """The first line that says something."""
    return next((line.strip() for line in printed.splitlines() if line.strip()), "nothing")


def read(path: Path) -> str | None:
    """A file's text; None where it can't be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def is_file(path: Path) -> bool:
    """Whether it is a file that can be seen."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """Whether it is a folder that can be seen."""
    try:
        return path.is_dir()
    except OSError:
        return False


def exists(path: Path) -> bool:
    """Whether there is something that can be seen."""
    try:
        return path.exists()
    except OSError:
        return False


def real(path: Path) -> Path:
    """The path without links; as it is where they form a loop."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path


def folder_reason(path: Path) -> str | None:
    """Why a folder can't be read; None where it can."""
    try:
        next(path.iterdir(), None)
    except OSError as error:
        return error.strerror or str(error)
    return None


def matching(folder: Path, pattern: str) -> list[Path]:
    """Paths that match a pattern, in their order; none where the folder can't be read."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def library_processor(path: Path) -> str | None:
    """The processor that a shared library is made for; None where it is no such file.

    Source: e_ident and e_machine of the ELF header (elf(5)).
    """
    try:
        with path.open("rb") as stream:
            header = stream.read(20)
    except OSError:
        return None
    if len(header) < 20 or header[:4] != b"\x7fELF":
        return None
    number = int.from_bytes(header[18:20], "little" if header[5] == 1 else "big")
    return _ELF_MACHINES.get(number, f"processor {number} of ELF")


def foreign_library(path: Path, processor: str) -> str | None:
    """A sentence where a library is made for another processor, or is no library; else None."""
    made_for = library_processor(path)
    if made_for is None:
        return f"{path} is not a shared library"
    if made_for != processor:
        return f"{path} is made for {made_for}, but this machine is {processor}"
    return None


def is_stand_in() -> bool:
    """Whether CANN's runtime here is the tests' stand-in, which computes on the CPU."""
    try:
        return hasattr(ctypes.CDLL("libascendcl.so"), "AsrAscendStandInReadCounters")
    except OSError:
        return False
