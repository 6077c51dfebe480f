"""Traps of a build from source, memory and disk."""

from __future__ import annotations

import os
import shutil
import sys
import time

import pytest

from asr_ascend.doctor import build_side
from asr_ascend.doctor.lines import Line
from asr_ascend.doctor.probing import Outcome
from tests.support.atlas_a2 import GIB, AtlasA2
from tests.support.made_up_machine import needs_tools, write

pytestmark = needs_tools
TORCH = {"torch": Outcome({"version": "2.13.0+cpu", "abi": True})}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 12.2.0", ["ok", "/m/tools/g++ 12.2.0", None]),
        (
            "echo 7.3.0",
            [
                "wrong",
                "/m/tools/g++ is g++ 7.3.0, but torch's headers need 9 or later",
                "export CXX=g++-9",
            ],
        ),
        (
            "echo 'cannot execute cc1plus'; exit 1",
            [
                "wrong",
                "/m/tools/g++ doesn't run: cannot execute cc1plus",
                "apt-get install g++ (9 or later)",
            ],
        ),
        (
            None,
            ["missing", "there is no g++ in PATH", "apt-get install g++ (9 or later)"],
        ),
    ],
)
def test_the_compiler(atlas: AtlasA2, script: str | None, said: list[str | None]) -> None:
    if script is None:
        (atlas.tools / "g++").unlink()
    else:
        atlas.tool("g++", script)
    assert atlas.said(build_side.compiler(atlas.machine())) == said


def test_a_compiler_that_is_asked_for_and_not_there(atlas: AtlasA2) -> None:
    assert atlas.said(build_side.compiler(atlas.machine(CXX="g++-99"))) == [
        "missing",
        "`CXX` names g++-99, which is not there",
        "unset CXX",
    ]


def test_a_compiler_for_another_processor_or_a_damaged_one(atlas: AtlasA2) -> None:
    """A file that the system can't run."""
    atlas.tool("g++", "")
    (atlas.tools / "g++").write_bytes(b"\x7fELF damaged")
    line = build_side.compiler(atlas.machine())
    assert atlas.said(line)[:2] == ["wrong", "/m/tools/g++ doesn't run: Exec format error"]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'cmake version 3.31.6'", ["ok", "/m/tools/cmake 3.31.6", None]),
        (
            "echo 'cmake version 3.9.6'",
            [
                "wrong",
                "/m/tools/cmake is 3.9.6, but must be 3.20 or later",
                "pip install 'cmake>=3.20'",
            ],
        ),
        (
            "echo 'No module named cmake'; exit 1",
            [
                "wrong",
                "/m/tools/cmake doesn't run: No module named cmake",
                "pip install 'cmake>=3.20'",
            ],
        ),
    ],
)
def test_cmake(atlas: AtlasA2, script: str, said: list[str | None]) -> None:
    atlas.tool("cmake", script)
    assert atlas.said(build_side.cmake(atlas.machine())) == said


def test_flags_for_another_abi(atlas: AtlasA2) -> None:
    machine = atlas.machine(CXXFLAGS="-O2 -D_GLIBCXX_USE_CXX11_ABI=0")
    assert atlas.said(build_side.abi(machine, TORCH)) == [
        "wrong",
        "`CXXFLAGS` asks for C++11 ABI 0, but torch has 1: the binding would not load",
        "unset CXXFLAGS",
    ]
    machine = atlas.machine(CXXFLAGS="-D_GLIBCXX_USE_CXX11_ABI=1")
    assert build_side.abi(machine, TORCH).status == "ok"
    assert build_side.abi(machine, {}).status == "warning"


def test_programs_of_cann(atlas: AtlasA2) -> None:
    assert atlas.said(build_side.toolkit_programs(atlas.machine())) == [
        "ok",
        "bisheng, asc_opc and python3 are in PATH",
        None,
    ]
    machine = atlas.machine(PATH=str(atlas.tools))
    assert atlas.said(build_side.toolkit_programs(machine)) == [
        "missing",
        "bisheng and asc_opc are not in PATH, where CANN's build looks",
        "source /m/cann/set_env.sh",
    ]
    shutil.rmtree(atlas.cann / "bin")
    assert atlas.said(build_side.toolkit_programs(machine)) == [
        "missing",
        "bisheng and asc_opc are not in PATH, where CANN's build looks; /m/cann is the runtime "
        "alone, without the compiler",
        "install the CANN toolkit",
    ]


# Build folders


def test_a_library_that_is_older_than_its_sources(
    atlas: AtlasA2, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [])  # where the tests' own package is installed
    library = atlas.kernels.parent / "asr_ascend" / "lib" / "libasr_ascend_cpu.so"
    assert atlas.said(build_side.cpu_build(atlas.machine())) == [
        "missing",
        "the CPU library is not built",
        "pip install -e /m/repository",
    ]
    source = write(atlas.kernels / "cpu" / "rnnt_loss" / "rnnt_loss.cpp", "")
    test = write(atlas.kernels / "cpu" / "tests" / "check.cpp", "")
    write(library, "")
    now = time.time()
    for path in atlas.kernels.rglob("*"):
        os.utime(path, (now - 60, now - 60))
    os.utime(test, (now + 60, now + 60))
    assert atlas.said(build_side.cpu_build(atlas.machine())) == [
        "ok",
        "the library is newer than its sources",
        None,
    ]
    os.utime(source, (now + 60, now + 60))
    assert atlas.said(build_side.cpu_build(atlas.machine())) == [
        "warning",
        "1 sources are newer than the library, such as kernels/cpu/rnnt_loss/rnnt_loss.cpp",
        "pip install -e /m/repository",
    ]


