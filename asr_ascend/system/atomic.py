"""Files that appear whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Context whose value is an empty file to write; after it, that file is `path`.

    Readers of `path` see the old file or the whole new one. Where the context raises, `path` stays
    as it was and nothing is left.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)  # mkstemp makes files that only their owner can read
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
