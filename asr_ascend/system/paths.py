"""Paths that a user wrote: home folders, folders that files can be written to."""

from __future__ import annotations

import argparse
import errno
import os
import tempfile
from pathlib import Path

from asr_ascend.system.streams import is_utf8


def user_path(path: str | os.PathLike[str]) -> Path:
    """Replaces a leading ~ or ~user of `path` by that user's home folder.

    A path that starts with ./~ stays.

    Raises:
        FileNotFoundError: there is no such user, or no home folder is known.
    """
    text = os.fspath(path)
    expanded = os.path.expanduser(text)  # noqa: PTH111 - pathlib forgets the ./
    if text.startswith("~") and expanded == text:
        name = Path(path).parts[0]
        reason = f"the home folder of {name} isn't known; ./{text} is a file of this name"
        raise FileNotFoundError(errno.ENOENT, reason, text)
    return Path(expanded)


def path_argument(text: str) -> Path:
    """Returns the path of an option of `argparse`, whose `type` this is."""
    if not text:
        raise argparse.ArgumentTypeError("must be a path, but is empty")
    return user_path(text)


def folder_fault(folder: Path, for_tensorboard: bool = False) -> str | None:
    """Returns why no file can be written to a folder, or None where one can.

    The folder need not exist yet, and nothing is left behind. Call it before long work whose
    results go there.

    Args:
        folder: to write to.
        for_tensorboard: whether TensorBoard writes there, too: it takes only names in UTF-8.
    """
    if for_tensorboard and not is_utf8(str(folder)):
        return f"the name of {folder} is not UTF-8, which TensorBoard needs"
    place = folder.absolute()
    while not place.exists() and not place.is_symlink():
        place = place.parent
    if not place.is_dir():
        return f"{place if place != folder.absolute() else folder} is a file"
    try:
        with tempfile.TemporaryFile(dir=place):
            return None
    except OSError as error:
        return f"nothing can be written to {place}: {error.strerror}"
