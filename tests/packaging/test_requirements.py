"""What pyproject.toml asks of other packages."""

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def requirements(name: str) -> list[Requirement]:
    """Every requirement of a package in pyproject.toml, read as pip reads it."""
    text = PYPROJECT.read_text(encoding="utf-8")
    written = re.findall(rf'"({re.escape(name)}\b[^"]*)"', text)
    found = [Requirement(one) for one in written if re.match(r"[\w-]+\s*[<>=!~]", one)]
    assert found, name
    return found


@pytest.mark.parametrize("version", ["2.6.2", "2.6.3"])
def test_malicious_releases_of_lightning_are_excluded(version):
    """GHSA-w37p-236h-pfx3: on import, both stole the credentials that they found."""
    for requirement in requirements("lightning"):
        assert not requirement.specifier.contains(version)


@pytest.mark.parametrize("version", ["2.6.0", "2.6.1", "2.6.6"])
def test_sound_releases_of_lightning_are_allowed(version):
    assert all(requirement.specifier.contains(version) for requirement in requirements("lightning"))
