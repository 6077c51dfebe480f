"""Threads and processes of the data path."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def single_thread() -> Iterator[None]:
    """Context in which torch's operations run on the calling thread alone.

    As in a loader's worker, so features have the same bits with any number of workers. It costs
    less as well: the data path is many operations too small to share.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Context in which Ctrl-C waits for its end, and whose new processes never hear of it.

    A terminal sends Ctrl-C to all processes. The parent answers it; a worker that is still
    importing would print where it was.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
