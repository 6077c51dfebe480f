"""Keys of a config: each is a field of a frozen dataclass, with its default, rule and description.

A group of keys is a subclass of :class:`Options`. Its fields are made by :func:`key`, or by
:func:`group` for a group within it; the checks, `--help` and docs/configuration.md come from them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar, TypeVar

from asr_ascend.config.values import Rule

# Characters of a value in a message.
_SHOWN = 300

AnyOptions = TypeVar("AnyOptions", bound="Options")


class ConfigError(ValueError):
    """A config that can't be run; the message is one sentence for the user."""


class UnknownKeyError(ConfigError):
    """A key that its group doesn't have."""

    def __init__(self, name: str, owner: str, known: Iterable[str]) -> None:
        super().__init__(f"Unknown key `{name}`; {owner} has {', '.join(known)}.")
        self.name = name


@dataclass(frozen=True)
class Key:
    """What is known of one key.

    Args:
        name: with the names of its groups, e.g. `data.snr_db`.
        rule: what its value must meet.
        about: what it means.
        default: as plain Python; `dataclasses.MISSING` where it must be given.
    """

    name: str
    rule: Rule
    about: str
    default: Any


def key(default: Any, rule: Rule, about: str, omitted: bool = False) -> Any:
    """Makes a dataclass field for a key.

    Args:
        default: a tuple for a list; `dataclasses.MISSING` where the key must be given.
        rule: what its value must meet.
        about: what it means, in one or two sentences.
        omitted: whether a config may lack it, which means the default; `plain` then leaves the
            default out.
    """
    metadata = {"rule": rule, "about": about, "omitted": omitted}
    return dataclasses.field(default=default, metadata=metadata)


def group(kind: type[Options], about: str, default: Any = MISSING, optional: bool = False) -> Any:
    """Makes a dataclass field for a group of keys.

    Args:
        kind: its dataclass.
        about: what its keys are for.
        default: `dataclasses.MISSING` for the defaults of all its keys.
        optional: whether the group may be null.
    """
    metadata = {"group": kind, "about": about, "optional": optional}
    if default is MISSING:
        return dataclasses.field(default_factory=kind, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Options:
    """A group of keys; its values are checked as it is made.

    Raises:
        ConfigError: a value that breaks its rule.
    """

    prefix: ClassVar[str] = ""
    partial: ClassVar[bool] = False  # keys that a config doesn't mention have their defaults

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, list):
                object.__setattr__(self, field.name, tuple(value))
            self._check_value(field, value)

    @classmethod
    def read(cls: type[AnyOptions], values: Mapping[str, Any], saved: bool = False) -> AnyOptions:
        """Reads a config, or a group of one.

        Args:
            values: plain Python, e.g. the `config` of a checkpoint.
            saved: whether the config may be another version's: missing keys get defaults, and
                unknown ones are left out.

        Raises:
            ConfigError: a key is missing or unknown, or a value breaks its rule.
        """
        cls._check_is_group(values)
        known = {field.name: field for field in dataclasses.fields(cls)}
        for name, field in known.items():
            needed = not (saved or cls.partial or field.metadata.get("omitted"))
            if needed and values.get(name, "???") == "???":  # OmegaConf's mark of a mandatory key
                raise ConfigError(f"`{cls.prefix}{name}` must be given, but is missing.")
        for name, value in values.items():
            if name in known:
                cls._check_value(known[name], value)  # before those of the groups in it
            elif not saved:
                raise UnknownKeyError(cls.prefix + name, cls._owner(), sorted(known))
        given = {}
        for name in (name for name in known if name in values):
            kind, value = known[name].metadata.get("group"), values[name]
            empty = value is None and known[name].metadata.get("optional")
            given[name] = value if kind is None or empty else kind.read(value, saved)
        return cls(**given)

    def plain(self) -> dict[str, Any]:
        """Returns the config that `read` makes these options from, as plain Python.

        It holds dicts, lists, numbers and strings.

        Returns the config that `read` makes these options from: dicts, lists, numbers, strings.

        """
        contents = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.metadata.get("omitted") and value == field.default:
                continue
            contents[field.name] = plain_value(value)
        return contents

    @classmethod
    def keys(cls) -> list[Key]:
        """Returns the group's own keys, without those of the groups in it."""
        return [
            Key(
                cls.prefix + f.name, f.metadata["rule"], f.metadata["about"], plain_value(f.default)
            )
            for f in dataclasses.fields(cls)
            if "rule" in f.metadata
        ]

    @classmethod
    def groups(cls) -> dict[str, tuple[type[Options], str]]:
        """Returns the groups in this one: dataclass and description, by name."""
        return {
            cls.prefix + f.name: (f.metadata["group"], f.metadata["about"])
            for f in dataclasses.fields(cls)
            if "group" in f.metadata
        }

    @classmethod
    def _check_value(cls, field: dataclasses.Field[Any], value: Any) -> None:
        rule = field.metadata.get("rule")
        if rule is not None and not rule.accepts(value):
            name, shown = cls.prefix + field.name, shown_value(value)
            raise ConfigError(f"`{name}` must be {rule.wanted}, but is {shown}.")

    @classmethod
    def _owner(cls) -> str:
        return f"`{cls.prefix[:-1]}`" if cls.prefix else "the config"

    @classmethod
    def _check_is_group(cls, values: Any) -> None:
        if not isinstance(values, Mapping):
            raise ConfigError(
                f"{cls._owner()} must be a group of keys, but is {shown_value(values)}."
            )


def plain_value(value: Any) -> Any:
    """Returns a value as plain Python: lists for tuples, dicts for options."""
    if isinstance(value, Options):
        return value.plain()
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    return value


def shown_value(value: Any) -> str:
    """Returns a value as a config shows it; of a long one the beginning."""
    shown = "null" if value is None else repr(plain_value(value))
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
