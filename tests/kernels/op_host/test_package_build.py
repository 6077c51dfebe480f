"""Configures the operator package with a double of CANN's CMake functions."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

OPERATOR = Path(__file__).resolve().parents[3] / "kernels" / "rnnt_loss_fused"
DOUBLE = OPERATOR.parent / "cann_standin" / "cann_double" / "cmake"


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cmake") is None:
        pytest.skip("there is no cmake")
    folder = tmp_path_factory.mktemp("package")
    command = ["cmake", "-S", str(OPERATOR), "-B", str(folder), f"-DASC_DIR={DOUBLE}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return folder


@pytest.fixture(scope="module")
def calls(build: Path) -> list[str]:
    return (build / "calls.txt").read_text().splitlines()


def arguments_of(calls: list[str], name: str) -> list[str]:
    return [call.removeprefix(f"{name} ") for call in calls if call.split()[0] == name]


def test_package_is_a_run_file_with_compiled_kernels(calls: list[str], build: Path) -> None:
    assert arguments_of(calls, "npu_op_package") == [
        "asr_ascend TYPE RUN CONFIG ENABLE_SOURCE_PACKAGE False ENABLE_BINARY_PACKAGE True "
        f"INSTALL_PATH {build}/"
    ]


def test_package_holds_every_library(calls: list[str]) -> None:
    assert arguments_of(calls, "npu_op_package_add") == [
        "asr_ascend LIBRARY cust_opapi cust_op_proto cust_optiling",
        "asr_ascend LIBRARY ascendc_kernels",
    ]


def test_each_operator_has_its_kernel_file(calls: list[str]) -> None:
    source = (OPERATOR / "op_host" / "rnnt_loss_fused_def.cpp").read_text()
    operators = re.findall(r"OP_ADD\((\w+)\)", source)
    assert arguments_of(calls, "npu_op_kernel_sources") == [
        f"ascendc_kernels OP_TYPE {operator} KERNEL_DIR rnnt_loss_fused/op_kernel "
        f"COMPUTE_UNIT ascend910b KERNEL_FILE {snake_case(operator)}.cpp"
        for operator in operators
    ]


def test_kernels_keep_the_rounding_errors_of_float_pairs(calls: list[str], build: Path) -> None:
    assert arguments_of(calls, "npu_op_kernel_options") == [
        f"ascendc_kernels ALL OPTIONS -I{build}-kernel_sources -std=c++17 -ffp-contract=off "
        "-fno-fast-math"
    ]


def test_shared_headers_are_staged_with_the_kernels(calls: list[str], build: Path) -> None:
    assert arguments_of(calls, "npu_op_kernel_library") == [
        f"ascendc_kernels SRC_BASE {build}-kernel_sources TILING_LIBRARY cust_optiling"
    ]
    staged = build.with_name(f"{build.name}-kernel_sources")
    for folder, pattern in (
        ("op_kernel", '"(?:../)*rnnt_lattice/([^"]+)"'),
        ("op_kernel", '"([^"/]+)"'),
    ):
        for source in (staged / "rnnt_loss_fused" / folder).glob("*"):
            for included in re.findall(rf"#include {pattern}", source.read_text()):
                home = staged / "rnnt_lattice" if "rnnt_lattice" in pattern else source.parent
                assert included == "kernel_operator.h" or (home / included).is_file(), included


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
