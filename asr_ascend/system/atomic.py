"""Files that appear whole."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from asr_ascend.system.streams import escaped


@contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Yields an empty file to write; when the context ends, that file is `path`.

    Readers of `path` see the old file or the whole new one. Where the context raises, `path` stays
    as it was and nothing is left. A device or a pipe is not replaced, but written to.

    Raises:
        OSError: it can't be written; the error names `path`.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        yield path
        return
    temporary: Path | None = None
    try:
        # A long name leaves no room for what makes the temporary one unique.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:50]}.")
        temporary = Path(name)
        os.close(handle)
        yield temporary
        temporary.chmod(0o644)  # mkstemp makes files that only their owner can read
        temporary.replace(path)
    except BaseException as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and _is_about(error, path, temporary):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


@contextmanager
def naming_errors(path: Path) -> Iterator[None]:
    """Names `path` in errors of the system that name no file, within a `with` block."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_text(path: Path, text: str) -> None:
    """Writes a UTF-8 file in one step; characters that UTF-8 can't hold are escaped."""
    with replaced_file(path) as temporary:
        temporary.write_bytes(escaped(text).encode())


def write_json(path: Path, contents: Any) -> None:
    """Writes a JSON file in one step."""
    write_text(path, json.dumps(contents, ensure_ascii=False, indent=1) + "\n")


def write_json_lines(path: Path, records: Iterable[Any]) -> None:
    """Writes a file in one step, with a JSON record on each line."""
    with replaced_file(path) as temporary, temporary.open("wb") as stream:
        for record in records:
            stream.write(json_line(record))


def json_line(record: Any) -> bytes:
    """Returns a record as a line of a JSONL file."""
    return escaped(json.dumps(record, ensure_ascii=False) + "\n").encode()


def _is_about(error: OSError, path: Path, temporary: Path | None) -> bool:
    """Whether an error is of writing `path`: it names no file, or the unknown temporary one."""
    if error.errno is None:
        return False
    return error.filename is None or temporary is None or str(error.filename) == str(temporary)
