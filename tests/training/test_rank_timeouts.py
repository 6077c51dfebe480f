"""A rank that waits in vain says who it is and what it waited for: two processes over gloo.

The strategy for NPUs has the same code around HCCL's calls, which can't run here.
"""

import os
import socket
import subprocess
import sys

import pytest

from asr_ascend.training.ranks import RanksStrategy

PROGRAM = """
import sys, time
import torch
from lightning.pytorch import Trainer
from asr_ascend.training.ranks import RanksStrategy, RankTimeoutError

trainer = Trainer(accelerator="cpu", devices=2, strategy=RanksStrategy(2), logger=False)
strategy = trainer.strategy
what = sys.argv[1]
try:
    strategy.setup_environment()
    if strategy.global_rank == 1:
        time.sleep(5)
    elif what == "barrier":
        strategy.barrier("saved")
    elif what == "reduce":
        strategy.reduce(torch.ones(1))
    else:
        strategy.broadcast([1], 1)
except RankTimeoutError as error:
    print(error)
"""


def start(rank: int, port: int, what: str) -> subprocess.Popen:
    """A rank as torchrun starts it."""
    environment = {
        **os.environ,
        **{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "GROUP_RANK": "0"},
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "none"},
    }
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", PROGRAM, what]
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("start", "all ranks to start"),
        ("barrier", "the barrier saved"),
        ("reduce", "a sum over the ranks"),
        ("broadcast", "what rank 1 sends"),
    ],
)
def test_a_wait_in_vain_is_one_sentence(what, told):
    port = free_port()
    processes = [start(0, port, what)]
    if what != "start":
        processes.append(start(1, port, what))
    output, errors = processes[0].communicate(timeout=100)
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
    assert output.startswith(
        f"Rank 0 of 2 waited in vain for {told}; `trainer.timeout_seconds` is 2. The messages of "
        "the other ranks say which of them ended, and why. ("
    ), output + errors
    assert output.count("\n") == 1


def test_other_errors_stay_what_they_are():
    with pytest.raises(RuntimeError, match=r"^out of memory$"), RanksStrategy(2).waiting("x"):
        raise RuntimeError("out of memory")
