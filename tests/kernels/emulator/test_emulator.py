"""Builds the emulator's C++ test programs with the sanitizers and reports each of their cases."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.support import compiling

EMULATOR = Path(__file__).resolve().parents[3] / "kernels" / "emulator"
PROGRAMS = ("rules", "values")
CASE_PATTERN = re.compile(
    r"^(?:CASE|RULE|BINARY_CASE|UNARY_CASE|SCALAR_CASE)\(\s*(\w+)", re.MULTILINE
)
WARNINGS = ["-std=c++17", "-Wall", "-Wextra", "-Werror"]
SANITIZERS = ["-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def sources(program: str) -> list[Path]:
    return sorted((EMULATOR / "tests").glob(f"{program}_*.cpp"))


def case_names(program: str) -> list[str]:
    return [
        match.group(1) + ("Values" if match.group(0).startswith(("BIN", "UN", "SC")) else "")
        for source in sources(program)
        for match in CASE_PATTERN.finditer(source.read_text())
    ]


def build(name: str, parts: list[Path], flags: list[str]) -> Path:
    """Returns the executable; fails the test with the compiler's words if there is none."""
    # One translation unit of all parts: the headers are most of the work.
    unit = compiling.FOLDER / "emulator" / f"{name}.cpp"
    with compiling.lock(unit.parent):
        unit.write_text("".join(f'#include "{part}"\n' for part in parts))
        flags = [*WARNINGS, *flags]
        return compiling.program(name, [unit], flags, [EMULATOR, EMULATOR / "tests"])


@pytest.fixture(scope="session")
def compiler() -> str:
    """The C++ compiler; skips where it is missing or has no half precision type."""
    name = compiling.compiler()
    probe = subprocess.run(
        [name, "-std=c++17", "-fsyntax-only", "-x", "c++", "-"],
        input="_Float16 half_value;",
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode != 0:
        pytest.skip(f"`{name}` has no _Float16 in C++: g++ 12 or later is needed")
    return name


@pytest.fixture(scope="session")
def executables(compiler: str) -> dict[str, Path]:
    """All test programs, built with the address and undefined behaviour sanitizers."""
    main = EMULATOR / "tests" / "main.cpp"
    return {name: build(name, [*sources(name), main], SANITIZERS) for name in PROGRAMS}


@pytest.fixture(scope="session")
def outcomes(executables: dict[str, Path]) -> dict[str, dict[str, str]]:
    """For each program, the line that each case printed; `exit` holds what the run ended with."""
    result = {}
    for program, executable in executables.items():
        run = subprocess.run([executable], capture_output=True, text=True, check=False)
        lines = {line.split()[1].rstrip(":"): line for line in run.stdout.splitlines() if line}
        lines["exit"] = f"{run.returncode}\n{run.stderr}"
        result[program] = lines
    return result


@pytest.mark.parametrize(
    ("program", "case"), [(program, case) for program in PROGRAMS for case in case_names(program)]
)
def test_case(outcomes: dict[str, dict[str, str]], program: str, case: str) -> None:
    line = outcomes[program].get(case, f"not run, exit {outcomes[program]['exit']}")
    assert line == f"PASS {case}"


@pytest.mark.parametrize("program", PROGRAMS)
def test_sanitizers_find_nothing(outcomes: dict[str, dict[str, str]], program: str) -> None:
    exit_status = outcomes[program]["exit"]
    assert exit_status.splitlines()[0] == "0", exit_status
    assert "runtime error" not in exit_status
    assert set(outcomes[program]) == {*case_names(program), "exit"}


def test_readme_lists_every_rule(executables: dict[str, Path]) -> None:
    """The README's table has each rule's message, word for word, beside the test's name."""
    rows = re.findall(
        r"^\| [^|]+ \| (.+?) \| `(\w+)` \|$", (EMULATOR / "README.md").read_text(), re.MULTILINE
    )
    documented = {test: message for message, test in rows}
    messages = {}
    for program in PROGRAMS:
        listing = subprocess.run(
            [executables[program], "--messages"], capture_output=True, text=True, check=True
        )
        messages.update(line.split("\t", 1) for line in listing.stdout.splitlines())
    assert documented == messages


@pytest.mark.bench
def test_speed(compiler: str) -> None:
    """At least 50 million element operations a second, all checks on."""
    executable = build("speed", [EMULATOR / "tests" / "speed.cpp"], ["-O2"])
    output = subprocess.run([executable], capture_output=True, text=True, check=True).stdout
    speeds = re.findall(r"operations_per_second=([\d.]+) ok$", output, re.MULTILINE)
    assert len(speeds) == 2, output
    assert min(map(float, speeds)) > 50.0, output
