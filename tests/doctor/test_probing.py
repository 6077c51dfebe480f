"""Processes of the doctor: a crash, a hang or a failure costs its own step alone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from asr_ascend.doctor import probing
from asr_ascend.doctor.probing import Child, Outcome, run

MODULES = {
    "fine": "__version__ = '1.2'; print('noise on stdout')",
    "raises": "raise ImportError('libhccl.so: no file\\nmore')",
    "crashes": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "leaves": "import os, sys; print('gone', file=sys.stderr); os._exit(3)",
    "hangs": "import os, time; os.fork() and time.sleep(600) or time.sleep(600)",
}


@pytest.fixture
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name, source in MODULES.items():
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    return dict(os.environ)


def packages(*names: str) -> list[str]:
    return [f"package:{name}" for name in names]


def test_each_step_has_its_own_outcome(variables):
    steps = packages("fine", "raises", "crashes", "leaves", "not_there")
    assert run([Child(steps, variables)]) == {
        "package:fine": Outcome({"version": "1.2"}),
        "package:raises": Outcome(None, "ImportError: libhccl.so: no file"),
        "package:crashes": Outcome(None, "the process was ended by SIGSEGV"),
        "package:leaves": Outcome(None, "the process ended with status 3: gone"),
        "package:not_there": Outcome(None, "ModuleNotFoundError: No module named 'not_there'"),
    }


def test_a_step_that_hangs_is_ended_with_its_children(variables):
    start = time.monotonic()
    found = run([Child(packages("fine", "hangs", "raises"), variables, seconds=2)])
    assert found == {
        "package:fine": Outcome({"version": "1.2"}),
        "package:hangs": Outcome(None, "it did not end within 2 s"),
        "package:raises": Outcome(None, "ImportError: libhccl.so: no file"),
    }
    assert time.monotonic() - start < 60


def test_a_python_that_cannot_start(variables, monkeypatch):
    monkeypatch.setattr(probing.sys, "executable", "/not/there")
    outcome = run([Child(packages("fine"), variables)])["package:fine"]
    assert outcome.failure == "/not/there can't be started: No such file or directory"


def test_children_see_what_this_process_sees(variables, tmp_path):
    """Whatever PYTHONPATH and the current folder are."""
    outcome = run([Child(packages("fine"), {"PATH": variables["PATH"]})])["package:fine"]
    assert outcome.failure is None
