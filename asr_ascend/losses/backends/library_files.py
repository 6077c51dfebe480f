"""Where the native libraries may lie: by an environment variable, else in the package."""

import os
from pathlib import Path

PACKAGE_FOLDER = Path(__file__).resolve().parents[2]
SLOW_WAY = 'until then, backend="reference" works, slowly.'


def overriding_path(variable: str, library_name: str) -> Path | None:
    """Returns the path of a library that an environment variable gives; None if it isn't set.

    Raises:
        RuntimeError: the value is not the path of a file.
    """
    path = os.environ.get(variable)
    if not path:
        return None
    if not Path(path).is_file():
        raise RuntimeError(
            f"`{variable}` must be the path of {library_name}, but {path} is not a file."
        )
    return Path(path)
