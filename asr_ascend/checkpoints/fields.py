"""The fields of a checkpoint and what each must be, checked before anything uses them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from asr_ascend.checkpoints.outline import TensorOutline
from asr_ascend.config.keys import shown_value
from asr_ascend.config.values import Rule, integer

# Our part of a checkpoint: format_version, tokenizer, blank, config. CMVN is in the state_dict.
KEY = "asr_ascend"
FORMAT_VERSION = 1
# Names of the best checkpoints in a run's folder. A run removes the files that it lists: a name
# with a folder in it must not pass.
BEST_NAME = re.compile(r"best-step\d{1,18}-cer\d{1,18}\.\d\d\.ckpt")
_PARTS = ("state_dict", "global_step", f"{KEY}.tokenizer", f"{KEY}.config")
_FLOATING = ("Double", "Float", "Half", "BFloat16")

_COUNT = integer(0, 2**53)
_NAME = Rule("a name of at most 1000 characters", lambda v: isinstance(v, str) and len(v) <= 1000)
_GROUP = Rule("a group", lambda value: isinstance(value, dict))
_LIST = Rule("a list", lambda value: isinstance(value, list | tuple))
_TENSOR = Rule("a tensor", lambda value: isinstance(value, TensorOutline))
_FLOATS = Rule(
    "a tensor of floats", lambda value: _TENSOR.accepts(value) and value.kind in _FLOATING
)
_BYTES = Rule(
    "a tensor of bytes with one dimension",
    lambda value: _TENSOR.accepts(value) and value.kind == "Byte" and len(value.shape) == 1,
)
_PLAIN = Rule("plain values", lambda value: not _TENSOR.accepts(value))
_BEST = Rule(
    "a name such as best-step000500-cer3.21.ckpt",
    lambda value: isinstance(value, str) and BEST_NAME.fullmatch(value) is not None,
)
_CER = Rule("a number", lambda value: type(value) in (int, float))


class FieldError(ValueError):
    """A field that a checkpoint doesn't have, or has wrong; the message ends a sentence."""


def check_fields(contents: Any) -> None:
    """Checks every field of a checkpoint.

    Args:
        contents: from `read_outline`.

    Raises:
        FieldError: names the first field that is missing or of another type or value.
    """
    if not isinstance(contents, dict) or not isinstance(contents.get(KEY), dict):
        raise FieldError("is not a checkpoint of asr_ascend.")
    own = contents[KEY]
    if own.get("format_version") != FORMAT_VERSION:
        version = shown_value(own.get("format_version"))
        raise FieldError(
            f"has format version {version}, but this asr_ascend reads {FORMAT_VERSION}."
        )
    there = {*contents, *(f"{KEY}.{name}" for name in own)}
    if missing := [name for name in _PARTS if name not in there]:
        raise FieldError(f"is not complete: it lacks {', '.join(missing)}.")
    for name, rule in (("global_step", _COUNT), ("epoch", _COUNT)):
        _check_if_there(contents, name, rule)
    for name, value in _items(contents, "state_dict"):
        _check(name, value, _TENSOR)
    _check_own(own)
    _check_progress(contents)
    _check_callbacks(contents)


def _check_own(own: Mapping[str, Any]) -> None:
    prefix = f"{KEY}."
    tokenizer = dict(_items(own, "tokenizer", prefix))
    for name, rule in (("format", integer()), ("model", _BYTES), ("blank", integer(0, 2**31))):
        field = f"{prefix}tokenizer.{name}"
        if field not in tokenizer:
            raise FieldError(f"is not complete: it lacks {field}.")
        _check(field, tokenizer[field], rule)
    _check_if_there(own, "blank", integer(0, 2**31), prefix)
    for name, value in _leaves(own["config"], f"{prefix}config", _GROUP):
        _check(name, value, _PLAIN)
    for name, value in _items(own, "averaged", prefix):
        _check(name, value, _GROUP)
        for part, rule in (("file", _NAME), ("step", _COUNT)):
            _check(f"{name}.{part}", value.get(part), rule)


def _check_progress(contents: Mapping[str, Any]) -> None:
    """The optimiser's state, and how far its schedule and the loops are."""
    for name, optimizer in _items(contents, "optimizer_states"):
        _check(name, optimizer, _GROUP)
        for parameter, state in _items(optimizer, "state", f"{name}."):
            _check(parameter, state, _GROUP)
            for part, value in state.items():
                _check(f"{parameter}.{part}", value, _FLOATS)
        _check(f"{name}.param_groups", optimizer.get("param_groups"), _LIST)
        for entry, group in _items(optimizer, "param_groups", f"{name}."):
            _check(entry, group, _GROUP)
            _check(f"{entry}.params", group.get("params"), _LIST)
            for part, value in _leaves(group, entry):
                _check(part, value, _COUNT if part.startswith(f"{entry}.params[") else _PLAIN)
    for name, value in _leaves(contents.get("lr_schedulers", []), "lr_schedulers", _LIST):
        _check(name, value, _PLAIN)
    for name, value in _leaves(contents.get("loops", {}), "loops", _GROUP):
        rule = _NAME if name.endswith(".fingerprint") else integer(-1, 2**53)
        _check(name, int(value) if isinstance(value, bool) else value, rule)


def _check_callbacks(contents: Mapping[str, Any]) -> None:
    callbacks = dict(_items(contents, "callbacks"))
    for name, state in callbacks.items():
        _check(name, state, _GROUP)
    best = "callbacks.Checkpoints"
    for name, entry in _items(callbacks.get(best, {}), "best", f"{best}."):
        _check(name, entry, Rule("a list of 2", lambda v: _LIST.accepts(v) and len(v) == 2))
        _check(f"{name}[0]", entry[0], _CER)
        _check(f"{name}[1]", entry[1], _BEST)
    for name, state, rules in (
        ("callbacks.EarlyStopping", "best", _CER),
        ("callbacks.EarlyStopping", "waited", _COUNT),
        ("callbacks.NonfiniteSteps", "count", _COUNT),
    ):
        _check_if_there(callbacks.get(name, {}), state, rules, f"{name}.")
    left_out = "callbacks.NonfiniteSteps"
    for name, step in _items(callbacks.get(left_out, {}), "recent", f"{left_out}."):
        _check(name, step, _COUNT)


def _check(name: str, value: Any, rule: Rule) -> None:
    if not rule.accepts(value):
        found = "a tensor" if _TENSOR.accepts(value) else shown_value(value)
        raise FieldError(f"is damaged: its `{name[:200]}` must be {rule.wanted}, but is {found}.")


def _check_if_there(group: Mapping[str, Any], name: str, rule: Rule, prefix: str = "") -> None:
    if name in group:
        _check(prefix + name, group[name], rule)


def _items(group: Mapping[str, Any], name: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The whole names and the values of what a field holds; nothing where it isn't there."""
    whole, field = prefix + str(name), group.get(name, {})
    if isinstance(field, list | tuple):
        yield from ((f"{whole}[{index}]", value) for index, value in enumerate(field))
        return
    _check(whole, field, _GROUP)
    yield from ((f"{whole}.{key}", value) for key, value in field.items())


def _leaves(value: Any, name: str, rule: Rule | None = None) -> Iterator[tuple[str, Any]]:
    """The values that hold no others, with their whole names."""
    if rule is not None:
        _check(name, value, rule)
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{name}[{index}]")
    else:
        yield name, value
