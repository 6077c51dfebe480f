"""Rules for the values of a config: a test, and what the value must be in words."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from asr_ascend.config.frames import ENCODER_HOP_MS


@dataclass(frozen=True)
class Rule:
    """What a value must be (for the message) and the test of it."""

    wanted: str
    accepts: Callable[[Any], bool]


def integer(low: int | None = None, high: int | None = None) -> Rule:
    """Makes the rule of an integer, from `low` to `high` where they are given."""

    def accepts(value: Any) -> bool:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and (low is None or value >= low) and (high is None or value <= high)

    return Rule("an integer" + _range(low, high), accepts)


def number(low: float | None = None, high: float | None = None, above: float | None = None) -> Rule:
    """Makes the rule of a finite number, from `low` to `high` and above `above` where given."""

    def accepts(value: Any) -> bool:
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            return False
        inside = (low is None or value >= low) and (high is None or value <= high)
        return inside and (above is None or value > above)

    return Rule(
        "a number" + (f" above {above}" if above is not None else _range(low, high)), accepts
    )


def choice(*options: str | int) -> Rule:
    """Makes the rule of a value that is one of `options`."""
    return Rule("one of " + ", ".join(map(str, options)), lambda value: value in options)


def optional(rule: Rule) -> Rule:
    """Makes the rule of a value that is null or meets `rule`."""
    return Rule(rule.wanted + " or null", lambda value: value is None or rule.accepts(value))


def either(first: Rule, second: Rule) -> Rule:
    """Makes the rule of a value that meets `first` or `second`."""
    return Rule(
        f"{first.wanted} or {second.wanted}", lambda v: first.accepts(v) or second.accepts(v)
    )


def list_of(rule: Rule, length: int | None = None) -> Rule:
    """Makes the rule of a list of `length` values, each of which meets `rule`.

    Without a `length` the list has at least one value.
    """

    def accepts(value: Any) -> bool:
        right = isinstance(value, list | tuple) and (
            len(value) == length if length else len(value) > 0
        )
        return right and all(rule.accepts(item) for item in value)

    return Rule(
        f"a list of {f'{length} values' if length else 'values'}, each {rule.wanted}", accepts
    )


def _range(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" in [{low}, {high}]"
    if low is not None:
        return f" of at least {low}"
    return "" if high is None else f" of at most {high}"


TEXT = Rule("a non-empty string", lambda value: isinstance(value, str) and value != "")
FLAG = Rule("true or false", lambda value: isinstance(value, bool))
PATHS = either(TEXT, list_of(TEXT))
CHUNK_MS = either(
    Rule(
        f"a multiple of {ENCODER_HOP_MS} of at least {ENCODER_HOP_MS}",
        lambda value: integer(ENCODER_HOP_MS).accepts(value) and value % ENCODER_HOP_MS == 0,
    ),
    choice("full"),
)
