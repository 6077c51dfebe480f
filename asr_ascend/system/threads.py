"""One thread for the data path."""

from __future__ import annotations

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
