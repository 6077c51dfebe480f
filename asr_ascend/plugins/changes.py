"""What one plug has changed in other packages: kept, counted and taken back."""

from __future__ import annotations

import functools
import importlib.machinery
import inspect
import sys
import types
import warnings
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

import torch


class PluginWarning(UserWarning):
    """Says what a plug can't reach or wasn't tested with."""


class Changes:
    """The changes of one installed plug.

    Args:
        name: of the plug.
        version: of the package that it changes; None where a stand-in has to be made.
    """

    def __init__(self, name: str, version: str | None) -> None:
        self.name = name
        self.is_stand_in = version is None
        self.version = "stand-in" if version is None else version
        self.calls = 0
        self.changed: list[str] = []
        self._undo: list[Callable[[], None]] = []
        self._ours: list[object] = []

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, whose calls are counted; calls inside of a compiled graph are not."""

        @functools.wraps(function)
        def counting(*arguments: Any, **keywords: Any) -> Any:
            self.count()
            return function(*arguments, **keywords)

        return counting

    def count(self) -> None:
        """Counts a call; a graph of torch.compile would have to be compiled for each number."""
        if not torch.compiler.is_compiling():
            self.calls += 1

    def replace(self, owners: Iterable[tuple[Any, str]], new: object) -> None:
        """Binds the names of ``owners``, pairs of a module or class and a name, to ``new``.

        Warns of modules that hold the old object under a name which is none of these.
        """
        old_objects = []
        for owner, name in owners:
            old = getattr(owner, name)
            old_objects.append(old)
            setattr(owner, name, new)
            self.changed.append(f"{owner.__name__}.{name}")
            self._undo.append(functools.partial(self._put_back, owner, name, old, new))
        self._ours.append(new)
        self._warn_of_holders(old_objects, "still is the old one: import it after the install")

    def set_item(self, mapping: MutableMapping[str, Any], shown: str, key: str, value: Any) -> None:
        """Adds an entry to a table of another package; ``shown`` is the table's name."""
        if key in mapping:
            raise RuntimeError(f'`{shown}` has an entry "{key}" already.')
        mapping[key] = value
        self.changed.append(f'{shown}["{key}"]')
        self._undo.append(lambda: mapping.pop(key, None) and None)

    def add_module(self, name: str, contents: dict[str, Any]) -> None:
        """Puts a stand-in among the imported modules, for a package that isn't installed."""
        module = types.ModuleType(name, f"Stands in for {name}: the losses of asr_ascend.")
        module.__spec__ = importlib.machinery.ModuleSpec(name, loader=None)
        module.__dict__.update(contents)
        sys.modules[name] = module
        self.changed.append(f"sys.modules[{name!r}]")
        self._undo.append(lambda: _remove_module(name, module))
        self._ours.extend(contents.values())

    def on_undo(self, shown: str, undo: Callable[[], None]) -> None:
        """Keeps what takes a change back that was made elsewhere; ``shown`` names the change."""
        self.changed.append(shown)
        self._undo.append(undo)

    def undo(self) -> None:
        """Takes every change back, the last one first; warns of names that stay."""
        while self._undo:
            self._undo.pop()()
        self._warn_of_holders(self._ours, "still is asr_ascend's: import it again")

    def _put_back(self, owner: Any, name: str, old: object, new: object) -> None:
        if getattr(owner, name, None) is new:
            setattr(owner, name, old)
        else:
            self._warn(f"`{owner.__name__}.{name}` was changed again and stays as it is.")

    def _warn_of_holders(self, objects: Iterable[object], what: str) -> None:
        for holder in _holders(objects):
            self._warn(f"`{holder}` {what}.")

    def _warn(self, text: str) -> None:
        warnings.warn(f"{self.name}: {text}", PluginWarning, stacklevel=2)


def check_arguments(shown: str, function: Callable[..., Any], expected: Iterable[str]) -> None:
    """Raises RuntimeError unless a function that is replaced begins with the expected arguments."""
    names = tuple(inspect.signature(function).parameters)
    expected = tuple(expected)
    if names[: len(expected)] != expected:
        raise RuntimeError(
            f"`{shown}` must take ({', '.join(expected)}) to be replaced, "
            f"but takes ({', '.join(names)})."
        )


def owners(name: str, *modules: str) -> list[tuple[types.ModuleType, str]]:
    """Those of the modules that are imported and have the name, as ``Changes.replace`` takes them.

    A package whose function has the name of its module hides the module from ``getattr``.
    """
    found = (sys.modules.get(module) for module in modules)
    return [(module, name) for module in found if module is not None and hasattr(module, name)]


def _holders(objects: Iterable[object]) -> list[str]:
    """Names in imported modules that are bound to one of the objects."""
    identities = {id(held) for held in objects if callable(held)}
    found = []
    for module_name, module in sorted(sys.modules.items()):
        # Ours is no user's name.
        if module_name.startswith("asr_ascend.") or not isinstance(module, types.ModuleType):
            continue
        found += [
            f"{module_name}.{name}"
            for name, held in list(vars(module).items())
            if id(held) in identities
        ]
    return found


def _remove_module(name: str, module: types.ModuleType) -> None:
    if sys.modules.get(name) is module:
        del sys.modules[name]
