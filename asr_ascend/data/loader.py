"""The loader that training iterates: it knows how many batches were consumed."""

from __future__ import annotations

import errno
import multiprocessing
import pickle
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, overload

import torch
from torch.utils.data import DataLoader, Dataset

from asr_ascend.data.dataset import Batch, SpeechDataset
from asr_ascend.data.sampler import LatticeCostBatchSampler
from asr_ascend.system.processes import interrupts_held

SHARED_MEMORY = "/dev/shm"


class BatchLoader:
    """Batches of an epoch, resumable after any batch.

    Lightning finds `state_dict` and `load_state_dict` here and saves them with its own progress,
    and `sampler.set_epoch`, which it calls before each epoch. It makes the first iterator before
    that call, so the epoch and the position are read when the first batch is asked for.

    Args:
        dataset: makes batches from indices.
        sampler: which indices.
        num_workers: processes that prepare batches ahead. 0: none; where torch runs on one thread,
            a thread of this process prepares the next batch while training is busy with the last.
            No effect on the batches.
    """

    def __init__(
        self, dataset: SpeechDataset, sampler: LatticeCostBatchSampler, num_workers: int = 0
    ) -> None:
        if num_workers < 0:
            raise ValueError(f"`num_workers` must not be negative, but is {num_workers}.")
        self.dataset = dataset
        self.sampler = sampler
        self.num_workers = num_workers
        self._resumed = False

    def __len__(self) -> int:
        """Returns the number of batches of a whole epoch for this rank."""
        return len(self.sampler)

    def __iter__(self) -> Iterator[Batch]:
        # As long as nothing is taken from the iterator, none of this runs.
        if not self._resumed:
            self.sampler.consumed = 0
        self._resumed = False
        epoch = self.sampler.epoch
        work = [(epoch, indices) for indices in self.sampler]
        for batch in self._prepared(work):
            self.sampler.consumed += 1
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the next batch that training will take."""
        return self.sampler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iterator start at `state`'s position.

        Setting another epoch before that makes it start there.
        """
        self.sampler.load_state_dict(state)
        self._resumed = True

    def _prepared(self, work: list[tuple[int, list[int]]]) -> Iterator[Batch]:
        if self.num_workers == 0 and torch.get_num_threads() == 1:
            return _one_ahead(self.dataset, work)
        if self.num_workers == 0:
            # Features are made on one thread, and torch's number of threads is the process's: a
            # thread here would take training's other threads away while it is busy.
            return (self.dataset[item] for item in work)
        return self._prepared_by_workers(work)

    def _prepared_by_workers(self, work: list[tuple[int, list[int]]]) -> Iterator[Batch]:
        loader: DataLoader[bytes] = DataLoader(
            _WorkItems(self.dataset, work),
            batch_size=None,
            shuffle=False,
            num_workers=self.num_workers,
            collate_fn=_unchanged,
            # Without its own generator, DataLoader would draw a seed from torch's global one, and
            # a run resumed within an epoch would draw other dropout masks than an unbroken one.
            generator=torch.Generator().manual_seed(0),
        )
        # Ctrl-C ends training after its step, for which the workers must go on.
        with worker_problems(self.num_workers), interrupts_held():
            _try_semaphores(self.num_workers)
            batches = iter(loader)
        for pickled in batches:
            batch: Batch = pickle.loads(pickled)
            yield batch


class WorkerError(Exception):
    """A worker process can't begin or ended; the message is for the user."""


@contextmanager
def worker_problems(num_workers: int) -> Iterator[None]:
    """Turns the end of a data worker into a `WorkerError` within a `with` block.

    torch raises that error from a signal handler, so it can interrupt any work of the main process.

    Args:
        num_workers: as of `BatchLoader`.

    Raises:
        WorkerError: names the keys that help.
    """
    try:
        yield
    except (RuntimeError, OSError) as error:
        full = isinstance(error, OSError) and error.errno == errno.ENOSPC and not error.filename
        if not full and not str(error).startswith("DataLoader worker"):
            raise
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise WorkerError(
            f"The data workers ended: {' '.join(str(reason).split()).rstrip('.')}. "
            f"{_shared_memory()}`data.num_workers` is {num_workers}: 0 needs no worker and no "
            "shared memory, and batches of a lower data.max_batch_seconds take less memory."
        ) from error


def _try_semaphores(num_workers: int) -> None:
    """Makes the queues that DataLoader will make, which would fail there with a traceback."""
    queues: list[Any] = [multiprocessing.Queue() for _ in range(num_workers + 1)]
    for queue in queues:
        queue.close()


def _shared_memory() -> str:
    """A sentence about the folder in which processes share memory; "" where there is none."""
    try:
        usage = shutil.disk_usage(SHARED_MEMORY)
    except OSError:
        return ""
    return (
        f"{SHARED_MEMORY} has {usage.free / 2**20:.1f} MiB free of {usage.total / 2**20:.1f} MiB. "
    )


class FixedBatches(Sequence[Batch]):
    """Batches as they are in epoch 0, whatever epoch training is in: noise that never changes.

    Args:
        dataset: makes batches from indices.
        sampler: which indices.
    """

    def __init__(self, dataset: SpeechDataset, sampler: LatticeCostBatchSampler) -> None:
        self._speech = dataset
        self._indices = sampler.rank_batches(0)

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, position: int) -> Batch: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[Batch]: ...
    def __getitem__(self, position: int | slice) -> Batch | Sequence[Batch]:
        if isinstance(position, slice):
            return [self._speech[(0, indices)] for indices in self._indices[position]]
        return self._speech[(0, self._indices[position])]


class _WorkItems(Dataset[bytes]):
    """Pickled batches.

    A tensor that a worker hands over would lie in shared memory, of which a container has little
    (Docker: 64 MiB). Where that is full, the worker's thread fails alone and training waits for
    ever. Bytes go through a pipe.
    """

    def __init__(self, dataset: SpeechDataset, work: list[tuple[int, list[int]]]) -> None:
        self.dataset = dataset
        self.work = work

    def __len__(self) -> int:
        return len(self.work)

    def __getitem__(self, position: int) -> bytes:
        return pickle.dumps(self.dataset[self.work[position]], pickle.HIGHEST_PROTOCOL)


def _one_ahead(dataset: SpeechDataset, work: list[tuple[int, list[int]]]) -> Iterator[Batch]:
    """Yields batches in order; a thread makes the next one while the caller uses the last."""
    with ThreadPoolExecutor(1, "next-batch") as thread:
        waiting: Future[Batch] | None = None
        for item in work:
            following = thread.submit(dataset.__getitem__, item)
            if waiting is not None:
                yield waiting.result()
            waiting = following
        if waiting is not None:
            yield waiting.result()


def _unchanged(batch: Any) -> Any:
    return batch