def test_a_build_folder_of_sources_that_moved(atlas: AtlasA2) -> None:
    cache = write(
        atlas.kernels.parent / "build" / "py3-none-linux_x86_64" / "CMakeCache.txt",
        "CMAKE_HOME_DIRECTORY:INTERNAL=/elsewhere/kernels\n",
    )
    mend = "rm -r /m/repository/build/py3-none-linux_x86_64 && pip install -e /m/repository"
    stale = "/m/repository/build/py3-none-linux_x86_64 is stale: "
    assert atlas.said(build_side.cpu_build(atlas.machine())) == [
        "warning",
        f"{stale}it was made for the sources in /elsewhere/kernels",
        mend,
    ]
    cache.write_text(
        f"CMAKE_HOME_DIRECTORY:INTERNAL={atlas.kernels}\nCMAKE_CXX_COMPILER:FILEPATH=/gone/g++-8\n"
    )
    assert atlas.said(build_side.cpu_build(atlas.machine())) == [
        "warning",
        f"{stale}its compiler /gone/g++-8 is gone",
        mend,
    ]


def test_an_npu_build_of_another_torch(atlas: AtlasA2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_side, "version_of", lambda name: "2.13.0")
    assert build_side.npu_build(atlas.machine(), TORCH) == []
    record = atlas.kernels.parent / "build" / "npu" / "environment.txt"
    same = (
        f"torch=2.13.0+cpu\ntorch_npu=2.13.0\ncann_version=9.1.0\nbinding_source={atlas.kernels}\n"
    )
    write(record, same)
    assert build_side.npu_build(atlas.machine(), TORCH) == [
        Line("NPU build", "ok", "made for what is installed now", None, ("build",))
    ]
    for key, before, now in (
        ("torch", "2.12.0+cpu", "2.13.0+cpu"),
        ("cann_version", "9.0.0", "9.1.0"),
        ("binding_source", "/elsewhere/kernels", "/m/repository/kernels"),
    ):
        kept = [line for line in same.splitlines() if not line.startswith(f"{key}=")]
        record.write_text("\n".join([*kept, f"{key}={before}"]))
        (line,) = build_side.npu_build(atlas.machine(), TORCH)
        assert atlas.said(line) == [
            "warning",
            f"it is stale: {key} was {before} and is {now}",
            "kernels/build.sh",
        ]


# Jobs, memory, disk


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ["ok", "8 at once, by 8 processors; 64.0 GiB of memory are free", None]),
        (
            {"free_memory": 5 * GIB},
            [
                "warning",
                "8 at once, by 8 processors, are too many: 5.0 GiB of memory are free, and one "
                "takes up to 2",
                "export MAX_JOBS=2",
            ],
        ),
        (
            {"free_memory": GIB, "MAX_JOBS": "4"},
            [
                "warning",
                "4 at once, by `MAX_JOBS`, are too many: 1.0 GiB of memory are free, and one "
                "takes up to 2",
                "export MAX_JOBS=1",
            ],
        ),
        ({"MAX_JOBS": "3"}, ["ok", "3 at once, by `MAX_JOBS`; 64.0 GiB of memory are free", None]),
        (
            {"MAX_JOBS": "many"},
            ["wrong", "`MAX_JOBS` must be a number above 0, but is many", "unset MAX_JOBS"],
        ),
        ({"free_memory": None}, ["ok", "8 at once", None]),
    ],
)
def test_compile_jobs(atlas: AtlasA2, changes: dict, said: list[str | None]) -> None:
    assert atlas.said(build_side.jobs(atlas.machine(**changes))) == said


def resources(atlas: AtlasA2, **changes: object) -> list[list[str | None]]:
    return [atlas.said(line) for line in build_side.resources(atlas.machine(**changes))]


def test_memory_and_disk(atlas: AtlasA2, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(atlas.folder)._replace(free=40 * GIB)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert resources(atlas) == [
        ["ok", "64.0 GiB are free", None],
        ["ok", "40.0 GiB are free in /m", None],
    ]
    usage = usage._replace(free=GIB)
    assert resources(atlas, free_memory=GIB) == [
        ["warning", "1.0 GiB are free; training the demo takes about 2", "end other programs"],
        [
            "warning",
            "1.0 GiB are free in /m; a corpus and its runs take about 5",
            "du -sh /m/*",
        ],
    ]


def test_a_full_disk(atlas: AtlasA2, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    assert resources(atlas)[1] == [
        "wrong",
        "nothing can be written to /m: No space left on device",
        "df -h /m",
    ]


def test_a_folder_that_is_a_file(atlas: AtlasA2) -> None:
    work = write(atlas.folder / "file", "")
    assert resources(atlas, work=work)[1][:2] == ["wrong", "/m/file is a file"]
