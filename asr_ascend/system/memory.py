"""How much memory is free."""

from __future__ import annotations

from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int | None:
    """Returns the bytes that this process can still take without swapping.

    Returns None where Linux doesn't say.

    Source: MemAvailable of proc(5), and memory.max less memory.current of a container (Linux'
    Documentation/admin-guide/cgroup-v2.rst).
    """
    found = [free for free in (_of_machine(), _of_container()) if free is not None]
    return min(found, default=None)


def _of_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").split("\n")
    except OSError:
        return None
    values = dict(line.split(":", 1) for line in lines if ":" in line)
    free = values.get("MemAvailable")
    return 1024 * int(free.split()[0]) if free else None


def _of_container() -> int | None:
    try:
        limit, used = (
            (_CGROUP / name).read_text(encoding="ascii").strip()
            for name in ("memory.max", "memory.current")
        )
        return max(0, int(limit) - int(used))
    except (OSError, ValueError):  # no container, or "max"
        return None
