"""Compiles the operator's host sources against doubles of the CANN headers and runs their tests."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.support import compiling

OPERATOR = Path(__file__).resolve().parents[3] / "kernels" / "rnnt_loss_fused"
UNIT_TESTS = OPERATOR / "tests" / "op_host"
CANN_DOUBLE = OPERATOR.parent / "cann_standin" / "cann_double"
SOURCES = sorted((OPERATOR / "op_host").glob("*.cpp"))
TEST_SOURCES = sorted(UNIT_TESTS.glob("*.cpp"))
FLAGS = ["-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
CASE_PATTERN = re.compile(r"^CASE\((\w+)\)", re.MULTILINE)
CASES = [name for source in TEST_SOURCES for name in CASE_PATTERN.findall(source.read_text())]


@pytest.fixture(scope="session")
def outcomes() -> dict[str, str]:
    """The line that each case printed; `exit` holds what the run ended with."""
    executable = compiling.program(
        "op_host_tests",
        SOURCES + TEST_SOURCES,
        FLAGS + SANITIZERS,
        [OPERATOR, UNIT_TESTS, CANN_DOUBLE],
    )
    run = subprocess.run([executable], capture_output=True, text=True, check=False)
    lines = {line.split()[1].rstrip(":"): line for line in run.stdout.splitlines()}
    lines["exit"] = f"{run.returncode}\n{run.stderr}"
    return lines


@pytest.mark.parametrize("case", CASES)
def test_case(outcomes: dict[str, str], case: str) -> None:
    assert outcomes.get(case, f"not run, exit {outcomes['exit']}") == f"PASS {case}"


def test_every_case_ran_and_the_sanitizers_found_nothing(outcomes: dict[str, str]) -> None:
    assert outcomes["exit"] == "0\n"
    assert set(outcomes) == {*CASES, "exit"}


def test_op_host_files_are_the_three_of_an_operator() -> None:
    assert [source.name for source in SOURCES] == [
        "rnnt_loss_fused_def.cpp",
        "rnnt_loss_fused_infershape.cpp",
        "rnnt_loss_fused_tiling.cpp",
    ]
