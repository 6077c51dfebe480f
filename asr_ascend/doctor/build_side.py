"""Lines about builds from source and their traps, and about memory and disk.

The least versions are those that kernels/build_npu/environment.sh reads from npu_versions.json.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from asr_ascend.doctor.ascend_side import toolkit_version
from asr_ascend.doctor.cpu_side import install_command, library_path
from asr_ascend.doctor.lines import MISSING, OK, WARNING, WRONG, Line, checked, listed
from asr_ascend.doctor.machine import Machine, first_line, matching, read, real
from asr_ascend.doctor.probing import NOT_REACHED, Outcome
from asr_ascend.doctor.python_side import version_of
from asr_ascend.doctor.versions import at_least, table
from asr_ascend.system.paths import folder_fault

_GIB = 2**30
_CPU_SOURCES = ("cpu/**/*.cpp", "cpu/**/*.h", "rnnt_lattice/*.h", "CMakeLists.txt")
_LEAST_MEMORY_GIB = 2
_LEAST_DISK_GIB = 5


def lines(machine: Machine, outcomes: Mapping[str, Outcome], for_npu: bool) -> list[Line]:
    """Compiler, CMake, ABI, build folders, jobs; CANN's programs where there is an NPU."""
    needed_by = ("build",)
    found = [
        *checked("C++ compiler", needed_by, compiler, machine),
        *checked("CMake", needed_by, cmake, machine),
        *checked("C++ ABI", needed_by, abi, machine, outcomes),
    ]
    if for_npu:
        found += checked("CANN programs", needed_by, toolkit_programs, machine)
    if machine.checkout() is not None:
        found += checked("CPU build", needed_by, cpu_build, machine)
        found += checked("NPU build", needed_by, npu_build, machine, outcomes)
    return [*found, *checked("compile jobs", needed_by, jobs, machine)]


def compiler(machine: Machine) -> Line:
    """The C++ compiler that a build takes."""
    subject, needed_by = "C++ compiler", ("build",)
    name = machine.variable("CXX") or "g++"
    least = table()["least_gcc"]
    words = name.split()
    path = machine.program(words[0]) if words else None
    if path is None:
        text = f"`CXX` names {name}, which is not there" if machine.variable("CXX") else None
        mend = "unset CXX" if text else f"apt-get install g++ ({least} or later)"
        return Line(subject, MISSING, text or "there is no g++ in PATH", mend, needed_by)
    works, printed = machine.output(*words, "-dumpfullversion", "-dumpversion")
    if not works:
        text = f"{path} doesn't run: {first_line(printed)}"
        return Line(subject, WRONG, text, f"apt-get install g++ ({least} or later)", needed_by)
    version = first_line(printed)
    _, about = machine.output(*words, "--version")
    if "clang" not in about.lower() and not at_least(version, least):
        text = f"{path} is g++ {version}, but torch's headers need {least} or later"
        mend = f"export CXX=g++-{least}"
        return Line(subject, WRONG, text, mend, needed_by)
    return Line(subject, OK, f"{path} {version}", None, needed_by)


def cmake(machine: Machine) -> Line:
    """CMake; pip brings one of its own for the CPU library."""
    subject, needed_by = "CMake", ("build",)
    least = table()["least_cmake"]
    path = machine.program("cmake")
    if path is None:
        text = "it is not in PATH; kernels/build.sh needs it, pip brings its own"
        return Line(subject, MISSING, text, f"pip install 'cmake>={least}'", needed_by)
    _, printed = machine.output("cmake", "--version")
    version = re.search(r"version (\S+)", printed)
    if version is None:
        text = f"{path} doesn't run: {first_line(printed)}"
        return Line(subject, WRONG, text, f"pip install 'cmake>={least}'", needed_by)
    if not at_least(version[1], least):
        text = f"{path} is {version[1]}, but must be {least} or later"
        return Line(subject, WRONG, text, f"pip install 'cmake>={least}'", needed_by)
    return Line(subject, OK, f"{path} {version[1]}", None, needed_by)


