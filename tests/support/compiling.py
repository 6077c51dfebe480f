"""C++ programs of the tests: compiled once, and again when a source, header or option has changed.

What was made lies in build/tests. Objects are known by what they were made of, not by times, so
that programs which share a source share its object, and two test processes make it once.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "tests"
EMULATED = ("-std=c++17", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror")


def compiler() -> str:
    """The C++ compiler for the emulator's headers; skips the test where there is none."""
    name = os.environ.get("CXX", "g++")
    if shutil.which(name) is None:
        pytest.skip(f"there is no C++ compiler `{name}`")
    return name


def program(
    name: str,
    sources: Sequence[Path],
    flags: Sequence[str] = EMULATED,
    includes: Sequence[Path] = (),
    *,
    shared: bool = False,
) -> Path:
    """Path of the executable or shared library; fails the test with the compiler's words."""
    options = [*flags, "-fPIC", *(f"-I{folder}" for folder in includes)]
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        objects = list(pool.map(lambda source: _object(source, options), sources))
    linking = [flag for flag in flags if flag.startswith("-fsanitize")] + ["-shared"] * shared
    folder = FOLDER / f"{name}-{_digest(*options, *linking, *map(str, sources))}"
    path = folder / _digest(_compiler_identity(), *map(str, objects)) / name
    with lock(folder):
        if not path.exists():
            for old in folder.glob("*/"):
                shutil.rmtree(old)
            path.parent.mkdir()
            _run([compiler(), *linking, *map(str, objects)], path)
    return path


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Keeps other test processes out of the folder, which it makes."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _object(source: Path, options: Sequence[str]) -> Path:
    """Named by its own content: the headers that it was made of are known from the last time."""
    folder = FOLDER / "objects" / _digest(_compiler_identity(), *options, str(source))
    with lock(folder):
        record = folder / "made_of.json"
        if record.exists():
            made = json.loads(record.read_text())
            if made["sources"] == {path: content(Path(path)) for path in made["sources"]}:
                return folder / made["object"]
        record.unlink(missing_ok=True)
        new, listing = folder / "new.o", folder / "new.d"
        _run([compiler(), *options, "-MD", "-MF", str(listing), "-c", str(source)], new)
        sources = {path: content(Path(path)) for path in _prerequisites(listing)}
        name = f"{source.stem}-{content(new)}.o"
        new.replace(folder / name)
        for old in folder.glob("*.o"):
            if old.name != name:
                old.unlink()
        record.write_text(json.dumps({"object": name, "sources": sources}))
        return folder / name


def _run(command: Sequence[str], output: Path) -> None:
    unfinished = output.with_suffix(".unfinished")
    done = subprocess.run(
        [*command, "-o", str(unfinished)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{shlex.join(command)} failed:\n{done.stderr[-6000:]}"
    unfinished.replace(output)


def _prerequisites(listing: Path) -> list[str]:
    """Files that `g++ -MD` names, this machine's headers among them."""
    return shlex.split(listing.read_text().partition(":")[2].replace("\\\n", " "))


def content(path: Path) -> str | None:
    """Digest of a file, or None where there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32] if path.is_file() else None


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@functools.cache
def _compiler_identity() -> str:
    command = [compiler(), "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
