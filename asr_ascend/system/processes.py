"""Worker processes: Ctrl-C, and the end of their parent.

torch is not imported here, so that workers start at once.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


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


def end_with_parent() -> None:
    """For a worker: one whose parent was killed would wait for work forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:

        def watch() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()
