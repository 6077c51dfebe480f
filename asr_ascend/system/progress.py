"""Progress of long work on stderr: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TypeVar

SECONDS_BETWEEN_LINES = 30.0

_Item = TypeVar("_Item")


@contextmanager
def progress_bar(title: str, total: int, completed: int = 0) -> Iterator[Callable[[int], None]]:
    """Yields a function that moves the progress on by a number of pieces of work.

    Args:
        title: what is being done.
        total: pieces of work in all.
        completed: how many an earlier run has done.
    """
    if sys.stderr.isatty():
        with _bar(title, total, completed) as advance:
            yield advance
    else:
        yield _Lines(title, total, completed).advance


def tracked(title: str, items: Collection[_Item], shown: bool = True) -> Iterator[_Item]:
    """Yields the items one by one, with the progress through them on stderr.

    Args:
        title: what is being done.
        items: pieces of work.
        shown: whether to show the progress.
    """
    if not shown:
        yield from items
        return
    with progress_bar(title, len(items)) as advance:
        for item in items:
            yield item
            advance(1)


@contextmanager
def _bar(title: str, total: int, completed: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total, completed=completed)
        yield lambda count: progress.advance(task, count)


class _Lines:
    """For logs: quick work leaves nothing in them."""

    def __init__(self, title: str, total: int, completed: int) -> None:
        self.title = title
        self.total = total
        self.completed = self.first = completed
        self.started = self.told = time.monotonic()

    def advance(self, count: int) -> None:
        self.completed += count
        now = time.monotonic()
        if now - self.told < SECONDS_BETWEEN_LINES or self.completed == self.first:
            return
        self.told = now
        left = (self.total - self.completed) * (now - self.started) / (self.completed - self.first)
        print(
            f"{self.title}: {self.completed} of {self.total}, about {duration(left)} left",
            file=sys.stderr,
            flush=True,
        )


def duration(seconds: float) -> str:
    """Returns a time for people: "45 s", "12 min", "3.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
