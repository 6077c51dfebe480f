"""What the tests of the kit share."""

from pathlib import Path

import pytest
from made_up_machine import MadeUpMachine


@pytest.fixture
def machine(tmp_path: Path) -> MadeUpMachine:
    return MadeUpMachine(tmp_path / "m")
