"""Ctrl-C while a command starts, and in its training."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from asr_ascend.checkpoints.checkpoint import read_checkpoint
from asr_ascend.system.starting import _is_command
from tests.support.tiny_runs import TINY, write_corpus

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


# The third step is so long that it can't end between two signals.
SLOW_STEP = """
import sys, time
from pathlib import Path
from asr_ascend.train import cli
from asr_ascend.training.module import TransducerModule
step = TransducerModule.training_step
def slow(self, batch, index):
    loss = step(self, batch, index)
    if self.global_step == 2 and not Path("there").exists():
        Path("there").touch()
        time.sleep({seconds})
    return loss
TransducerModule.training_step = slow
cli(sys.argv[1:])
"""


def interrupt(folder: Path, times: int, seconds: int, *settings: str) -> tuple[int, list[str]]:
    """Sends Ctrl-C to a training and its workers, as a terminal does; its status and lines."""
    write_corpus(folder / "corpus")
    program = SLOW_STEP.format(seconds=seconds)
    typed = (*TINY, "data.train_manifest=corpus/tones.jsonl", "loss.ctc_first=0", *settings)
    process = subprocess.Popen(
        [sys.executable, "-c", program, *typed],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": ROOT},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not (folder / "there").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    for _ in range(times):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.3)
    try:
        _, errors = process.communicate(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    told = errors.decode().splitlines()
    assert "Saving after this step; Ctrl-C again ends at once." in told
    assert "Traceback" not in errors.decode()
    return process.returncode, told


@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_in_training_saves_after_the_step(tmp_path, workers):
    """With workers, the step needs two more batches of them."""
    more = (f"data.num_workers={workers}", "trainer.accumulate_grad_batches=3")
    status, told = interrupt(tmp_path, 1, 2, *more)
    end = "Interrupted after step 3; resume=true goes on from the run's last checkpoint."
    assert (status, told[-1]) == (130, end)
    last = tmp_path / "outputs" / "smoke" / "checkpoints" / "last.ckpt"
    assert read_checkpoint(last)["global_step"] == 3


def test_a_second_ctrl_c_ends_training_at_once(tmp_path):
    status, told = interrupt(tmp_path, 2, 100)
    assert (status, told[-1]) == (130, "Interrupted; what came after the last checkpoint is lost.")
    assert not (tmp_path / "outputs" / "smoke" / "checkpoints" / "last.ckpt").exists()
