"""Keys that hold names of files, and such names on a command line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from asr_ascend.system.paths import user_path

_KEYS = {"baseline", "checkpoint", "init_from", "manifest", "teacher", "wav"}
_SUFFIXES = ("_manifest", "_dir", "_path", "_banks")
_LISTS = ("manifest", "_banks")
_QUOTES = ("'", '"')


def holds_paths(key: str) -> bool:
    """Returns whether the values of a key are names of files."""
    name = key.rsplit(".", 1)[-1]
    return name in _KEYS or name.endswith(_SUFFIXES)


def quote_paths(arguments: Iterable[str]) -> list[str]:
    """Quotes names of files for Hydra, whose grammar gives ``=``, ``,``, ``(`` and spaces a
    meaning.

    A name is quoted as a whole. In a list (``manifest=[a.jsonl,b.jsonl]``) each name is quoted.
    null, a quoted value and a reference (``${...}``) stay, unless a file of exactly that name
    exists.
    """
    return [_quoted_argument(argument) for argument in arguments]


def quote(text: str) -> str:
    """Quotes `text` by Hydra's grammar, which doubles backslashes only before a quote."""
    text = re.sub(r"(\\*)'", r"\1\1\\'", text)
    trailing = len(text) - len(text.rstrip("\\"))
    return "'" + text + "\\" * trailing + "'"


def expand_homes(config: Any) -> Any:
    """Replaces ~ and ~user in the paths of a plain config by home folders.

    Raises:
        FileNotFoundError: there is no such user, or no home folder is known.
    """
    if not isinstance(config, dict):
        return config
    return {
        key: _expand(value) if holds_paths(str(key)) else expand_homes(value)
        for key, value in config.items()
    }


def _expand(value: Any) -> Any:
    if isinstance(value, list):
        return [_expand(item) for item in value]
    return str(user_path(value)) if isinstance(value, str) and value.startswith("~") else value


def _quoted_argument(argument: str) -> str:
    key, equals, value = argument.partition("=")
    if not (equals and value and holds_paths(key)):
        return argument
    is_file = Path(value).exists()
    if not is_file and (value == "null" or "${" in value or _is_quoted(value)):
        return argument
    if not is_file and key.endswith(_LISTS) and value[0] == "[" and value[-1] == "]":
        return f"{key}={_quoted_list(value)}"
    return f"{key}={quote(value)}"


def _is_quoted(value: str) -> bool:
    """Whether a value is one string in quotes, with nothing behind its end."""
    for mark in _QUOTES:
        if re.fullmatch(rf"{mark}(?:[^{mark}\\]|\\.)*{mark}", value, re.DOTALL):
            return True
    return False


def _quoted_list(value: str) -> str:
    inner = value[1:-1]
    if any(mark in inner for mark in (*_QUOTES, "[", "]")) or not inner.strip():
        return value  # the user quotes
    return "[" + ",".join(quote(name.strip()) for name in inner.split(",")) + "]"
