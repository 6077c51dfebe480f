"""The emulated operator, built once."""

from __future__ import annotations

import ctypes
import os
import shutil

import pytest


@pytest.fixture(scope="session")
def operator(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    from tests.support.emulated_operator import build

    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no C++ compiler `{compiler}`")
    return build(tmp_path_factory.mktemp("operator"))
