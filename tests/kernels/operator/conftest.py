"""The emulated operator, built once."""

from __future__ import annotations

import ctypes

import pytest


@pytest.fixture(scope="session")
def operator() -> ctypes.CDLL:
    from tests.support.emulated_operator import build

    return build()
