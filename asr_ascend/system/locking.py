"""A folder that only one process works in."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: nothing is locked
    fcntl = None  # type: ignore[assignment]


class LockedError(Exception):
    """Another process holds the lock."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a lock file within a `with` block, and removes it at the end.

    The system releases the lock of a process that died at once. A child process doesn't inherit it,
    so an orphaned worker can't hold it either (POSIX record locks).

    Args:
        path: of the lock file, in a folder that exists.

    Raises:
        LockedError: another process holds it.
        OSError: the file can't be written.
    """
    descriptor = _hold(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _hold(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        if fcntl is None:
            return descriptor
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            os.close(descriptor)
            raise LockedError(str(path)) from error
        except OSError:  # a file system without locks
            return descriptor
        # Its last holder may have taken the file away after it was opened here.
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)
