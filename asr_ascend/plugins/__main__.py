"""``python -m asr_ascend.plugins``: which frameworks are installed here, and the line for each."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from asr_ascend.plugins.catalog import PLUGS


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the plugs; imports no framework."""
    parser = argparse.ArgumentParser(
        prog="asr-ascend plugins",
        description="Lists the frameworks that can call this package's loss, the version that is "
        "installed here, and the line of Python that plugs the loss in. "
        "docs/migration.md says what is equal and what differs.",
    )
    parser.parse_args(arguments)
    rows = []
    for plug in PLUGS.values():
        version = plug.version()
        if version is None:
            version = "not installed; a stand-in" if plug.stands_in else "not installed"
        rows.append((plug.name, plug.serves, version, plug.line))
    rows.insert(
        0,
        (
            "plug",
            "also serves",
            "version here",
            "line, after `from asr_ascend.plugins import install`",
        ),
    )
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for *cells, line in rows:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        print("  ".join([*padded, line]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
