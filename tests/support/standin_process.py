"""Runs the tests of this folder in a process that has torch_npu over the stand-in runtime."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import compiling

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("NPU_VENV", ROOT / ".venv-npu")).resolve()
INSIDE = "ASR_ASCEND_STANDIN_TESTS"  # what the process inside has to do, as JSON
_PROCESS = pytest.StashKey["Process"]()
_COLLECTED = pytest.StashKey[dict[str, list[dict[str, Any]]]]()


def is_inside() -> bool:
    """Whether this is the Python with torch_npu."""
    return INSIDE in os.environ


def unavailable() -> str | None:
    """Why the tests can't run here, or None."""
    if os.environ.get("NPU_TESTS") == "0":
        return "NPU_TESTS=0"
    reason = FOLDER / "unavailable"
    if reason.is_file():
        return reason.read_text(encoding="utf-8").strip()
    if not (FOLDER / "standin" / "binding" / "libasr_ascend_npu.so").is_file():
        return "there is no stand-in for CANN: `make venv-npu` makes it"
    return None


def environment(task: dict[str, Any]) -> dict[str, str]:
    """What makes torch_npu find the stand-in, and asr_ascend this checkout and its libraries."""
    from asr_ascend.losses.backends import cpu_library

    standin = FOLDER / "standin"
    unset = ("VIRTUAL_ENV", "PYTHONHOME", "TASK_QUEUE_ENABLE", "PYTEST_ADDOPTS")
    return {
        **{name: value for name, value in os.environ.items() if name not in unset},
        "LD_LIBRARY_PATH": str(standin / "lib"),
        "ASCEND_CUSTOM_OPP_PATH": str(standin / "opp"),
        "ASR_ASCEND_NPU_LIBRARY": str(standin / "binding" / "libasr_ascend_npu.so"),
        "ASR_ASCEND_LIBRARY": str(cpu_library._library_path()),
        "PYTHONPATH": str(ROOT),
        # What torch_npu has no kernel for fails, instead of going to the CPU unseen.
        "TORCH_NPU_FALLBACK_CPU_DISABLE": "1",
        "ASR_ASCEND_PYTHON": sys.executable,  # whose packages are all there
        INSIDE: json.dumps(task),
    }


class Process:
    """A pytest inside; a line of JSON arrives for each of its tests."""

    def __init__(self, task: dict[str, Any], *arguments: str) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        read_end, write_end = os.pipe()
        self.popen = subprocess.Popen(
            [FOLDER / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
            cwd=ROOT,
            env=environment({**task, "report_to": write_end}),
            stdout=self.log,
            stderr=subprocess.STDOUT,
            pass_fds=[write_end],
        )
        os.close(write_end)
        self.reports = os.fdopen(read_end, encoding="utf-8")
        self.results: dict[str, dict[str, Any]] = {}

    def result(self, name: str) -> dict[str, Any]:
        """Of one test; waits for it."""
        while name not in self.results:
            line = self.reports.readline()
            if not line:
                return {"outcome": "ended", "text": self._end()}
            report = json.loads(line)
            self.results[report["name"]] = report
        return self.results[name]

    def _end(self) -> str:
        status = self.popen.wait()
        self.log.seek(0)
        output = self.log.read().decode(errors="replace")[-4000:]
        return f"The process over the stand-in ended with status {status}:\n{output}"

    def close(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()
        self.reports.close()
        self.log.close()


class Failure(Exception):
    """Holds the text of a test that failed inside."""


class StandInItem(pytest.Item):
    """One test of the process inside."""

    def __init__(self, *, marks: list[str], reason: str | None, **node: Any) -> None:
        super().__init__(**node)
        self.reason = reason
        for mark in marks:
            self.add_marker(mark)

    def runtest(self) -> None:
        if self.reason is not None:
            pytest.skip(self.reason)
        result = self._process().result(self.nodeid)
        if result["outcome"] == "new process":
            end(self.session)
            result = self._process().result(self.nodeid)
        if result["outcome"] == "skipped":
            pytest.skip(result["text"])
        if result["outcome"] == "ended":
            end(self.session)
        if result["outcome"] != "passed":
            raise Failure(result["text"])

    def _process(self) -> Process:
        """The one that is running, or one for this test and all that follow."""
        stash = self.session.stash
        if _PROCESS not in stash:
            items = self.session.items[self.session.items.index(self) :]
            names = [item.nodeid for item in items if isinstance(item, StandInItem)]
            stash[_PROCESS] = Process({"run": names}, str(self.path.parent))
        return stash[_PROCESS]

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *_: Any) -> Any:
        if isinstance(excinfo.value, Failure):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


class StandInFile(pytest.File):
    """A file of tests, asked for its tests inside; where that can't be, read."""

    def collect(self) -> Iterator[StandInItem]:
        reason = unavailable()
        tests = self._named() if reason else self._collected()
        for test in tests:
            yield StandInItem.from_parent(
                self, name=test["name"], marks=["npu_standin", *test["marks"]], reason=reason
            )

    def _named(self) -> list[dict[str, Any]]:
        tree = ast.parse(self.path.read_text(encoding="utf-8"))
        functions = (node.name for node in tree.body if isinstance(node, ast.FunctionDef))
        return [{"name": name, "marks": []} for name in functions if name.startswith("test_")]

    def _collected(self) -> list[dict[str, Any]]:
        stash = self.session.stash
        if _COLLECTED not in stash:
            stash[_COLLECTED] = self._collected_by_all_workers()
        return stash[_COLLECTED].get(self.path.name, [])

    def _collected_by_all_workers(self) -> dict[str, list[dict[str, Any]]]:
        """What is inside: the first of pytest-xdist's workers asks for all of them."""
        run = getattr(self.config, "workerinput", {}).get("testrunuid")
        if run is None:
            return self._ask()
        folder = compiling.FOLDER / "collected"
        path = folder / f"{run}.json"
        with compiling.lock(folder):
            if not path.exists():
                for old in folder.glob("*.json"):
                    old.unlink()
                path.write_text(json.dumps(self._ask()))
            return json.loads(path.read_text())

    def _ask(self) -> dict[str, list[dict[str, Any]]]:
        process = Process({"collect": True}, "--collect-only", str(self.path.parent))
        result = process.result("collection")
        process.close()
        if result["outcome"] != "passed":
            raise self.CollectError(result["text"])
        return result["tests"]


def end(session: pytest.Session) -> None:
    """Ends the process inside, which has nothing left to do, hangs, or is not to be trusted."""
    if _PROCESS in session.stash:
        session.stash[_PROCESS].close()
        del session.stash[_PROCESS]
