"""The aclnn example, unchanged, over a double of acl: tiling and kernel are the operator's own."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support import compiling

KERNELS = Path(__file__).resolve().parents[3] / "kernels"
OPERATOR = KERNELS / "rnnt_loss_fused"
ACL_DOUBLE = OPERATOR / "tests" / "acl_double"
CANN_DOUBLE = KERNELS / "cann_standin" / "cann_double"


@pytest.fixture(scope="module")
def example() -> Path:
    sources = [
        OPERATOR / "examples" / "test_aclnn_rnnt_loss_fused.cpp",
        ACL_DOUBLE / "acl_double.cpp",
        OPERATOR / "op_host" / "rnnt_loss_fused_tiling.cpp",
    ]
    includes = [ACL_DOUBLE, CANN_DOUBLE, OPERATOR, KERNELS / "emulator"]
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off"]
    return compiling.program("aclnn_example", sources, flags, includes)


def run(example: Path, fault: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [example],
        env={**os.environ, "ACL_DOUBLE_FAULT": fault},
        capture_output=True,
        text=True,
        check=False,
    )


def test_passes(example: Path) -> None:
    result = run(example)
    assert result.returncode == 0, result.stderr
    losses = re.findall(r"loss ([\d.]+), expected ([\d.]+), status 0", result.stdout)
    assert len(losses) == 2
    assert all(actual == expected for actual, expected in losses)
    assert result.stdout.splitlines()[-1] == "passed"


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("loss", r"loss\[1\] is \d+\.\d+, but should be \d+\.\d+\."),
        ("grad", r"grad\[7\] is nan, but should be -?\d\.\d+\."),
        ("malloc", r"aclrtMalloc returned 207001\. aclrtMalloc: out of memory\."),
        ("workspace_size", r"\w+GetWorkspaceSize returned 161002\. A made-up fault\."),
        ("execute", r"aclnnRnntLossFused returned 361001\. A made-up fault\."),
    ],
)
def test_notices_what_is_wrong(example: Path, fault: str, complaint: str) -> None:
    result = run(example, fault)
    assert result.returncode == 1
    assert re.fullmatch(complaint, result.stderr.strip())
    assert result.stdout.splitlines()[-1] == "failed"


def test_workspace_is_allocated_only_when_it_has_a_size(example: Path) -> None:
    source = (OPERATOR / "examples" / "test_aclnn_rnnt_loss_fused.cpp").read_text()
    assert (
        "if (workspace_bytes > 0 && !workspace.Allocate(workspace_bytes)) return false;" in source
    )
