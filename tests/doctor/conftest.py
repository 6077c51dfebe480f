"""What the doctor's tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.atlas_a2 import AtlasA2


@pytest.fixture
def atlas(tmp_path: Path) -> AtlasA2:
    return AtlasA2(tmp_path / "m")
