"""Finding, composing and checking the configs of the commands; errors in one sentence.

The entry points read `conf/` through Hydra. A command composes its config first, so that a wrong
key or value ends in one line and exit status 2; Hydra's own flags (`--cfg`, `--multirun`)
go to Hydra afterwards.
"""

from __future__ import annotations

import importlib.resources
import itertools
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn, overload

import hydra
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import (
    ConfigCompositionException,
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from asr_ascend.config.arguments import split_arguments
from asr_ascend.config.command_options import EvaluateOptions, TranscribeOptions
from asr_ascend.config.describing import example_of, help_text, nearest_key
from asr_ascend.config.keys import ConfigError, Options, UnknownKeyError
from asr_ascend.config.paths import expand_homes, quote
from asr_ascend.config.rules import read_options
from asr_ascend.config.train_options import TrainOptions
from asr_ascend.system.command import run_command


def conf_dir() -> Path:
    """Returns the folder of the configs: a checkout's `conf/`, else the wheel's.

    Raises:
        ConfigError: neither is there.
    """
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file() and (checkout / "conf" / "train.yaml").is_file():
        return checkout / "conf"
    packaged = Path(str(importlib.resources.files("asr_ascend") / "conf"))
    if (packaged / "train.yaml").is_file():
        return packaged
    raise ConfigError(
        f"The configs are missing: neither {checkout / 'conf'} nor {packaged} holds train.yaml."
    )


def made_by(path: str | Path) -> str:
    """Returns a sentence with the command that makes an experiment's checkpoint; "" for others."""
    folder = Path(path).parent
    for experiment in sorted((conf_dir() / "experiment").glob("*.yaml")):
        name = OmegaConf.select(OmegaConf.load(experiment), "name")
        if folder == Path("outputs", name, "checkpoints"):
            command = f"python -m asr_ascend.train experiment={experiment.stem}"
            return f" It is made by: {command}"
    return ""


@overload
def compose_config(config_name: Literal["train"], overrides: Sequence[str]) -> TrainOptions: ...
@overload
def compose_config(
    config_name: Literal["evaluate"], overrides: Sequence[str]
) -> EvaluateOptions: ...
@overload
def compose_config(
    config_name: Literal["transcribe"], overrides: Sequence[str]
) -> TranscribeOptions: ...
@overload
def compose_config(config_name: str, overrides: Sequence[str]) -> Options: ...
def compose_config(config_name: str, overrides: Sequence[str]) -> Options:
    """Composes and checks one config.

    Args:
        config_name: `train`, `evaluate` or `transcribe`.
        overrides: as on the command line, e.g. `["experiment=demo", "loss.clamp=1.0"]`.

    Returns:
        The options of the command, every reference in them resolved.

    Raises:
        ConfigError: unknown key, unknown option of a group, or a value that breaks its rule.
    """
    try:
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            config = compose(config_name, overrides=list(overrides))
        plain: Any = expand_homes(OmegaConf.to_container(config, resolve=True))
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise ConfigError(_explain(config_name, overrides, error)) from error
    try:
        return read_options(config_name, plain)
    except UnknownKeyError as error:
        raise ConfigError(f"{error}{_advice(config_name, overrides, error.name)}") from error


def run_entry(
    config_name: str,
    task: Callable[[Any], int],
    errors: tuple[type[Exception], ...] = (),
    results_on_stdout: bool = False,
    arguments: Sequence[str] | None = None,
) -> NoReturn:
    """Runs a command: composes its config, checks it, calls `task` and exits.

    Args:
        config_name: the primary config.
        task: takes the options of the command, returns the exit status.
        errors, results_on_stdout: as `bad_input` and `results_on_stdout` of `run_command`.
        arguments: of the command; None: `sys.argv`, which stays as it is, since Lightning starts
            further processes with it.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    ending = partial(
        run_command, bad_input=(ConfigError, *errors), results_on_stdout=results_on_stdout
    )

    def command() -> int:
        flags, overrides = split_arguments(config_name, given)
        if {"--help", "-h"} & set(flags):
            print(_help(config_name, overrides))
            return 0
        if not flags:
            return task(compose_config(config_name, overrides))
        if {"--multirun", "-m"} & set(flags):
            for combination in _expand_sweep(overrides):
                compose_config(config_name, combination)
        return _run_hydra(config_name, task, ending, [*flags, *overrides])

    sys.exit(ending(command))


def _help(config_name: str, overrides: Sequence[str]) -> str:
    """The keys with the values that the overrides give them."""
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        try:
            config = compose(config_name, overrides=list(overrides))
            values: Any = OmegaConf.to_container(config, resolve=True)
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            raise ConfigError(_explain(config_name, overrides, error)) from error
    choices = {}
    for group in sorted(_groups()) if config_name == "train" else ():
        choices[group] = sorted(path.stem for path in (conf_dir() / group).glob("*.yaml"))
    return help_text(config_name, values, choices)


def _run_hydra(
    config_name: str,
    task: Callable[[Any], int],
    ending: Callable[[Callable[[], int]], int],
    arguments: list[str],
) -> int:
    """Hands over to Hydra, which answers its own flags and runs each job of a sweep."""

    def job(config: Any) -> None:
        from hydra.core.hydra_config import HydraConfig
        from hydra.types import RunMode

        hydra_config = HydraConfig.get()
        if hydra_config.mode == RunMode.MULTIRUN and "output_dir" in config:
            config.output_dir = hydra_config.runtime.output_dir
        plain: Any = expand_homes(OmegaConf.to_container(config, resolve=True))

        def checked() -> int:
            return task(read_options(config_name, plain))

        # Hydra would print a traceback of an error, and forget a status.
        if status := ending(checked):
            sys.exit(status)

    typed = sys.argv
    sys.argv = [typed[0], *arguments]  # where Hydra reads them
    try:
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=config_name)(job)()
    finally:
        sys.argv = typed
    return 0


def _expand_sweep(overrides: Sequence[str]) -> Iterable[list[str]]:
    """Every combination of overrides that a basic sweep would run."""
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise ConfigError(_explain("train", overrides, error)) from error
    choices = []
    for override in parsed:
        if override.is_sweep_override() and not override.is_hydra_override():
            key = override.get_key_element()
            choices.append([f"{key}={value}" for value in override.sweep_string_iterator()])
        else:
            choices.append([str(override.input_line)])
    return (list(combination) for combination in itertools.product(*choices))


def _explain(config_name: str, overrides: Sequence[str], error: Exception) -> str:
    """One sentence for an error of Hydra or OmegaConf."""
    text = str(error)
    if isinstance(error, MissingConfigException) and error.options is not None:
        group, _, option = (error.missing_cfg_file or "").rpartition("/")
        known = ", ".join(sorted(error.options))
        return f"`{group}` has no option '{option}'; it has {known}."
    if isinstance(error, OverrideParseException):
        return _not_an_override(str(error.override))
    if text.startswith("Config group override must be"):
        return _not_an_option(overrides)
    unknown = re.search(
        r"[Cc]ould not (?:override|append to|delete from config\.?) '([^']+)'", text
    )
    if isinstance(error, ConfigCompositionException) and unknown:
        return _unknown_key(config_name, overrides, unknown.group(1))
    ambiguous = re.search(r"Ambiguous value for argument '([^']+)'", text)
    if ambiguous:
        return f"'{ambiguous.group(1)}' holds several values, which need --multirun or [...]."
    return " ".join(text.split())


def _not_an_override(argument: str) -> str:
    key, equals, value = argument.partition("=")
    told = f"'{argument}' is not an override of the form key=value."
    if not (equals and value and re.fullmatch(r"[+~]{0,2}[\w./@-]+", key)):
        return told
    # Hydra's double quotes, where they need no escape, inside of the shell's single ones.
    written = f"{key}={quote(value)}" if '"' in value or "\\" in value else f'{key}="{value}"'
    return f"{told} A value with quotes, brackets, braces or = is written {shlex.quote(written)}."


def _groups() -> set[str]:
    return {path.name for path in conf_dir().iterdir() if path.is_dir()}


def _not_an_option(overrides: Sequence[str]) -> str:
    """Names the first override that gives a group, or no key at all, something like a number."""
    for override in overrides:
        key, _, value = override.partition("=")
        if key in _groups():
            options = sorted(path.stem for path in (conf_dir() / key).glob("*.yaml"))
            if value not in options:
                return f"`{key}` must be one of its options, {', '.join(options)}, but is {value}."
    wrong = next(override for override in overrides if override.startswith("="))
    return f"'{wrong}' is not an override of the form key=value."


def _unknown_key(config_name: str, overrides: Sequence[str], key: str) -> str:
    """Names the keys that stand where the unknown one was looked for."""
    key = key.split("@")[0].lstrip("+~")
    groups = _groups()
    if key in groups and config_name == "train":
        return (
            f"`{key}` is a group: choose one of its options, or set its keys as {key}.name=value."
        )
    chosen = [item for item in overrides if item.split("=")[0] in groups]
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        node: Any = OmegaConf.to_container(compose(config_name, overrides=chosen), resolve=False)
    parents = key.split(".")[:-1]
    for depth, part in enumerate(parents):
        if not isinstance(node.get(part), dict):
            parents = parents[:depth]
            break
        node = node[part]
    if key.split(".")[-1] in node:
        return f"`{key}` holds keys of its own: set them one by one, as {key}.name=value."
    owner = f"`{'.'.join(parents)}`" if parents else f"the {config_name} config"
    names = sorted(set(node) | (groups if not parents and config_name == "train" else set()))
    advice = _advice(config_name, overrides, key)
    return f"Unknown key `{key}`; {owner} has {', '.join(map(str, names))}.{advice}"


def _advice(config_name: str, overrides: Sequence[str], key: str) -> str:
    """The key that was most likely meant, as it would be typed; "" where none is near."""
    near = nearest_key(config_name, key)
    if near is None or near.name == key:  # a key of another encoder
        return ""
    typed = (override.lstrip("+~").partition("=") for override in overrides)
    value = next((value for name, _, value in typed if name == key), None)
    return f" Did you mean {example_of(near, value)}?"
