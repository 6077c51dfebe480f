"""kernels/build.sh on a machine that never was: what it builds, records and keeps."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.support.made_up_machine import BARE_PYTHON, VENDOR, MadeUpMachine, needs_tools, write

pytestmark = needs_tools
NO_NPU = (
    "build.sh: note: no NPU can be used here, so the loss was not run: "
    "torch.npu.is_available() is False.\n"
)


def test_builds_installs_and_checks_everything(machine: MadeUpMachine) -> None:
    result = machine.build(f"--python={BARE_PYTHON}")
    assert result.stderr == NO_NPU
    assert result.stdout.splitlines() == [
        "build.sh: configuring the operator package ...",
        "build.sh: compiling the kernels for ascend910b ...",
        "build.sh: packing the operators ...",
        "build.sh: installing custom_opp_made_up.run in /m/cann/opp ...",
        f"build.sh: The package is installed in {VENDOR}; its libraries load.",
        "build.sh: compiling the torch binding (torch 2.13.0+cpu, C++11 ABI 1) ...",
        "build.sh: The binding is /m/repository/asr_ascend/lib/libasr_ascend_npu.so; "
        "torch takes its operators.",
        "build.sh: running the loss on the NPU ...",
        f"build.sh: In every shell that uses the operator: source {VENDOR}/bin/set_env.bash",
        "build.sh: Done. Record of the environment: /m/build/environment.txt",
    ]
    assert result.returncode == 0
    assert sorted(path.name for path in (machine.build_dir / "logs").iterdir()) == [
        "binding.log",
        "load-libasr_ascend_npu.so.log",
        "load-libcust_opapi.so.log",
        "package-binary.log",
        "package-configure.log",
        "package-install.log",
        "package-package.log",
        "smoke.log",
    ]


def test_record_of_the_environment(machine: MadeUpMachine) -> None:
    machine.build("--check")
    assert not (machine.build_dir / "environment.txt").exists()
    machine.build()
    text = (machine.build_dir / "environment.txt").read_text().replace(str(machine.folder), "/m")
    record = dict(line.split("=", 1) for line in text.splitlines())
    compiler = record.pop("package_cxx")
    assert record.pop("binding_cxx") == compiler
    assert compiler.startswith("g++ ")
    assert record.pop("python_version").count(".") == 2
    assert record.pop("machine") == subprocess.check_output(["uname", "-m"], text=True).strip()
    assert record == {
        "cann": "/m/cann",
        "cann_version": "9.1.0",
        "device_compiler": "/m/cann/bin/bisheng",
        "soc": "ascend910b",
        "vendor": "asr_ascend",
        "package_source": "/m/repository/kernels",
        "python": str(BARE_PYTHON),
        "torch": "2.13.0+cpu",
        "torch_npu": "2.13.0",
        "cxx11_abi": "1",
        "binding_source": "/m/repository/kernels",
    }


def test_check_builds_nothing(machine: MadeUpMachine) -> None:
    result = machine.build("--check", "--jobs=1")
    assert (result.returncode, result.stdout, result.stderr) == (
        0,
        "build.sh: Nothing is missing.\n",
        "",
    )
    assert list(machine.build_dir.rglob("*")) == [machine.build_dir / "logs"]


def test_the_package_alone_needs_no_torch(machine: MadeUpMachine) -> None:
    shutil.rmtree(machine.site)
    result = machine.build("--only=package")
    assert (result.returncode, result.stderr) == (0, "")
    assert not (machine.kernels.parent / "asr_ascend" / "lib").exists()


def test_the_binding_alone_needs_no_cann(machine: MadeUpMachine) -> None:
    shutil.rmtree(machine.cann)
    result = machine.build("--only", "binding", ASCEND_HOME_PATH="", ASCEND_OPP_PATH="")
    assert (result.returncode, result.stderr) == (0, "")


def test_another_install_path_says_what_to_source(machine: MadeUpMachine) -> None:
    result = machine.build("--only=package", f"--install-path={machine.folder}/private")
    assert result.stdout.splitlines()[-2:] == [
        "build.sh: In every shell that uses the operator: "
        "source /m/private/vendors/asr_ascend/bin/set_env.bash",
        "build.sh: Done. Record of the environment: /m/build/environment.txt",
    ]


# Options


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--fast"], "there is no option `--fast`."),
        (["--vendor"], "`--vendor` needs a value."),
        (["--only=kernel"], "`--only` must be package or binding, but is kernel."),
        (["--jobs=0"], "`--jobs` (or MAX_JOBS) must be a number above 0, but is 0."),
        (["--memory=much"], "`--memory` must be a number of GiB above 0, but is much."),
        (
            ["--vendor=My-Vendor"],
            "`--vendor` must be lower-case letters, digits and _, but is My-Vendor.",
        ),
        (
            ["--vendor=customize"],
            "`--vendor` must not be customize: the samples' packages have "
            "that name, and the next one installed would replace this one.",
        ),
        (
            ["--soc=ascend910_93"],
            "`--soc` must be one that the operator is defined for "
            "(ascend910b), but is ascend910_93.",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_wrong_options(machine: MadeUpMachine, options: list[str], sentence: str) -> None:
    result = machine.build(*options)
    assert result.stderr == f"build.sh: {sentence}\nTry kernels/build.sh --help.\n"
    assert (result.returncode, result.stdout) == (2, "")


def test_help(machine: MadeUpMachine) -> None:
    result = machine.build("--help")
    assert result.stdout.startswith("usage: kernels/build.sh [options]\n")
    assert (result.returncode, result.stderr) == (0, "")


# Jobs


@pytest.mark.parametrize(
    ("options", "max_jobs", "expected", "said"),
    [
        (["--memory=64"], "3", 3, ""),
        (
            ["--memory=5"],
            "16",
            2,
            "build.sh: 2 compile job(s) instead of 16: 5 GiB of memory are "
            "free, and one takes up to 2.\n",
        ),
        (
            ["--memory=1", "--jobs=4"],
            "16",
            1,
            "build.sh: 1 compile job(s) instead of 4: 1 GiB of "
            "memory are free, and one takes up to 2.\n",
        ),
    ],
    ids=["as asked", "fewer", "one at least"],
)
def test_jobs_fit_the_memory(
    machine: MadeUpMachine, options: list[str], max_jobs: str, expected: int, said: str
) -> None:
    result = machine.build(*options, MAX_JOBS=max_jobs)
    assert result.returncode == 0
    assert result.stdout.partition("build.sh: configuring")[0] == said
    logs = machine.build_dir / "logs"
    assert f"MAX_JOBS={expected}\n" in (logs / "binding.log").read_text()
    assert f"--target binary -j {expected} " in (logs / "package-binary.log").read_text()


def test_the_binding_gets_the_chosen_compiler(machine: MadeUpMachine) -> None:
    compiler = machine.tools / "my-g++"
    compiler.symlink_to(shutil.which("g++"))
    assert machine.build("--only=binding", CXX=str(compiler)).returncode == 0
    log = (machine.build_dir / "logs" / "binding.log").read_text()
    assert f"CXX={compiler} MAX_JOBS=" in log


# Caches


def built_anew(machine: MadeUpMachine, *options: str, **environment: str) -> list[str]:
    """What is said of caches; marks left in them must be gone where that is anything."""
    for part in ("package", "binding"):
        if (machine.build_dir / part).exists():
            write(machine.build_dir / part / "mark", "")
    result = machine.build(*options, **environment)
    assert result.returncode == 0, result.stderr
    said = [line for line in result.stdout.splitlines() if line.endswith(" is built anew.")]
    for part in ("package", "binding"):
        mark = machine.build_dir / part / "mark"
        assert mark.exists() != any(f"the {part} is built anew" in line for line in said)
    return said


def test_caches_of_another_environment_are_dropped(machine: MadeUpMachine) -> None:
    machine.build()
    assert built_anew(machine) == []
    assert built_anew(machine, MADE_UP_TORCH="2.13.0+npu") == [
        "build.sh: torch was 2.13.0+cpu and is 2.13.0+npu: the binding is built anew."
    ]
    next(machine.cann.glob("*/ascend_toolkit_install.info")).write_text("version=9.2.0\n")
    assert built_anew(machine, MADE_UP_TORCH="2.13.0+npu") == [
        "build.sh: cann_version was 9.1.0 and is 9.2.0: the package is built anew."
    ]
    assert built_anew(machine, "--vendor=mine", "--clean", MADE_UP_TORCH="2.13.0+npu") == [
        "build.sh: --clean was given: the package is built anew.",
        "build.sh: --clean was given: the binding is built anew.",
    ]


def test_a_cache_without_record_is_dropped(machine: MadeUpMachine) -> None:
    machine.build()
    (machine.build_dir / "environment.txt").unlink()
    assert built_anew(machine) == [
        "build.sh: there is no record of the last build's cann: the package is built anew.",
        "build.sh: there is no record of the last build's python: the binding is built anew.",
    ]


def test_building_one_part_keeps_the_record_of_the_other(machine: MadeUpMachine) -> None:
    machine.build()
    before = (machine.build_dir / "environment.txt").read_text()
    machine.build("--only=binding", MADE_UP_TORCH="2.13.0+npu")
    after = (machine.build_dir / "environment.txt").read_text()
    assert after == before.replace("2.13.0+cpu", "2.13.0+npu")
