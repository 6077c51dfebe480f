from __future__ import annotations

from collections.abc import Iterator

import pytest

from asr_ascend import plugins


@pytest.fixture(autouse=True)
def nothing_stays_installed() -> Iterator[None]:
    assert plugins.active() == {}
    yield
    left = list(plugins.active())
    plugins.uninstall()
    assert left == []
