"""Our losses in the frameworks that people train with: one line, and it can be taken back.

Importing this package changes nothing, and no framework is imported before :func:`install`.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator
from typing import Any, NamedTuple

from asr_ascend.plugins.catalog import PLUGS
from asr_ascend.plugins.changes import Changes, PluginWarning

__all__ = ["Active", "PluginWarning", "active", "install", "installed", "uninstall"]

_active: dict[str, Changes] = {}


class Active(NamedTuple):
    """An installed plug: the package's version, calls of our loss, and the names that changed."""

    version: str
    calls: int
    changed: tuple[str, ...]


def install(name: str, **options: Any) -> None:
    """Puts our loss behind the names by which a framework calls its own.

    Args:
        name: a framework, such as "torchaudio"; ``python -m asr_ascend.plugins`` lists them.
        options: of this plug; see the ``install`` of ``asr_ascend.plugins.<name>``. All take
            ``blank_in_targets`` and ``validate``, which go to ``rnnt_loss`` with every call.

    Warns:
        PluginWarning: the framework's version is unknown to us; or a module has bound the old
            function already, so that it will go on calling it.

    Raises:
        ValueError: no such plug; an option out of place.
        TypeError: an option that the plug doesn't have.
        ImportError: the framework is not installed, and no stand-in is possible.
        RuntimeError: installed already; or the framework's function has other arguments than
            those that we know. Nothing is changed then.
    """
    plug = PLUGS.get(name)
    if plug is None:
        near = difflib.get_close_matches(str(name), PLUGS, 1)
        advice = f' Did you mean "{near[0]}"?' if near else ""
        raise ValueError(f'`name` must be one of {", ".join(PLUGS)}, but is "{name}".{advice}')
    if name in _active:
        raise RuntimeError(f'`{name}` is installed already; call `uninstall("{name}")` first.')
    function = plug.load()
    plug.check_options(function, options)
    plug.warn_if_unknown()
    changes = Changes(name, plug.version())
    try:
        function(changes, **options)
    except BaseException:
        changes.undo()
        raise
    _active[name] = changes


def uninstall(name: str | None = None) -> None:
    """Takes back what :func:`install` changed: of one plug, or of all of them.

    Warns:
        PluginWarning: a module has bound one of our functions, and keeps it.

    Raises:
        ValueError: the plug is not installed.
    """
    if name is not None and name not in _active:
        raise ValueError(f'`name` must be an installed plug, but is "{name}".')
    for each in reversed(list(_active)) if name is None else [name]:
        _active.pop(each).undo()


@contextlib.contextmanager
def installed(name: str, **options: Any) -> Iterator[None]:
    """Installs a plug for the length of a ``with`` block; as :func:`install` in all else."""
    install(name, **options)
    try:
        yield
    finally:
        if name in _active:
            uninstall(name)


def active() -> dict[str, Active]:
    """The installed plugs by name. Calls inside of graphs of torch.compile are counted only for
    torchaudio's operator."""
    return {
        name: Active(changes.version, changes.calls, tuple(changes.changed))
        for name, changes in _active.items()
    }
