"""Builds kernels/ by CMake, for tests that run what comes out."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[2] / "kernels"


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


def build(build_dir: Path, *options: str) -> None:
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    configure = [cmake_tool("cmake"), "-S", KERNELS, "-B", build_dir, *generator]
    run([*configure, "-DASR_ASCEND_BUILD_TESTS=ON", *options])
    run([cmake_tool("cmake"), "--build", build_dir, "--parallel", "2"])


def host_compiler() -> str:
    """The C++ compiler that CMake takes; skips the test where there is none."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and shutil.which(name):
            return name
    pytest.skip("no C++ compiler on PATH")
