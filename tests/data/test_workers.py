"""Data workers that can't begin, or end: a sentence, and nothing that waits for ever."""

import errno
import multiprocessing
import os
import signal
from collections import namedtuple

import pytest
import torch

from asr_ascend.data import loader
from asr_ascend.data.dataset import SpeechDataset
from tests.support.tiny_runs import TINY, run, write_corpus

SETTINGS = (
    *TINY,
    "data.train_manifest=corpus/tones.jsonl",
    "data.num_workers=2",
    "trainer.max_steps=6",
    "trainer.val_every_steps=100",
    "trainer.progress_bar=false",
)
ADVICE = (
    "`data.num_workers` is 2: 0 needs no worker and no shared memory, and batches of a lower "
    "data.max_batch_seconds take less memory."
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write_corpus(tmp_path / "corpus")
    usage = namedtuple("usage", "total used free")(64 * 2**20, 63 * 2**20, 2**20)
    monkeypatch.setattr(loader.shutil, "disk_usage", lambda path: usage)
    return tmp_path


def test_batches_need_no_shared_memory(folder, monkeypatch):
    """A worker whose tensors went through shared memory would fail here."""

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch.UntypedStorage, "_share_filename_cpu_", full)
    monkeypatch.setattr(torch.UntypedStorage, "_share_fd_cpu_", full)
    done = run("train", *SETTINGS, folder=folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGBUS, "Bus error"), (signal.SIGKILL, "Killed")]
)
def test_a_worker_that_dies_ends_the_training_in_a_sentence(folder, monkeypatch, number, name):
    make, main = SpeechDataset.__getitem__, os.getpid()

    def dying(dataset, work):
        if os.getpid() != main and work[0] == 1:  # in the second epoch
            os.kill(os.getpid(), number)
        return make(dataset, work)

    monkeypatch.setattr(SpeechDataset, "__getitem__", dying)
    done = run("train", *SETTINGS, folder=folder)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("Error: The data workers ended: DataLoader worker (pid")
    assert name in last or "exited unexpectedly" in last
    assert last.endswith(f"/dev/shm has 1.0 MiB free of 64.0 MiB. {ADVICE}")
    assert "Traceback" not in done.stderr


def test_no_room_for_semaphores_is_a_sentence(folder, monkeypatch):
    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(multiprocessing, "Queue", full)
    done = run("train", *SETTINGS, folder=folder)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        "Error: The data workers ended: No space left on device. /dev/shm has 1.0 MiB free of "
        f"64.0 MiB. {ADVICE}",
    )


def test_other_errors_stay_what_they_are():
    with pytest.raises(RuntimeError, match=r"^mine$"), loader.worker_problems(2):
        raise RuntimeError("mine")
    full = OSError(errno.ENOSPC, "No space left on device", "outputs/a.ckpt")
    with pytest.raises(OSError, match=r"outputs/a\.ckpt"), loader.worker_problems(2):
        raise full
