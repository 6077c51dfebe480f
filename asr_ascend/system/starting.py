"""Ctrl-C while a command starts, before `run_command` answers it: no traceback of an import."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import PurePath
from typing import Any

_SCRIPT = "asr-ascend"


def quiet_start() -> None:
    """Answers Ctrl-C with a word and status 130, if this process is one of the commands.

    Loading torch takes seconds. A program that imports the package for itself is left as it is.
    """
    ours = _is_command(sys.argv[:1], sys.orig_argv)
    main = threading.current_thread() is threading.main_thread()
    if ours and main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def end_quiet_start() -> None:
    """Gives Ctrl-C its usual meaning, a KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_command(argv: list[str], typed: list[str]) -> bool:
    """Whether Python was started as ``python -m asr_ascend...`` or by the installed script.

    Python's documentation of `sys.argv`: while ``-m`` looks for its module, argv[0] is "-m".
    """
    if argv == ["-m"]:
        module = typed[typed.index("-m") + 1] if "-m" in typed[:-1] else ""
        return module.split(".")[0] == "asr_ascend"
    return bool(argv) and PurePath(argv[0]).stem == _SCRIPT


def _end(*_: Any) -> None:
    os.write(2, b"Interrupted.\n")
    os._exit(128 + signal.SIGINT)
