"""The emulated operator, built once, and the loss's oracles from tests/losses."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from pathlib import Path

import pytest

for folder in ("losses", "operator"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))


@pytest.fixture(scope="session")
def operator(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    from emulated_operator import build

    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no C++ compiler `{compiler}`")
    return build(tmp_path_factory.mktemp("operator"))
