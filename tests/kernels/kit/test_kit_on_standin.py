"""build.sh and verify_910b.sh from end to end, with torch_npu over the stand-in for CANN."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from asr_ascend.losses.backends import cpu_library
from tests.support import standin_process
from tests.support.made_up_machine import REPOSITORY, MadeUpMachine, assert_stops

pytestmark = pytest.mark.npu_standin
STANDIN = standin_process.FOLDER / "standin"


@pytest.fixture
def stand_in() -> Path:
    reason = standin_process.unavailable()
    if reason is not None:
        pytest.skip(reason)
    return STANDIN


def verify(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(REPOSITORY / "kernels" / "verify_910b.sh"), "--standin", f"--out={folder}"]
    variables = {
        **os.environ,
        "ASR_ASCEND_LIBRARY": str(cpu_library._library_path()),
        **environment,
    }
    variables.pop("TASK_QUEUE_ENABLE", None)
    return subprocess.run(
        [*command, *options], env=variables, capture_output=True, text=True, check=False
    )


def assert_passed(result: subprocess.CompletedProcess[str], folder: Path) -> dict:
    assert result.returncode == 0, result.stdout + result.stderr
    written = json.loads((folder / "verify.json").read_text())
    assert written["verdict"] == "passed"
    assert written["on_a_chip"] is False
    assert written["machine"]["device"] == "the stand-in for an NPU"
    assert {row["pass"] for row in written["rows"]} == {True}
    assert written["times"][0]["numbers"] == "right"
    assert written["profile"] == {"skipped": "msprof is not in PATH"}
    return written


def test_verify(stand_in: Path, tmp_path: Path) -> None:
    result = verify(tmp_path, "--quick", "--skip", "precision", "cases", "emulator")
    written = assert_passed(result, tmp_path)
    behaviour = {row["name"]: row["detail"] for row in written["rows"] if row["detail"]}
    assert behaviour["wrong label"] == (
        "`targets` must be in [0, V - 1] and, unless allowed, not contain `blank`, "
        "but do not for sample 1 of the latest call."
    )
    assert behaviour["TASK_QUEUE_ENABLE=2"] == (
        "The loss runs on the stand-in for an NPU: 19.548136, as it must be."
    )
    assert "**Made without a 910B**" in result.stdout


@pytest.mark.slow
def test_verify_with_the_emulators_bits(stand_in: Path, tmp_path: Path) -> None:
    written = assert_passed(verify(tmp_path, "--quick"), tmp_path)
    compared = [row for row in written["rows"] if row["section"] == "emulator"]
    assert len(compared) == 30
    assert {row["detail"] for row in compared} == {"same bits"}


def test_verify_without_a_stand_in(tmp_path: Path) -> None:
    result = verify(tmp_path, NPU_VENV=str(tmp_path / "none"))
    assert result.stderr == (
        f"verify_910b.sh: there is no stand-in for CANN in {tmp_path}/none: "
        "`make venv-npu` makes it.\n"
    )
    assert result.returncode == 3


@pytest.mark.slow
def test_build_runs_the_loss(stand_in: Path, tmp_path: Path) -> None:
    """The made-up toolkit with the stand-in's operators in its package, and real torch_npu."""
    machine = MadeUpMachine(tmp_path / "m")
    shutil.copy(stand_in / "opp" / "op_api" / "lib" / "libcust_opapi.so", machine.cann / "made_up")
    repository = machine.kernels.parent
    shutil.rmtree(repository / "asr_ascend")
    shutil.copytree(
        REPOSITORY / "asr_ascend", repository / "asr_ascend", ignore=shutil.ignore_patterns("lib")
    )
    shutil.copytree(
        REPOSITORY / "kernels" / "torch_binding", machine.kernels / "torch_binding",
        dirs_exist_ok=True,
    )  # fmt: skip
    python = standin_process.FOLDER / "bin" / "python"
    result = machine.build(
        f"--python={python}", LD_LIBRARY_PATH=str(stand_in / "lib"), PYTHONPATH=""
    )
    assert_stops(result, 0)
    assert result.stdout.splitlines()[-5:] == [
        "build.sh: The binding is /m/repository/asr_ascend/lib/libasr_ascend_npu.so; "
        "torch takes its operators.",
        "build.sh: running the loss on the NPU ...",
        "build.sh: The loss runs on the stand-in for an NPU: 19.548136, as it must be.",
        "build.sh: In every shell that uses the operator: "
        "source /m/cann/opp/vendors/asr_ascend/bin/set_env.bash",
        "build.sh: Done. Record of the environment: /m/build/environment.txt",
    ]
