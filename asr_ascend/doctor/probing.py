"""Runs what may crash or hang in processes of its own: imports, libraries, losses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from asr_ascend.doctor.machine import end

SECONDS = 60.0
MARK = "asr_ascend.doctor: "
# The child sees the modules that this process sees, wherever it was started.
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from asr_ascend.doctor import probe; probe.main()"
)


@dataclass(frozen=True)
class Outcome:
    """What became of a step.

    Args:
        values: what the step found, None where it failed.
        failure: what went wrong, without a full stop; None where nothing did.
    """

    values: Mapping[str, Any] | None
    failure: str | None = None

    def __getitem__(self, name: str) -> Any:
        return (self.values or {}).get(name)


NOT_REACHED = Outcome(None, "it was not looked at")


@dataclass
class Child:
    """Steps that run one after another in a process; after a crash the rest run in a new one.

    Args:
        steps: names of functions in `probe.py`, each with arguments after colons.
        variables: of the environment.
        seconds: for a process in all.
    """

    steps: Sequence[str]
    variables: Mapping[str, str]
    seconds: float = SECONDS
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    _process: subprocess.Popen[str] | None = None
    _deadline: float = 0.0

    def start(self) -> None:
        """Starts the process for the steps that have no outcome yet."""
        left = [step for step in self.steps if step not in self.outcomes]
        self._deadline = time.monotonic() + self.seconds
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, json.dumps(sys.path), *left],
                env=dict(self.variables),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            reason = f"{sys.executable} can't be started: {error.strerror}"
            self.outcomes.update({step: Outcome(None, reason) for step in left})

    def finish(self) -> dict[str, Outcome]:
        """Waits for every step, and says what became of each."""
        while self._process is not None:
            self._read_one_process()
            if self._process is None and any(step not in self.outcomes for step in self.steps):
                self.start()
        return self.outcomes

    def stop(self) -> None:
        """Ends the process, whatever it does."""
        if self._process is not None:
            end(self._process)
            self._process = None

    def _read_one_process(self) -> None:
        process, self._process = self._process, None
        assert process is not None
        hung = False
        try:
            printed, errors = process.communicate(
                timeout=max(0.1, self._deadline - time.monotonic())
            )
        except subprocess.TimeoutExpired as timeout:
            hung = True
            end(process)
            printed, errors = _as_text(timeout.stdout), _as_text(timeout.stderr)
        except BaseException:
            end(process)
            raise
        for line in printed.splitlines():
            if line.startswith(MARK):
                found = json.loads(line.removeprefix(MARK))
                self.outcomes[found["step"]] = Outcome(found["values"], found["failure"])
        left = [step for step in self.steps if step not in self.outcomes]
        if left:  # what it was at when it ended
            reason = (
                f"it did not end within {self.seconds:.0f} s"
                if hung
                else _ended(process.returncode, errors)
            )
            self.outcomes[left[0]] = Outcome(None, reason)


def run(children: Sequence[Child]) -> dict[str, Outcome]:
    """Runs all at once; the outcome of each step of each."""
    try:
        for child in children:
            child.start()
        for child in children:
            child.finish()
    finally:
        for child in children:
            child.stop()
    return {step: outcome for child in children for step, outcome in child.outcomes.items()}


def _ended(status: int, errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    if status >= 0:
        return f"the process ended with status {status}: {lines[-1] if lines else 'no message'}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"the process was ended by {name}"


def _as_text(printed: Any) -> str:
    return printed.decode(errors="replace") if isinstance(printed, bytes) else printed or ""
