"""Standard output and error that no character and no lost reader can break."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast


class OutputError(Exception):
    """The results go to standard output, and it takes no more."""


@contextmanager
def safe_streams(results_on_stdout: bool = False) -> Iterator[SafeStream]:
    """Makes printing safe within a `with` block: no print raises or loses the work before it.

    Characters that an encoding lacks are escaped, as in ``\\u4e2d``. Where a stream is closed, its
    disk full or its reader gone, the rest of its text is dropped.

    Args:
        results_on_stdout: standard output is what the command is for: its end raises OutputError.

    Returns:
        Standard output. Its `failure` is the error that ended it; None while there is none.

    Raises:
        OutputError: `results_on_stdout`, and standard output is closed.
    """
    before = sys.stdout, sys.stderr
    _occupy_closed_descriptors()
    with contextlib.ExitStack() as stack:
        null = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123
        if results_on_stdout and not _open(sys.stdout):
            raise OutputError("Standard output must be open, as the results go there.")
        out = SafeStream(sys.stdout if _open(sys.stdout) else null, results_on_stdout)
        sys.stdout = cast(TextIO, out)
        sys.stderr = cast(TextIO, SafeStream(sys.stderr if _open(sys.stderr) else null))
        try:
            yield out
        finally:
            sys.stdout, sys.stderr = before


class SafeStream:
    """A text stream whose `write` and `flush` raise nothing but OutputError.

    Args:
        stream: to write to.
        holds_results: whether its end raises OutputError; else its text is thrown away.
    """

    def __init__(self, stream: TextIO, holds_results: bool = False) -> None:
        self.failure: OSError | None = None
        self._stream = stream
        self._holds_results = holds_results
        if getattr(stream, "errors", None) in ("strict", "surrogateescape"):
            with contextlib.suppress(AttributeError, ValueError, OSError):
                cast(Any, stream).reconfigure(errors="backslashreplace")

    def write(self, text: str) -> int:
        """Writes `text` and returns its length, as any text stream does."""
        if self.failure is None:
            try:
                return self._stream.write(text)
            except OSError as error:
                self._fail(error)
        return len(text)

    def flush(self) -> None:
        """Passes on what was written."""
        if self.failure is None:
            try:
                self._stream.flush()
            except OSError as error:
                self._fail(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _fail(self, error: OSError) -> None:
        self.failure = error
        # What is left in the buffer would fail again when the interpreter ends.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)
        if self._holds_results:
            raise OutputError(f"Standard output takes no more: {error.strerror}.") from error


def escaped(text: str) -> str:
    """Escapes all characters of `text` that UTF-8 can't hold.

    Names of files that aren't UTF-8 have such characters in Python (PEP 383). ``\\udcff`` in a JSON
    string gives a reader the same name again.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def is_utf8(text: str) -> bool:
    """Returns whether UTF-8 has all characters of a text, which may be the name of a file."""
    return escaped(text) == text


def json_text(record: Any, encoding: str | None) -> str:
    """Returns JSON on one line, all in ASCII where `encoding` lacks one of its characters.

    A stream's own escapes would not do: ``\\xe9`` is not JSON.
    """
    text = json.dumps(record, ensure_ascii=False)
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(record)
    return text


def _open(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed


def _occupy_closed_descriptors() -> None:
    """Opens the null device as 0, 1 and 2 where these are closed.

    The next file to be opened would get such a number, and what a library prints would go into it.
    """
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= 2:
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)
