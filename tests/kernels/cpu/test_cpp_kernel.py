"""Builds the C++ tests of the CPU kernel and runs them: plain, under sanitizers, as aarch64."""

from __future__ import annotations

import ctypes
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import native_build
from tests.support.native_build import build, cmake_tool, run

PER_ISA_TESTS = (
    "best_path_test",
    "loss_test",
    "small_cost_test",
    "hostile_test",
    "threads_test",
    "exp_test",
)
BUILT_ISAS = {
    "x86_64": ("plain", "avx2", "avx512"),
    "aarch64": ("plain", "neon"),
}.get(platform.machine(), ("plain",))
AARCH64_COMPILER = "aarch64-linux-gnu-g++"
AARCH64_EMULATOR = "qemu-aarch64"
AARCH64_SYSROOT = "/usr/aarch64-linux-gnu"


def run_ctest(build_dir: Path, **environment: str) -> dict[str, str]:
    """Test name -> "Passed" or "Skipped"."""
    output = run(
        [cmake_tool("ctest"), "--test-dir", build_dir, "--output-on-failure", "-j2"], **environment
    )
    return dict(re.findall(r"Test +#\d+: (\S+) \.+ *\**(Passed|Skipped|Failed)", output))


def expected_tests(isas: Sequence[str]) -> set[str]:
    return {"layout_test"} | {f"{test}.{isa}" for test in PER_ISA_TESTS for isa in isas}


@pytest.fixture(scope="module")
def host_compiler() -> str:
    return native_build.host_compiler()


@pytest.fixture(scope="module")
def built(host_compiler: str) -> Path:
    return build("release")


def runnable_isas(library_path: Path) -> list[str]:
    library = ctypes.CDLL(str(library_path))
    library.asr_ascend_isas.restype = ctypes.c_char_p
    return library.asr_ascend_isas().decode().split(",")


@pytest.fixture(scope="module")
def results(built: Path) -> dict[str, str]:
    return run_ctest(built)


@pytest.mark.parametrize("isa", BUILT_ISAS)
def test_cpp_tests_pass(isa: str, built: Path, results: dict[str, str]) -> None:
    outcomes = {results[f"{test}.{isa}"] for test in PER_ISA_TESTS}
    if isa not in runnable_isas(built / "libasr_ascend_cpu.so"):
        assert outcomes == {"Skipped"}
        pytest.skip(f"this CPU has no {isa}")
    assert outcomes == {"Passed"}


def test_layout_passes_and_no_test_is_left_out(results: dict[str, str]) -> None:
    assert results.keys() == expected_tests(BUILT_ISAS)
    assert results["layout_test"] == "Passed"


@pytest.mark.parametrize("isa", BUILT_ISAS)
def test_a_program_asks_before_it_runs_an_instruction_set(isa: str, built: Path) -> None:
    """Code before the question, in `main` or a constructor, would be compiled for the set too."""
    if shutil.which("nm") is None:
        pytest.skip("no nm on PATH")
    objects = f"cpu/tests/CMakeFiles/exp_test_object_{isa}.dir/exp_test.cpp.o"
    names = [line.split()[-1] for line in run(["nm", built / objects]).splitlines()]
    assert "_Z11RunExpTestsv" in names
    assert [name for name in names if name == "main" or "_GLOBAL__sub_I" in name] == []


@pytest.mark.slow  # two to three minutes of computing for each instruction set
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("isa", ["avx512", "avx2", "neon", "plain"])
def test_exp_of_every_float(isa: str, built: Path) -> None:
    """The bounds of the exps over all 2**32 floats, where the test above takes every 499th."""
    if isa not in runnable_isas(built / "libasr_ascend_cpu.so"):
        pytest.skip(f"this CPU, or this build, has no {isa}")
    program = built / "cpu" / "tests" / f"exp_test_{isa}"
    output = run([program], ASR_ASCEND_TEST_EVERY_FLOAT="1")
    assert "exp of float" in output and "term of a sum" in output