def abi(machine: Machine, outcomes: Mapping[str, Outcome]) -> Line:
    """Flags of the environment that would build for another C++ ABI than torch's."""
    subject, needed_by = "C++ ABI", ("build",)
    torch = outcomes.get("torch", NOT_REACHED)
    for name in ("CXXFLAGS", "CPPFLAGS", "CFLAGS"):
        given = re.search(r"-D_GLIBCXX_USE_CXX11_ABI=(\d)", machine.variable(name))
        if given and torch.failure is None and int(given[1]) != int(torch["abi"]):
            text = f"`{name}` asks for C++11 ABI {given[1]}, but torch has {int(torch['abi'])}: "
            text += "the binding would not load"
            return Line(subject, WRONG, text, f"unset {name}", needed_by)
    if torch.failure is not None:
        return Line(subject, WARNING, "torch can't say its own", None, needed_by)
    text = f"C++11 ABI {int(torch['abi'])}, as torch; the CPU library has a C interface"
    return Line(subject, OK, text, None, needed_by)


def toolkit_programs(machine: Machine) -> Line:
    """CANN's build calls these by name."""
    subject, needed_by = "CANN programs", ("build",)
    names = [*table()["toolkit_programs"], "python3"]
    lacks = [name for name in names if machine.program(name) is None]
    if not lacks:
        return Line(subject, OK, f"{listed(names)} are in PATH", None, needed_by)
    verb = "is" if len(lacks) == 1 else "are"
    text = f"{listed(lacks)} {verb} not in PATH, where CANN's build looks"
    home = machine.variable("ASCEND_HOME_PATH")
    if home and lacks[0] != "python3" and not matching(Path(home), f"**/{lacks[0]}"):
        text += f"; {home} is the runtime alone, without the compiler"
        return Line(subject, MISSING, text, "install the CANN toolkit", needed_by)
    mend = f"source {home or '/usr/local/Ascend/ascend-toolkit'}/set_env.sh"
    return Line(subject, MISSING, text, mend, needed_by)


def cpu_build(machine: Machine) -> Line:
    """Whether the CPU library, and CMake's cache, are of the sources as they are."""
    subject, needed_by = "CPU build", ("build",)
    checkout, library = machine.checkout(), library_path(machine)
    assert checkout is not None
    install = install_command(machine)
    for cache in matching(checkout / "build", "*/CMakeCache.txt"):
        fault = _cache_fault(cache, checkout / "kernels")
        if fault is not None:
            text = f"{cache.parent} is stale: {fault}"
            mend = f"rm -r {cache.parent} && {install}"
            return Line(subject, WARNING, text, mend, needed_by)
    if library is None:
        return Line(subject, MISSING, "the CPU library is not built", install, needed_by)
    built = _modified(library)
    sources = [path for pattern in _CPU_SOURCES for path in matching(checkout / "kernels", pattern)]
    newer = [
        path
        for path in sources
        if "tests" not in path.parts and (_modified(path) or 0) > (built or 0)
    ]
    if newer:
        newest = max(newer, key=lambda path: _modified(path) or 0).relative_to(checkout)
        text = f"{len(newer)} sources are newer than the library, such as {newest}"
        return Line(subject, WARNING, text, install, needed_by)
    return Line(subject, OK, "the library is newer than its sources", None, needed_by)


def npu_build(machine: Machine, outcomes: Mapping[str, Outcome]) -> list[Line]:
    """What has changed since kernels/build.sh wrote down the environment of its build."""
    checkout = machine.checkout()
    assert checkout is not None
    record = read(checkout / "build" / "npu" / "environment.txt")
    if record is None:
        return []
    before = dict(line.split("=", 1) for line in record.splitlines() if "=" in line)
    torch = outcomes.get("torch", NOT_REACHED)
    now = {
        "torch": str(torch["version"] or before.get("torch")),
        "torch_npu": version_of("torch-npu") or before.get("torch_npu"),
        "cann_version": toolkit_version(machine)[0],
        "binding_source": str(checkout / "kernels"),
        "package_source": str(checkout / "kernels"),
    }
    if now["cann_version"] == "unknown":
        del now["cann_version"]
    subject, needed_by = "NPU build", ("build",)
    for key, value in now.items():
        if key in before and before[key] != value:
            text = f"it is stale: {key} was {before[key]} and is {value}"
            return [Line(subject, WARNING, text, "kernels/build.sh", needed_by)]
    return [Line(subject, OK, "made for what is installed now", None, needed_by)]


