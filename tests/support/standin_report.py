"""The side of the process with torch_npu: what pytest outside asked for, and what it hears."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.support import standin_process

_TASK: dict[str, Any] = json.loads(os.environ[standin_process.INSIDE])
_MARKS = ("slow", "bench")
_reports: dict[str, list[pytest.TestReport]] = {}


def _send(report: dict[str, Any]) -> None:
    if "report_to" in _TASK:
        os.write(_TASK["report_to"], (json.dumps(report) + "\n").encode())


def ask_for_a_new_process(nodeid: str) -> None:
    """Ends this one before the test, which runs in the next."""
    _send({"name": nodeid, "outcome": "new process"})
    os._exit(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "run" in _TASK:
        place = {name: index for index, name in enumerate(_TASK["run"])}
        items[:] = sorted(
            (item for item in items if item.nodeid in place), key=lambda item: place[item.nodeid]
        )


def pytest_collection_finish(session: pytest.Session) -> None:
    if "collect" not in _TASK:
        return
    tests: dict[str, list[dict[str, Any]]] = {}
    for item in session.items:
        marks = [mark for mark in _MARKS if item.get_closest_marker(mark)]
        tests.setdefault(item.path.name, []).append({"name": item.name, "marks": marks})
    if not session.testsfailed:
        _send({"name": "collection", "outcome": "passed", "tests": tests})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _reports.setdefault(report.nodeid, []).append(report)


def pytest_runtest_logfinish(nodeid: str) -> None:
    reports = _reports.pop(nodeid)
    bad = next((report for report in reports if report.outcome != "passed"), None)
    text = ""
    if bad is not None and bad.skipped:
        text = str(bad.longrepr[2]).removeprefix("Skipped: ")
    elif bad is not None:
        text = "\n".join([bad.longreprtext, *(content for _, content in bad.sections)])
    _send({"name": nodeid, "outcome": bad.outcome if bad else "passed", "text": text})
