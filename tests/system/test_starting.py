"""Ctrl-C while a command starts."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from asr_ascend.system.starting import _is_command

ROOT = str(Path(__file__).resolve().parents[2])
# An import of torch that waits where the real one takes long.
SLOW_TORCH = """
import pathlib, time
pathlib.Path("begun").touch()
time.sleep(60)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("-m", "asr_ascend.train", "experiment=demo"),
        ("-m", "asr_ascend.data.noise", "--help"),
        ("-m", "asr_ascend", "--version"),
        (str(Path(sys.executable).with_name("asr-ascend")), "transcribe", "a.wav"),
    ],
    ids=lambda arguments: " ".join(map(str, arguments[-2:])),
)
def test_ctrl_c_while_torch_loads_is_a_word(tmp_path, arguments):
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "torch.py").write_text(SLOW_TORCH, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": f"{tmp_path / 'slow'}{os.pathsep}{ROOT}"}
    typed = [sys.executable, *arguments]
    process = subprocess.Popen(typed, cwd=tmp_path, env=env, stderr=subprocess.PIPE)
    while not (tmp_path / "begun").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, b"Interrupted.\n")


@pytest.mark.parametrize(
    ("argv", "typed", "ours"),
    [
        (["-m"], ["python", "-m", "asr_ascend.train", "seed=1"], True),
        (["-m"], ["python", "-X", "dev", "-m", "asr_ascend"], True),
        (["-m"], ["python", "-m", "pytest"], False),
        (["/usr/bin/asr-ascend"], ["python", "/usr/bin/asr-ascend"], True),
        (["mine.py"], ["python", "mine.py"], False),
        ([""], ["python"], False),
        (["-c"], ["python", "-c", "import asr_ascend"], False),
    ],
)
def test_only_the_commands_answer_for_themselves(argv, typed, ours):
    assert _is_command(argv, typed) is ours


def test_an_import_leaves_the_handler_of_another_program():
    program = (
        "import signal; import asr_ascend; "
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    )
    env = {**os.environ, "PYTHONPATH": ROOT}
    subprocess.run([sys.executable, "-c", program], env=env, check=True, timeout=60)
