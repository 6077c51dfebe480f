"""How many threads training runs on, and what it says when they wait for each other."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

# Of a model with this many parameters or more, torch's own choice. The demo's 1.7 million run 10%
# to 28% faster on two idle cores than on one, and seven times slower where a core is taken.
_PARAMETERS_WORTH_THREADS = 5_000_000
# A slower step than this multiple of the first ones is looked into; the same work on all threads
# and on one must then differ by the second number.
_SLOWER_STEPS = 3.0
_SLOWER_WORK = 1.5
_WINDOW = 20  # steps, of which the median counts: their batches and chunks differ
_FIRST_STEPS_LEFT_OUT = 5  # they allocate memory, load libraries


def set_threads(num_threads: int | None, accelerator: str, model: nn.Module) -> None:
    """Sets torch's threads for training on a CPU.

    Args:
        num_threads: `trainer.num_threads`. None: one for a model of fewer than 5 million
            parameters, and torch's own choice for a larger one or another accelerator.
        accelerator: `trainer.accelerator`.
        model: what is trained.
    """
    size = sum(parameter.numel() for parameter in model.parameters())
    if num_threads is None and accelerator == "cpu" and size < _PARAMETERS_WORTH_THREADS:
        num_threads = 1
    if num_threads is not None:
        torch.set_num_threads(num_threads)


@contextlib.contextmanager
def denormals_are_zero() -> Iterator[None]:
    """Makes a CPU treat numbers below 1e-38 as 0 within a `with` block.

    Sums take far longer with such numbers. Gradients of what is nearly certain, and AdamW's
    averages of them, are full of them. A training step takes 7% less of a core's time without
    (demo, AVX-512, December 2026).
    """
    torch.set_flush_denormal(True)  # False where the CPU can't: nothing is lost
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def time_of_work(threads: int, dim: int) -> tuple[float, float]:
    """Measures the seconds that a feed-forward module takes on `threads` threads, and on one.

    Both are medians of alternating runs, so that other load on the machine affects both.

    Args:
        threads: at least 2.
        dim: width of the model's encoder.
    """
    x, wide, narrow = torch.ones(512, dim), torch.ones(dim, 4 * dim), torch.ones(4 * dim, dim)
    seconds: dict[int, list[float]] = {threads: [], 1: []}
    try:
        for _ in range(9):
            for count, taken in seconds.items():
                torch.set_num_threads(count)
                started = time.perf_counter()
                nn.functional.silu(x @ wide) @ narrow
                taken.append(time.perf_counter() - started)
    finally:
        torch.set_num_threads(threads)
    return statistics.median(seconds[threads]), statistics.median(seconds[1])


class ThreadWatch(Callback):
    """Says once when training's threads wait for a core that another process uses.

    Threads share each operation, so that all of them wait for the one whose core is busy. This is
    measured before the first step, and again where steps take three times as long as the first
    ones of this run did. Nothing is said of one thread: nothing could be set.

    Args:
        dim: width of the model's encoder.
        tell: gets the sentences.
        clock: seconds.
        work: gives the seconds that the same work takes on all threads and on one.
    """

    def __init__(
        self,
        dim: int,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.perf_counter,
        work: Callable[[int, int], tuple[float, float]] = time_of_work,
    ) -> None:
        self.dim = dim
        self.tell = tell
        self.clock = clock
        self.work = work
        self.watching = False
        self._started = 0.0
        self._first: float | None = None
        self._seconds: list[float] = []
        self._left_out = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compares the threads once, if training runs on several CPU threads."""
        self.watching = torch.get_num_threads() > 1 and pl_module.device.type == "cpu"
        self._first, self._seconds, self._left_out = None, [], 0
        if self.watching:
            self._compare("")

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Starts the clock of a step."""
        self._started = self.clock()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Compares the threads again where steps have become slower."""
        if not self.watching:
            return
        if self._left_out < _FIRST_STEPS_LEFT_OUT:
            self._left_out += 1
            return
        self._seconds.append(self.clock() - self._started)
        if len(self._seconds) < _WINDOW:
            return
        median = statistics.median(self._seconds)
        self._seconds = []
        if self._first is None:
            self._first = median
        elif median > _SLOWER_STEPS * self._first:
            self._compare(
                f"Steps now take {median:.2f} s; this run's first took {self._first:.2f} s. "
            )

    def _compare(self, steps: str) -> None:
        """Measures the same work on all threads and on one, and tells if one is faster."""
        threads = torch.get_num_threads()
        together, alone = self.work(threads, self.dim)
        if together > _SLOWER_WORK * alone:
            self.watching = False
            self.tell(
                f"{steps}The same work takes {1000 * together:.1f} ms on training's {threads} "
                f"threads and {1000 * alone:.1f} ms on one: another process keeps a core busy, and "
                "every thread waits for it. trainer.num_threads=1 makes training faster then."
            )
