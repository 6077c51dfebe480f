"""Worker processes and Ctrl-C; torch is not imported here, so that workers start at once."""

from __future__ import annotations

import signal
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