def jobs(machine: Machine) -> Line:
    """How many compilers the memory holds at once."""
    subject, needed_by = "compile jobs", ("build",)
    each = int(table()["job_gib"])
    asked = machine.variable("MAX_JOBS") or machine.variable("CMAKE_BUILD_PARALLEL_LEVEL")
    name = "MAX_JOBS" if machine.variable("MAX_JOBS") else "CMAKE_BUILD_PARALLEL_LEVEL"
    if asked and not re.fullmatch(r"[1-9][0-9]*", asked):
        text = f"`{name}` must be a number above 0, but is {asked}"
        return Line(subject, WRONG, text, f"unset {name}", needed_by)
    count = int(asked) if asked else machine.processors
    if machine.free_memory is None:
        return Line(subject, OK, f"{count} at once", None, needed_by)
    fit = max(1, machine.free_memory // (each * _GIB))
    why = f"`{name}`" if asked else f"{machine.processors} processors"
    free = f"{machine.free_memory / _GIB:.1f} GiB of memory are free"
    if count > fit:
        text = f"{count} at once, by {why}, are too many: {free}, and one takes up to {each}"
        return Line(subject, WARNING, text, f"export MAX_JOBS={fit}", needed_by)
    return Line(subject, OK, f"{count} at once, by {why}; {free}", None, needed_by)


def resources(machine: Machine) -> list[Line]:
    """Memory, and the disk under the folder that results go to."""
    needed_by = ("training",)
    return [
        *checked("memory", needed_by, _memory, machine),
        *checked("disk", needed_by, _disk, machine),
    ]


def _memory(machine: Machine) -> Line:
    if machine.free_memory is None:
        return Line("memory", WARNING, "the system doesn't say what is free", None, ("training",))
    free = f"{machine.free_memory / _GIB:.1f} GiB are free"
    if machine.free_memory < _LEAST_MEMORY_GIB * _GIB:
        text = f"{free}; training the demo takes about {_LEAST_MEMORY_GIB}"
        return Line("memory", WARNING, text, "end other programs", ("training",))
    return Line("memory", OK, free, None, ("training",))


def _disk(machine: Machine) -> Line:
    subject, needed_by = "disk", ("training", "build")
    folder = machine.work
    try:
        folder = folder.absolute()
        fault = folder_fault(folder)
    except OSError as error:
        fault = f"{folder} can't be used: {error.strerror}"
    if fault is not None:
        return Line(subject, WRONG, fault, f"df -h {folder}", needed_by)
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        text = f"{folder} doesn't say what is free: {error.strerror}"
        return Line(subject, WARNING, text, f"df -h {folder}", needed_by)
    text = f"{free / _GIB:.1f} GiB are free in {folder}"
    if free < _LEAST_DISK_GIB * _GIB:
        text += f"; a corpus and its runs take about {_LEAST_DISK_GIB}"
        return Line(subject, WARNING, text, f"du -sh {folder}/*", needed_by)
    return Line(subject, OK, text, None, needed_by)


def _cache_fault(cache: Path, sources: Path) -> str | None:
    """Why CMake would refuse its cache, or build with what is gone."""
    contents = read(cache) or ""
    home = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.+)$", contents, re.M)
    if home and real(Path(home[1])) != real(sources):
        return f"it was made for the sources in {home[1]}"
    chosen = re.search(r"^CMAKE_CXX_COMPILER:\w+=(/.+)$", contents, re.M)
    if chosen and not os.access(chosen[1], os.X_OK):
        return f"its compiler {chosen[1]} is gone"
    return None


def _modified(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None
