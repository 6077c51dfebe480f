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
    """Holds Ctrl-C back until the end of a `with` block; processes started in it ignore it.

    A terminal sends Ctrl-C to all processes. The parent answers it; a worker that is still
    importing would print a traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """Ends this worker when its parent ends, since it would wait for work forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:

        def watch() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()
