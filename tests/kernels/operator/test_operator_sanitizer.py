"""The kernel's own arithmetic under the undefined behaviour sanitizer, hostile lengths included."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.mark.slow
def test_no_undefined_behaviour() -> None:
    """In a process of its own: the sanitizer ends it at the first thing it finds."""
    files = [FOLDER / f"test_operator_{name}.py" for name in ("inputs", "values", "fuzz")]
    flags = "-fsanitize=undefined -fno-sanitize-recover=all"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", *map(str, files)],
        env={**os.environ, "EMULATED_RNNT_LOSS_FLAGS": flags},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    assert "skipped" not in run.stdout
