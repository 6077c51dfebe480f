"""What kernels/build.sh says of a build that fails, and of a result that can't be used."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.made_up_machine import (
    FUNCTIONS,
    REPOSITORY,
    VENDOR,
    MadeUpMachine,
    assert_stops,
    needs_tools,
    write,
)

pytestmark = needs_tools
# Builds that fail

LOG = """[ 10%] Building rnnt_loss_fused.o with -Werror
/src/error_codes.h:3: note: 0 errors so far
/src/rnnt_loss_rows.h:41:7: error: no member named 'Foo' in namespace 'AscendC'
    AscendC::Foo(x);
             ^~~
1 error generated.
/src/other.h:1:1: error: a second one
make[2]: *** [binary] Error 1
make: *** [all] Error 2
"""


def failing(machine: MadeUpMachine, log: str) -> list[str]:
    text = machine.cann / "made_up" / "log.txt"
    write(text, log)
    write(machine.cann / "made_up" / "binary.sh", f"cat {text}; exit 1")
    result = machine.build(MAX_JOBS="1")
    assert result.returncode == 1
    lines = result.stderr.splitlines()
    assert lines.pop(0) == (
        "build.sh: compiling the kernels for ascend910b failed. The log is "
        "/m/build/logs/package-binary.log; its first error:"
    )
    return lines


def test_the_first_error_is_shown(machine: MadeUpMachine) -> None:
    assert failing(machine, LOG) == [
        "  /src/rnnt_loss_rows.h:41:7: error: no member named 'Foo' in namespace 'AscendC'",
        "      AscendC::Foo(x);",
        "               ^~~",
        "  1 error generated.",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "Traceback (most recent call last):\nModuleNotFoundError: No module named 'decorator'",
        "[ERROR] opc tool compile failed, kernel RnntLossFused",
        "/bin/ld: foo.o: undefined reference to `aclnnInit'",
        "CMake Error at CMakeLists.txt:12 (find_package):",
        "sh: bisheng: command not found",
    ],
)
def test_errors_of_many_tools(tmp_path: Path, line: str) -> None:
    """What the end of a failed step shows of a log: another log needs no other build."""
    log = write(tmp_path / "log", f"no error here\n{line}\nlater.c:1:1: error: another\n")
    report = REPOSITORY / "kernels" / "build_npu" / "report.sh"
    script = '. "$1"; jobs=1; fail_step "a step" "$2"'
    result = subprocess.run(
        ["bash", "-uo", "pipefail", "-c", script, "bash", report, log],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert result.stderr.splitlines()[:2] == [
        f"build.sh: a step failed. The log is {log}; its first error:",
        f"  {line.splitlines()[-1]}",
    ]


def test_a_compiler_that_was_killed(machine: MadeUpMachine) -> None:
    log = "x\ng++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.\n"
    shown = failing(machine, log)
    assert shown[0] == "  g++: fatal error: Killed signal terminated program cc1plus"
    assert shown[-1] == "build.sh: The compiler ran out of memory: set MAX_JOBS to less than 1."


def test_a_log_without_an_error(machine: MadeUpMachine) -> None:
    shown = failing(machine, "".join(f"step {i}\n" for i in range(20)))
    assert shown[0].startswith("  make") and "***" in shown[0]


def test_a_build_that_leaves_no_package(machine: MadeUpMachine) -> None:
    write(machine.cann / "made_up" / "package.sh", "true")
    assert_stops(
        machine.build(),
        1,
        "the build must leave one .run package in /m/build/package, but left 0.",
    )


# What was built can't be used


def installs(machine: MadeUpMachine, old: str, new: str) -> subprocess.CompletedProcess[str]:
    script = machine.cann / "made_up" / "package.sh"
    text = script.read_text()
    assert old in text
    script.write_text(text.replace(old, new))
    return machine.build()


def test_package_of_another_vendor_name(machine: MadeUpMachine) -> None:
    assert_stops(
        installs(machine, "vendors/$2", "vendors/customize"),
        4,
        f"the package was installed, but there is no {VENDOR}: "
        "was it made for another vendor name?",
    )


def test_package_without_library(machine: MadeUpMachine) -> None:
    assert_stops(
        installs(machine, 'cp "$ASCEND_HOME_PATH/made_up/libcust_opapi.so"', "true"),
        4,
        "the package was installed, but it has no op_api/lib/libcust_opapi.so.",
    )


def test_package_without_kernels_for_the_chip(machine: MadeUpMachine) -> None:
    assert_stops(
        installs(machine, "kernel/ascend910b", "kernel/ascend910_93"),
        4,
        "the package has no kernel of RnntLossFused for ascend910b: there is no .o in "
        f"{VENDOR}/op_impl/ai_core/tbe/kernel/ascend910b/rnnt_loss_fused.",
    )


def test_library_without_a_function(machine: MadeUpMachine) -> None:
    machine.library("".join(f"void {name}(void) {{}}\n" for name in FUNCTIONS[:-1]))
    assert_stops(
        machine.build(),
        4,
        f"{VENDOR}/op_api/lib/libcust_opapi.so has no symbol "
        "aclnnRnntLossBackwardGetWorkspaceSize.",
    )


def test_library_that_does_not_load(machine: MadeUpMachine) -> None:
    functions = "".join(f"void {name}(void) {{}}\n" for name in FUNCTIONS)
    machine.library(
        functions + "int NnopbaseMissing(void); int f(void) { return NnopbaseMissing(); }"
    )
    result = machine.build()
    library = f"{VENDOR}/op_api/lib/libcust_opapi.so"
    assert_stops(result, 4, f"{library} doesn't load: {library}: undefined symbol: NnopbaseMissing")


def test_binding_for_another_torch(machine: MadeUpMachine) -> None:
    source = "int _ZN3c106detailE(void); int f(void) { return _ZN3c106detailE(); }"
    library = "/m/repository/asr_ascend/lib/libasr_ascend_npu.so"
    assert_stops(
        machine.build(MADE_UP_BINDING=source),
        4,
        f"{library} is built, but can't be used: {library}: undefined symbol: _ZN3c106detailE. "
        "It was compiled for another torch or C++ ABI than 2.13.0+cpu's.",
    )


def test_binding_that_lacks_an_operator(machine: MadeUpMachine) -> None:
    assert_stops(
        machine.build(MADE_UP_LACK="asr_ascend::rnnt_loss_backward_"),
        4,
        "/m/repository/asr_ascend/lib/libasr_ascend_npu.so is built, but can't be used: "
        "it has no implementation of asr_ascend::rnnt_loss_backward_ for the NPU.",
    )


def test_binding_of_a_checkout_that_python_does_not_use(machine: MadeUpMachine) -> None:
    for name in ("", "losses"):
        write(machine.site / "asr_ascend" / name / "__init__.py", "")
    hook = f"import sys; sys.path.insert(0, {str(machine.site)!r})\n"
    write(
        machine.site / "torch" / "__init__.py",
        hook + (machine.site / "torch" / "__init__.py").read_text(),
    )
    assert_stops(
        machine.build(),
        4,
        "/m/repository/asr_ascend/lib/libasr_ascend_npu.so is built, but can't be used: "
        "this Python takes asr_ascend from /m/site/asr_ascend: install this checkout there.",
    )


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="there is no shellcheck")
@pytest.mark.parametrize("script", ["build.sh"])
def test_shellcheck(script: str) -> None:
    command = ["shellcheck", "-x", f"kernels/{script}"]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert result.stdout == ""
