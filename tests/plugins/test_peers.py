"""Real frameworks, their own loss against ours: each file of tests/plugins/peers in .venv-peers.

`make venv-peers` makes that environment; PEERS_VENV names another, PEERS_TESTS=0 leaves these
tests out, PEERS_TESTS=1 fails where they can't run.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("PEERS_VENV") or ROOT / ".venv-peers").resolve()
FILES = sorted((ROOT / "tests" / "plugins" / "peers").glob("peer_*.py"))

pytestmark = [pytest.mark.peers, pytest.mark.slow]


def unavailable() -> str | None:
    """Why the tests can't run here, or None."""
    if os.environ.get("PEERS_TESTS") == "0":
        return "PEERS_TESTS=0"
    reason = FOLDER / "unavailable"
    if reason.is_file():
        return reason.read_text(encoding="utf-8").strip()
    if not (FOLDER / "packages").is_file():
        return "there is no environment of the frameworks: `make venv-peers` makes it"
    return None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem.removeprefix("peer_"))
def test_a_framework(path: Path) -> None:
    reason = unavailable()
    if reason is not None:
        assert os.environ.get("PEERS_TESTS") != "1", reason
        pytest.skip(reason)
    unset = ("VIRTUAL_ENV", "PYTHONHOME", "PYTEST_ADDOPTS")
    done = subprocess.run(
        [FOLDER / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in unset},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = done.stdout.splitlines()[-1]
    assert re.search(r"\d+ passed", summary), summary
    assert not re.search(r"skipped|failed|error", summary), summary
