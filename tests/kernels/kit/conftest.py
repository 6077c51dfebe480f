"""What the tests of the kit share."""

from pathlib import Path

import pytest

from tests.support.made_up_machine import MadeUpMachine


@pytest.fixture
def machine(tmp_path: Path) -> MadeUpMachine:
    return MadeUpMachine(tmp_path / "m")
