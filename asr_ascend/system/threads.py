"""One thread for the data path."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def single_thread() -> Iterator[None]:
    """Runs torch's operations only on the calling thread within a `with` block.

    A loader's worker does the same, so features have the same bits with any number of workers. It
    also costs less: the data path has many operations that are too small to share.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
