"""What people type after a command, as Hydra takes it: files without a key, flags, file names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from asr_ascend.config.describing import example_of, nearest_key
from asr_ascend.config.keys import ConfigError
from asr_ascend.config.paths import quote, quote_paths

# What a file without a key means, by its ending; the last is for any other.
FILES = {
    "evaluate": {".ckpt": "checkpoint", ".jsonl": "manifest"},
    "transcribe": {".ckpt": "checkpoint", "": "wav"},
}
# Hydra's flags, and those of them that have a value.
FLAGS = (
    *("--help", "-h", "--hydra-help", "--version", "--resolve", "--run", "-r", "--multirun", "-m"),
    *("--shell-completion", "-sc", "--info", "-i"),
)
FLAGS_WITH_VALUE = (
    *("--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn"),
    *("--config-dir", "-cd", "--experimental-rerun"),
)


def split_arguments(command: str, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits a command line into Hydra's flags with their values, and the overrides.

    Args:
        command: `train`, `evaluate` or `transcribe`.
        arguments: as typed; a file without a key gets the key that its ending says.

    Raises:
        ConfigError: a flag stands where a key belongs, or a word is neither key nor file.
    """
    flags: list[str] = []
    overrides: list[str] = []
    places: dict[str, list[str]] = {}
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        flag, equals, value = argument.partition("=")
        if flag in FLAGS_WITH_VALUE:
            flags += [argument] if equals or not waiting else [argument, waiting.pop(0)]
        elif argument in FLAGS:
            flags.append(argument)
        elif argument.startswith("-") and argument != "-":
            given = value if equals else waiting[0] if waiting and "=" not in waiting[0] else None
            raise ConfigError(_about_a_flag(command, flag, given))
        elif _is_override(argument):
            overrides += quote_paths([argument])
        else:
            places.setdefault(_key_of_a_file(command, argument), []).append(argument)
    for key, files in places.items():
        overrides.append(_given(command, key, files, overrides))
    return flags, overrides


def _is_override(argument: str) -> bool:
    """Whether it has the form of Hydra's grammar: key=value, ++key=value or ~key."""
    looks = re.match(r"(~[\w.@/]+$|[+~]{0,2}[\w.@/]*=)", argument)
    return bool(looks) and not ("/" in argument and Path(argument).exists())


def _key_of_a_file(command: str, argument: str) -> str:
    endings = FILES.get(command, {})
    key = endings.get(Path(argument).suffix.lower(), endings.get(""))
    if key is not None:
        return key
    name, _, value = argument.partition("=")
    near = nearest_key(command, name)
    advice = f" Did you mean {example_of(near, value)}?" if near else ""
    raise ConfigError(f"'{argument}' is not an override of the form key=value.{advice}")


def _given(command: str, key: str, files: list[str], overrides: Sequence[str]) -> str:
    """The override for files without a key."""
    if any(override.partition("=")[0] == key for override in overrides):
        raise ConfigError(f"`{key}` must be given once, but is also given as '{files[0]}'.")
    if len(files) == 1:
        return f"{key}={quote(files[0])}"
    if key != "manifest":
        advice = f"; baseline={files[1]} compares two" if command == "evaluate" else ""
        raise ConfigError(f"`{key}` must be one path, but is {', '.join(files)}{advice}.")
    return f"{key}=[{','.join(map(quote, files))}]"


def _about_a_flag(command: str, flag: str, value: str | None) -> str:
    near = nearest_key(command, flag)
    if near is None:
        return f"There is no flag {flag}: keys are written as key=value; --help lists them."
    example = example_of(near, value)
    return f"There is no flag {flag}: keys are written as key=value. Write {example}"
