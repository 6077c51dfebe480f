"""The end of every command: one spelling of its errors, and its exit status."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from asr_ascend.system.starting import end_quiet_start
from asr_ascend.system.streams import OutputError, SafeStream, safe_streams

BAD_INPUT = 2
# A shell gives a program that a signal ended 128 and the signal's number.
INTERRUPTED = 130
BROKEN_PIPE = 141


def run_command(
    task: Callable[[], int],
    bad_input: tuple[type[Exception], ...] = (),
    interrupted: str = "Interrupted.",
    results_on_stdout: bool = False,
) -> int:
    """Runs the work of a command and returns its exit status; errors end in one sentence.

    There is no traceback.

    Args:
        task: the work; returns 0, or 1 where the command's help says what 1 means.
        bad_input: errors whose message is for the user. A file that can't be read or written
            (OSError) is always among them.
        interrupted: what Ctrl-C is answered with; a KeyboardInterrupt's own message goes before it.
        results_on_stdout: standard output is what the command is for. The work ends with it, where
            other commands finish their files.

    Returns:
        The exit status: that of `task`; 2 for bad input, and where standard output is closed or its
        disk full; 130 after Ctrl-C; 141 where the reader of the results is gone.
    """
    end_quiet_start()
    try:
        with safe_streams(results_on_stdout) as stdout, _quiet_writers():
            try:
                status = _status(task, bad_input, interrupted)
            finally:
                stdout.flush()
            return status or _status_of_output(stdout)
    except OutputError as error:
        return _report_lost_results(error)


@contextmanager
def _quiet_writers() -> Iterator[None]:
    """Context in which TensorBoard's thread prints no traceback of a full disk.

    The next value that is logged raises the same error.
    """
    before = threading.excepthook

    def hook(details: Any) -> None:
        if not (
            issubclass(details.exc_type, OSError)
            and type(details.thread).__module__.startswith("tensorboard.")
        ):
            before(details)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


def _status(
    task: Callable[[], int], bad_input: tuple[type[Exception], ...], interrupted: str
) -> int:
    try:
        return task()
    except OutputError:
        raise
    except bad_input as error:
        print_error(str(error))
    except OSError as error:
        print_error(describe_os_error(error))
    except KeyboardInterrupt as error:
        print(str(error) or interrupted, file=sys.stderr)
        return INTERRUPTED
    return BAD_INPUT


def _status_of_output(stdout: SafeStream) -> int:
    """The work is done: a reader that is gone wanted no more, but a full disk lost what it says."""
    if stdout.failure is None or isinstance(stdout.failure, BrokenPipeError):
        return 0
    print_error(f"Standard output takes no more: {stdout.failure.strerror}.")
    return BAD_INPUT


def _report_lost_results(error: OutputError) -> int:
    if isinstance(error.__cause__, BrokenPipeError):
        return BROKEN_PIPE
    with safe_streams():
        print_error(str(error))
    return BAD_INPUT


def print_error(message: str) -> None:
    """Prints a problem on stderr; "Error: " starts each line that isn't indented."""
    for line in message.split("\n"):
        print(line if line.startswith(" ") else f"Error: {line}", file=sys.stderr)


def describe_os_error(error: OSError) -> str:
    """Returns a sentence with the file and what is wrong with it."""
    reason = error.strerror or str(error) or type(error).__name__
    return f"{reason}." if error.filename is None else f"{error.filename}: {reason}."


class CommandParser(argparse.ArgumentParser):
    """Reads a command line; a wrong one is told as any other bad input."""

    def error(self, message: str) -> NoReturn:
        """Ends the program with a sentence and status 2."""
        print_error(f"{message.rstrip('.')}. See {self.prog} --help.")
        self.exit(BAD_INPUT)
