"""What the tests compile once is compiled again as soon as anything that it was made of changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import compiler_cache, compiling, native_build

ANSWER = '#include <cstdio>\n#include "number.h"\nint main() { std::printf("%d\\n", kNumber); }\n'


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of a source and a header, built in a folder of its own."""
    monkeypatch.setattr(compiling, "FOLDER", tmp_path / "build")
    (tmp_path / "number.h").write_text("constexpr int kNumber = 1;\n")
    (tmp_path / "answer.cpp").write_text(ANSWER)
    return tmp_path / "answer.cpp"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what is compiled or linked, in order."""
    names: list[str] = []
    run = compiling._run

    def noted(command: list[str], output: Path) -> None:
        names.append(output.name)
        run(command, output)

    monkeypatch.setattr(compiling, "_run", noted)
    return names


def answer(source: Path, *flags: str) -> str:
    program = compiling.program("answer", [source], ["-O0", *flags])
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout.strip()


def test_the_same_sources_are_compiled_once(source: Path, compiled: list[str]) -> None:
    assert [answer(source), answer(source)] == ["1", "1"]
    assert compiled == ["new.o", "answer"]


def test_another_time_changes_nothing(source: Path, compiled: list[str]) -> None:
    answer(source)
    os.utime(source, (1, 1))
    (source.parent / "number.h").touch()
    answer(source)
    assert compiled == ["new.o", "answer"]


@pytest.mark.parametrize("seconds", [-1000, 0, 1000])
def test_a_changed_header_counts_whatever_its_time(source: Path, seconds: int) -> None:
    assert answer(source) == "1"
    header = source.parent / "number.h"
    time = header.stat().st_mtime + seconds
    header.write_text("constexpr int kNumber = 2;\n")
    os.utime(header, (time, time))
    assert answer(source) == "2"


def test_other_flags_make_another_object(source: Path, compiled: list[str]) -> None:
    answer(source)
    answer(source, "-DNDEBUG")
    answer(source)
    assert compiled == ["new.o", "answer", "new.o", "answer"]


def test_an_error_is_told_and_kept_nowhere(source: Path) -> None:
    header = source.parent / "number.h"
    header.write_text("int kNumber = ;\n")
    for _ in range(2):
        with pytest.raises(AssertionError, match=r"number\.h:1:"):
            answer(source)
    header.write_text("constexpr int kNumber = 3;\n")
    assert answer(source) == "3"


def test_programs_share_the_objects_of_shared_sources(source: Path, compiled: list[str]) -> None:
    other = source.with_name("other.cpp")
    other.write_text("int Other() { return 1; }\n")
    compiling.program("one", [source], ["-O0"])
    compiling.program("two", [source, other], ["-O0"])
    assert sorted(compiled) == ["new.o", "new.o", "one", "two"]


# The launcher for CMake


def launch(folder: Path, source: Path, output: Path, *flags: str) -> subprocess.CompletedProcess:
    command = [sys.executable, compiler_cache.__file__, str(folder), compiling.compiler()]
    command += ["-O0", *flags, "-MD", "-MF", f"{output}.d", "-o", str(output), "-c", str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_source_in_another_folder_is_the_same_source(source: Path, tmp_path: Path) -> None:
    cache, objects = tmp_path / "cache", [tmp_path / f"{i}.o" for i in range(4)]
    assert launch(cache, source, objects[0]).returncode == 0
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("answer.cpp", "number.h"):
        (moved / name).write_text((tmp_path / name).read_text())
    assert launch(cache, moved / "answer.cpp", objects[1]).returncode == 0
    assert objects[0].read_bytes() == objects[1].read_bytes()
    assert len(list(cache.iterdir())) == 1
    (moved / "number.h").write_text("constexpr int kNumber = 2;\n")
    launch(cache, moved / "answer.cpp", objects[2])
    launch(cache, source, objects[3], "-fno-inline")
    assert len(list(cache.iterdir())) == 3
    assert objects[2].read_bytes() != objects[0].read_bytes()


def test_the_launcher_ends_as_the_compiler_does(source: Path, tmp_path: Path) -> None:
    source.write_text("int main() { return missing; }\n")
    done = launch(tmp_path / "cache", source, tmp_path / "answer.o")
    assert done.returncode == 1
    assert "answer.cpp:1:21: error:" in done.stderr
    assert not (tmp_path / "cache").exists()


# Builds by CMake


@pytest.fixture
def project(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(native_build, "KERNELS", tmp_path / "project")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(answer LANGUAGES CXX)\n"
        "add_executable(answer answer.cpp)\n"
    )
    for name in ("answer.cpp", "number.h"):
        (tmp_path / name).rename(folder / name)
    return folder


def built_answer() -> str:
    program = native_build.build("answer") / "answer"
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout.strip()


def test_cmake_notices_a_file_that_was_replaced_by_an_older_one(project: Path) -> None:
    header = project / "number.h"
    assert built_answer() == "1"
    first = (compiling.FOLDER / "cmake-answer" / "answer").stat().st_mtime_ns
    assert built_answer() == "1"
    assert (compiling.FOLDER / "cmake-answer" / "answer").stat().st_mtime_ns == first
    for number, time in ((2, 1), (3, 2)):
        header.write_text(f"constexpr int kNumber = {number};\n")
        os.utime(header, (time, time))
        assert built_answer() == str(number)
