"""Compiler launcher for CMake: a source that was compiled before is not compiled again.

    CMAKE_CXX_COMPILER_LAUNCHER="python;compiler_cache.py;FOLDER" cmake ...

An object is known by its preprocessed source, its options and its compiler, not by any path: it
serves builds in a fresh folder, as those of the wheel are.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

# Of options, those that change the object beyond the preprocessed source.
TELLING = ("-f", "-g", "-m", "-O", "-std", "-W")


def main(folder: Path, command: list[str]) -> int:
    """Exit status of the compiler, whose object is left where the command says."""
    if "-c" not in command:
        return subprocess.run(command, check=False).returncode
    place = command.index("-o")
    output = command[place + 1]
    without_output = command[:place] + command[place + 2 :]
    preprocess = ["-E" if part == "-c" else part for part in without_output]
    source = _output_of([*preprocess, "-P"])
    options = [part.encode() for part in command if part.startswith(TELLING)]
    identity = [_output_of([command[0], "--version"]), *options, source]
    kept = folder / hashlib.sha256(b"\0".join(identity)).hexdigest()
    if not kept.exists():
        status = subprocess.run(command, check=False).returncode
        if status != 0:
            return status
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f"unfinished-{os.getpid()}"
        shutil.copyfile(output, unfinished)
        unfinished.replace(kept)
    shutil.copyfile(kept, output)
    return 0


def _output_of(command: list[str]) -> bytes:
    return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
