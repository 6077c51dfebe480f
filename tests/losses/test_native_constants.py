"""Numbers that Python repeats of the kernels' headers, compared with what stands there."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from asr_ascend.losses.backends import cpu_library, npu, npu_status

KERNELS = Path(__file__).resolve().parents[2] / "kernels"


def source(name: str) -> Path:
    (path,) = (path for path in KERNELS.rglob(name) if "build" not in path.parts)
    return path


def definitions(name: str) -> dict[str, int]:
    """Of a header or source: `#define NAME 1`, `NAME = 1,` and `int64_t kName = 1;`."""
    text = source(name).read_text(encoding="utf-8")
    found = re.findall(r"^#define (\w+) (\d+)\b", text, re.MULTILINE)
    found += re.findall(r"\b([A-Z]\w+) = (\d+),", text)
    found += re.findall(r"\bint64_t (k\w+) = (\d+);", text)
    return {name: int(value) for name, value in found}


def test_cpu_library() -> None:
    header = definitions("asr_ascend_cpu.h")
    assert header["ASR_ASCEND_CPU_ABI_VERSION"] == cpu_library.ABI_VERSION
    assert header["ASR_ASCEND_STATE_PLANES"] == cpu_library.STATE_PLANES
    for name in (
        "OK",
        "BAD_LOGIT_LENGTH",
        "BAD_TARGET_LENGTH",
        "BAD_TARGET",
        "TARGET_IS_BLANK",
        "BAD_ROWS",
        "CROSS_CHECK_FAILED",
        "NO_MEMORY",
    ):
        assert header[f"ASR_ASCEND_{name}"] == getattr(cpu_library, name)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        name = str(dtype).removeprefix("torch.").upper()
        assert header[f"ASR_ASCEND_{name}"] == cpu_library._DTYPES[dtype]


def test_npu_statuses() -> None:
    header = definitions("rnnt_loss_fused_tiling_key.h")
    names = ("OK", "LOGIT_LENGTH", "TARGET_LENGTH", "LABEL", "ROW_TOTAL", "CROSS_CHECK")
    for name in (*names, "BAND", "BAND_WIDTH"):
        assert header[f"RNNT_LOSS_STATUS_{name}"] == getattr(npu_status, name)
    assert definitions("rnnt_loss_npu.cpp")["kCalls"] == npu_status.KEPT_CALLS


def test_npu_limits() -> None:
    limits = definitions("rnnt_loss_fused_check.h")
    assert limits["kMaxTargetColumns"] == npu.MAX_TARGET_COLUMNS


def test_npu_state_size(tmp_path: Path) -> None:
    """The fake's formula, against the tiling's."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no C++ compiler `{compiler}`")
    rows = (0, 1, 15, 16, 17, 4097, 2**33)
    sizes = list(itertools.product(rows, (0, 1, 3, 999), (0, 1, 5, 2000)))
    program = tmp_path / "state_size.cpp"
    lines = (
        'std::printf("%lld\\n", (long long)rnnt_loss_fused::StateShape('
        f"{rows}, {batch}, true, {frames})[0]);"
        for rows, batch, frames in sizes
    )
    header = source("rnnt_loss_fused_tiling_plan.h")
    program.write_text(f'#include "{header}"\n#include <cstdio>\nint main() {{ {"".join(lines)} }}')
    executable = tmp_path / "state_size"
    subprocess.run([compiler, "-std=c++17", str(program), "-o", str(executable)], check=True)
    printed = subprocess.run([executable], capture_output=True, text=True, check=True).stdout
    assert [int(size) for size in printed.split()] == [npu.state_size(*size) for size in sizes]
