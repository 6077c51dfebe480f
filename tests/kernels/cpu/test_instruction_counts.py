"""How many instructions the CPU kernel takes: a guard of its speed that no other load moves."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support import native_build
from tests.support.native_build import run

# Case: (dtype, T, U, V) and instructions per logit, loss and gradient together, AVX2, one thread. A
# fifth above what GCC 12 gives (7.3, 19.1, 6.3, 6.5, 9.0); Clang 14 gives up to 1.18 of that.
# One more sweep over the logits would add some 2.5.
MOST_PER_LOGIT = {
    "V_500": (("float32", 60, 20, 500), 8.8),
    "V_50": (("float32", 100, 40, 50), 22.0),
    "V_5000": (("float32", 12, 10, 5000), 7.6),
    "float16": (("float16", 60, 20, 500), 7.8),
    "bfloat16": (("bfloat16", 60, 20, 500), 10.8),
}


@pytest.fixture(scope="module")
def program() -> Path:
    if shutil.which("valgrind") is None:
        pytest.skip("no valgrind on PATH")
    native_build.host_compiler()
    return native_build.build("release") / "cpu" / "tests" / "instruction_count"


@pytest.mark.slow
@pytest.mark.parametrize("case", MOST_PER_LOGIT)
def test_instructions_per_logit(case: str, program: Path, tmp_path: Path) -> None:
    arguments, most = MOST_PER_LOGIT[case]
    # Valgrind knows no AVX-512.
    output = run(
        [
            "valgrind",
            "--tool=callgrind",
            f"--callgrind-out-file={tmp_path / 'counts'}",
            "--toggle-collect=asr_ascend_rnnt_forward",
            "--toggle-collect=asr_ascend_rnnt_backward",
            program,
            *map(str, arguments),
        ],
        ASR_ASCEND_ISA="avx2",
    )
    logits = re.search(r"^avx2 (\d+)$", output, re.MULTILINE)
    counted = re.search(r"Collected : (\d+)", output)
    if logits is None:
        pytest.skip("this CPU, or valgrind on it, has no AVX2")
    assert counted is not None, output
    per_logit = int(counted[1]) / int(logits[1])
    assert most / 2 < per_logit <= most