def sanitizer_works(compiler: str, directory: Path) -> bool:
    source = directory / "probe.cpp"
    source.write_text("int main() { return 0; }\n")
    program = directory / "probe"
    flags = ["-fsanitize=address,undefined", str(source), "-o", str(program)]
    if subprocess.run([compiler, *flags], capture_output=True, check=False).returncode != 0:
        return False
    return subprocess.run([program], capture_output=True, check=False).returncode == 0


def test_cpp_tests_pass_under_address_and_undefined_sanitizers(
    host_compiler: str, tmp_path: Path
) -> None:
    if not sanitizer_works(host_compiler, tmp_path):
        pytest.skip(f"{host_compiler} cannot build or run with -fsanitize=address,undefined")
    build_dir = build(
        "sanitized",
        "-DASR_ASCEND_SANITIZE=address,undefined",
        "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
    )
    results = run_ctest(build_dir)
    assert results["layout_test"] == "Passed"
    assert {results[f"{test}.plain"] for test in PER_ISA_TESTS} == {"Passed"}
    assert set(results.values()) <= {"Passed", "Skipped"}


@pytest.mark.arm
def test_cpp_tests_pass_on_aarch64() -> None:
    for tool in (AARCH64_COMPILER, AARCH64_EMULATOR):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} on PATH")
    build_dir = build(
        "aarch64",
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
        f"-DCMAKE_CXX_COMPILER={AARCH64_COMPILER}",
        f"-DCMAKE_CROSSCOMPILING_EMULATOR={AARCH64_EMULATOR};-L;{AARCH64_SYSROOT}",
    )
    results = run_ctest(build_dir, ASR_ASCEND_TEST_EMULATED="1")
    assert results == dict.fromkeys(expected_tests(["neon", "plain"]), "Passed")


def test_library_exports_only_its_interface(built: Path) -> None:
    if shutil.which("nm") is None:
        pytest.skip("no nm on PATH")
    listing = run(["nm", "-D", "--defined-only", built / "libasr_ascend_cpu.so"])
    symbols = {line.split()[-1] for line in listing.splitlines()}
    assert symbols == {
        "asr_ascend_abi_version",
        "asr_ascend_isa",
        "asr_ascend_isas",
        "asr_ascend_rnnt_alignment",
        "asr_ascend_rnnt_forward",
        "asr_ascend_rnnt_backward",
    }


def test_instruction_sets_share_no_symbols(built: Path) -> None:
    """A weak symbol outside the set's namespace could be linked from the object of a wider set."""
    if shutil.which("nm") is None:
        pytest.skip("no nm on PATH")
    objects = sorted(built.glob("cpu/CMakeFiles/asr_ascend_simd_*.dir/rnnt_loss/kernels.cpp.o"))
    assert len(objects) >= 2
    for path in objects:
        isa = re.search(r"asr_ascend_simd_(\w+)\.dir", str(path))
        assert isa is not None
        lines = run(["nm", "-C", "--defined-only", path]).splitlines()
        weak = [line for line in lines if re.match(r"[0-9a-f]+ [WVu] ", line)]
        assert weak, f"{path} defines no templates"
        assert [line for line in weak if f"simd_{isa.group(1)}" not in line] == []


@pytest.mark.parametrize(
    ("wanted", "printed"), [("plain", "b'plain'"), ("sse9", "None"), ("", "best")]
)
def test_environment_chooses_the_instruction_set(built: Path, wanted: str, printed: str) -> None:
    path = built / "libasr_ascend_cpu.so"
    program = (
        "import ctypes, sys; library = ctypes.CDLL(sys.argv[1]);"
        "library.asr_ascend_isa.restype = ctypes.c_char_p; print(library.asr_ascend_isa())"
    )
    output = run([sys.executable, "-c", program, path], ASR_ASCEND_ISA=wanted).strip()
    assert output == (repr(runnable_isas(path)[0].encode()) if printed == "best" else printed)
