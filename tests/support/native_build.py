"""Builds kernels/ by CMake, for tests that run what comes out."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import compiling

KERNELS = Path(__file__).parents[2] / "kernels"
RECORD = "made_of.json"


def cmake_tool(name: str) -> str:
    """Path of cmake or ctest: from PATH, or from the `cmake` Python package."""
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None and importlib.util.find_spec("cmake") is not None:
        import cmake

        found = shutil.which(name, path=cmake.CMAKE_BIN_DIR)
    if found is None:
        pytest.skip(f"no {name} on PATH or in the Python package cmake")
    return found


def run(command: Sequence[str | Path], **environment: str) -> str:
    """What the command prints; a failure of it fails the test with its output."""
    finished = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert finished.returncode == 0, f"{command} failed:\n{finished.stdout[-6000:]}"
    return finished.stdout


def build(name: str, *options: str) -> Path:
    """Folder of the build with these options, kept: only what changed is compiled."""
    folder = compiling.FOLDER / f"cmake-{name}"
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    configure = [cmake_tool("cmake"), "-S", KERNELS, "-B", folder, *generator]
    configure += ["-DASR_ASCEND_BUILD_TESTS=ON", *options]
    made_of = {
        "command": [
            *map(str, configure),
            os.environ.get("CXX", ""),
            os.environ.get("CXXFLAGS", ""),
        ],
        "sources": {str(path): compiling.content(path) for path in _sources()},
    }
    with compiling.lock(folder):
        _forget_what_times_do_not_tell(folder, made_of)
        run(configure)
        run([cmake_tool("cmake"), "--build", folder, "--parallel", "2"])
        (folder / RECORD).write_text(json.dumps(made_of))
    return folder


def _sources() -> list[Path]:
    return sorted(path for path in KERNELS.rglob("*") if path.suffix in (".cpp", ".h", ".txt"))


def _forget_what_times_do_not_tell(folder: Path, made_of: dict[str, Any]) -> None:
    """Empties the folder of another command, or where a source was replaced by an older file."""
    record = folder / RECORD
    if record.exists():
        before = json.loads(record.read_text())
        changed = [
            Path(path)
            for path, content in made_of["sources"].items()
            if before["sources"].get(path, content) != content
        ]
        built = record.stat().st_mtime
        if before["command"] == made_of["command"] and all(
            path.stat().st_mtime > built for path in changed
        ):
            return
    for path in folder.iterdir():
        if path.name != "lock":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def host_compiler() -> str:
    """The C++ compiler that CMake takes; skips the test where there is none."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and shutil.which(name):
            return name
    pytest.skip("no C++ compiler on PATH")
