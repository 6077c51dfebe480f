"""Tests of the NPU path over a stand-in for CANN: see kernels/cann_standin/README.md.

They run in a Python of their own (`make venv-npu`). From pytest elsewhere, one process of that
Python runs them all, and each of its tests is an item here, with its own outcome.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import standin_process

if standin_process.is_inside():
    import torch

    from tests.support import standin_report
    from tests.support.standin_report import *  # noqa: F403
    from tests.support.standin_runtime import Runtime

    @pytest.fixture(autouse=True)
    def torch_npu_is_alive(request: pytest.FixtureRequest) -> None:
        """After an error its task queue does nothing any more and says nothing: a new process."""
        if torch.ones(1).npu().add(1).item() != 2.0:
            standin_report.ask_for_a_new_process(request.node.nodeid)

    @pytest.fixture
    def runtime() -> Iterator[Runtime]:
        """The stand-in's counters, from zero; the test must leave no fault behind."""
        runtime = Runtime()
        runtime.reset()
        yield runtime
        runtime.synchronize()
else:

    def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.File:
        return standin_process.StandInFile.from_parent(parent, path=module_path)

    def pytest_sessionfinish(session: pytest.Session) -> None:
        standin_process.end(session)
