"""What kernels/build.sh finds missing or wrong before it builds anything."""

from __future__ import annotations

import shutil

import pytest

from tests.support.made_up_machine import (
    VENDOR,
    MadeUpMachine,
    assert_missing,
    assert_stops,
    needs_tools,
    write,
)

pytestmark = needs_tools


def test_no_cann(machine: MadeUpMachine) -> None:
    assert_missing(
        machine.build(ASCEND_HOME_PATH="", ASCEND_OPP_PATH=""),
        "CANN is missing: `ASCEND_HOME_PATH` is not set and there is no toolkit in /m/no_ascend. "
        "Install the CANN toolkit for Atlas A2, 8.5.0 or later, and source its set_env.sh.",
    )


def test_cann_that_is_not_sourced(machine: MadeUpMachine) -> None:
    write(machine.folder / "ascend" / "ascend-toolkit" / "set_env.sh", "")
    assert_missing(
        machine.build(
            ASCEND_HOME_PATH="", ASCEND_OPP_PATH="", ASCEND_ROOTS=f"{machine.folder}/ascend"
        ),
        "`ASCEND_HOME_PATH` is not set: run `source /m/ascend/ascend-toolkit/set_env.sh` first.",
    )


def test_no_folder_of_cann(machine: MadeUpMachine) -> None:
    assert_missing(
        machine.build(f"--cann={machine.folder}/none"),
        "`ASCEND_HOME_PATH` (or --cann) must be the CANN toolkit's folder, "
        "but there is no folder /m/none.",
    )


def test_opp_path_is_not_set(machine: MadeUpMachine) -> None:
    assert_missing(
        machine.build(ASCEND_OPP_PATH=""),
        "`ASCEND_OPP_PATH` is not set: run `source /m/cann/set_env.sh`, or give --install-path.",
    )


def test_opp_path_is_relative(machine: MadeUpMachine) -> None:
    assert_missing(
        machine.build(ASCEND_OPP_PATH="cann/opp"),
        "`ASCEND_OPP_PATH` must be absolute, but is cann/opp: run `source /m/cann/set_env.sh`, "
        "or give --install-path.",
    )


def test_install_path_is_not_writable(machine: MadeUpMachine) -> None:
    write(machine.folder / "file", "")
    assert_missing(
        machine.build(f"--install-path={machine.folder}/file/opp"),
        "the package can't be installed in /m/file/opp, which is not writable: "
        "give --install-path.",
    )


def test_old_toolkit(machine: MadeUpMachine) -> None:
    shutil.rmtree(machine.cann / "compiler" / "tikcpp")
    info = next(machine.cann.glob("*/ascend_toolkit_install.info"))
    info.write_text("package_name=Ascend-cann-toolkit\nversion=8.1.RC1\n")
    assert_missing(
        machine.build(),
        "the CANN toolkit must be 8.5.0 or later, but the one in /m/cann is 8.1.RC1, "
        "which builds packages by msopgen only.",
    )
    info.write_text("package_name=Ascend-cann-toolkit\nversion=9.0.0\n")
    assert_missing(
        machine.build(),
        "the CANN toolkit in /m/cann (9.0.0) has no ASCConfig.cmake: "
        "the operator package needs CANN 8.5.0 or later.",
    )


def test_the_oldest_toolkit_is_enough(machine: MadeUpMachine) -> None:
    info = next(machine.cann.glob("*/ascend_toolkit_install.info"))
    info.write_text("package_name=Ascend-cann-toolkit\nversion=8.5.0\n")
    assert machine.build("--check", "--jobs=1").stderr == ""


def test_runtime_without_compiler(machine: MadeUpMachine) -> None:
    for name in ("bisheng", "asc_opc"):
        (machine.cann / "bin" / name).unlink()
    assert_missing(
        machine.build(),
        *(
            f"there is no {name} in /m/cann: the runtime alone (nnrt, nnae) can't build, "
            "install the toolkit."
            for name in ("bisheng", "asc_opc")
        ),
    )


def test_toolkit_whose_programs_are_not_in_path(machine: MadeUpMachine) -> None:
    """--cann without set_env.sh: the programs are there, but CANN's build would not find them."""
    (machine.cann / "set_env.sh").rename(machine.folder / "set_env.sh")  # where CANN 8 has it
    assert_missing(
        machine.build(f"--cann={machine.cann}", PATH=str(machine.tools)),
        *(
            f"{name} is not in PATH, where CANN's build looks for it: "
            f"run `source /m/set_env.sh` first (it is /m/cann/bin/{name})."
            for name in ("bisheng", "asc_opc")
        ),
    )


def test_no_python3_in_path(machine: MadeUpMachine) -> None:
    (machine.tools / "python3").unlink()
    assert_missing(machine.build(), "python3 is not in PATH, where CANN's build looks for it.")


def test_toolkit_for_another_processor(machine: MadeUpMachine) -> None:
    machine.tool("uname", "echo riscv64")
    info = next(machine.cann.glob("*/ascend_toolkit_install.info"))
    info.write_text("version=9.1.0\narch=aarch64\n")
    assert_missing(
        machine.build(),
        "the CANN toolkit in /m/cann is for aarch64, but this machine is riscv64.",
    )


@pytest.mark.parametrize(
    ("chip", "soc"),
    [("910A", "ascend910"), ("910_9391", "ascend910_93"), ("310P3", "ascend310p")],
)
def test_wrong_chip(machine: MadeUpMachine, chip: str, soc: str) -> None:
    machine.tool("npu-smi", f"echo '0 0 0 Ascend {chip}'")
    assert_missing(
        machine.build(),
        f"this machine's chip is {chip} ({soc}), but the kernels are for ascend910b "
        "and would not start on it.",
    )


@pytest.mark.parametrize("chip", ["910B1", "910B2", "910B2C", "910B3", "910B4", "910B4-1"])
def test_right_chips(machine: MadeUpMachine, chip: str) -> None:
    machine.tool("npu-smi", f"echo '0 0 0 Ascend {chip}'")
    assert machine.build("--check", "--jobs=1").stderr == ""


def test_no_npu_smi(machine: MadeUpMachine) -> None:
    (machine.tools / "npu-smi").unlink()
    result = machine.build("--check")
    assert_stops(
        result,
        0,
        "note: npu-smi is not in PATH: whether this machine's chip is ascend910b is not checked.",
    )


def test_driver_that_is_not_ready(machine: MadeUpMachine) -> None:
    machine.tool("npu-smi", "echo 'DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)'; exit 1")
    assert_missing(
        machine.build(),
        "npu-smi fails, so the driver isn't ready: "
        "DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)",
    )


def test_missing_tools_are_all_listed(machine: MadeUpMachine) -> None:
    for name in ("cmake", "make", "g++"):
        (machine.tools / name).unlink()
    assert_missing(
        machine.build("--python=/no/python"),
        "there is no Python /no/python: give --python.",
        "cmake is missing: install 3.20 or later.",
        "make is missing.",
        "the C++ compiler g++ is missing: install g++ 9 or later, or give --cxx.",
    )


def test_old_tools(machine: MadeUpMachine) -> None:
    machine.tool("cmake", "echo 'cmake version 3.9.6'")
    machine.tool("g++", "echo 7.3.0")
    assert_missing(
        machine.build(),
        "cmake must be 3.20 or later, but is 3.9.6.",
        "the C++ compiler g++ must be g++ 9 or later for torch's headers, but is 7.3.0.",
    )


def test_no_torch(machine: MadeUpMachine) -> None:
    shutil.rmtree(machine.site)
    assert_missing(
        machine.build(),
        "torch can't be imported by this Python: ModuleNotFoundError: No module named 'torch'",
    )


def test_no_torch_npu(machine: MadeUpMachine) -> None:
    shutil.rmtree(machine.site / "torch_npu-2.13.0.dist-info")
    assert_missing(
        machine.build(),
        "torch_npu is not installed in this Python: pip install torch-npu==2.13.0",
    )


def test_torch_npu_for_another_torch(machine: MadeUpMachine) -> None:
    assert_missing(
        machine.build(MADE_UP_TORCH="2.14.1"),
        "torch_npu 2.13.0 is made for torch 2.13.0, but torch is 2.14.1: "
        "install one of the two anew.",
    )


def test_torch_npu_without_its_libraries(machine: MadeUpMachine) -> None:
    write(machine.site / "torch_npu" / "__init__.py", "raise ImportError('libhccl.so: no file')")
    assert_missing(
        machine.build(),
        "torch_npu can't be imported: ImportError: libhccl.so: no file. "
        "Is CANN's set_env.sh sourced, and the driver's lib64 in LD_LIBRARY_PATH?",
    )


@pytest.mark.parametrize(
    ("header", "lack"),
    [
        ("include/npu_cpp_extension.h", "npu_cpp_extension.h"),
        ("utils/op_api_common_base.h", "EXEC_NPU_CMD_EXT in op_api_common_base.h"),
    ],
)
def test_torch_npu_that_is_too_old(machine: MadeUpMachine, header: str, lack: str) -> None:
    """Up to TorchNPU 7.3 the binding's header is missing, and the macro that it calls."""
    folder = machine.site / "torch_npu" / "include" / "third_party" / "op-plugin" / "op_plugin"
    (folder / header).unlink()
    if " in " in lack:
        (folder / header).write_text("#define EXEC_NPU_CMD(name, ...)\n")
    write(
        machine.site / "torch_npu-2.13.0.dist-info" / "METADATA",
        "Metadata-Version: 2.1\nName: torch_npu\nVersion: 2.9.0\n",
    )
    assert_missing(
        machine.build(MADE_UP_TORCH="2.9.0+cpu"),
        f"torch_npu 2.9.0 has no {lack}, which the binding needs: install a package of "
        "TorchNPU 26.0.0 or later, such as torch-npu==2.9.0.post9.",
    )


def test_torch_npu_for_another_cann(machine: MadeUpMachine) -> None:
    write(
        machine.site / "torch_npu-2.13.0.dist-info" / "METADATA",
        "Metadata-Version: 2.1\nName: torch_npu\nVersion: 2.10.0\n",
    )
    # TorchNPU's release notes call 9.1 compatible, so there is nothing to say.
    assert machine.build("--check", "--jobs=1", MADE_UP_TORCH="2.10.0").stderr == ""
    info = next(machine.cann.glob("*/ascend_toolkit_install.info"))
    info.write_text("version=9.3.0\n")
    assert_stops(
        machine.build("--check", "--jobs=1", MADE_UP_TORCH="2.10.0"),
        0,
        "note: torch_npu 2.10.0 (TorchNPU 26.0.0) goes with CANN 9.0.0 and runs with 8.5, 9.0, 9.1 "
        "and 9.2, but the toolkit is 9.3.0.",
    )


# Vendors and custom packages

SAME_OPERATOR = "void aclnnRnntLossFused(void) {}"


def test_custom_path_with_the_operator_of_another_vendor(machine: MadeUpMachine) -> None:
    other = machine.folder / "others" / "vendors" / "customize"
    machine.library(SAME_OPERATOR, other / "op_api" / "lib" / "libcust_opapi.so")
    assert_missing(
        machine.build(ASCEND_CUSTOM_OPP_PATH=str(other)),
        "`ASCEND_CUSTOM_OPP_PATH` puts /m/others/vendors/customize first, which has an "
        "RnntLossFused of its own: that one would run instead of this one. Take it out, or put "
        f"{VENDOR} before it.",
    )
    ours_first = f"{machine.opp}/vendors/asr_ascend:{other}"
    assert machine.build("--check", "--jobs=1", ASCEND_CUSTOM_OPP_PATH=ours_first).stderr == ""


def test_custom_path_without_the_operator_is_no_matter(machine: MadeUpMachine) -> None:
    other = machine.folder / "others"
    machine.library("void aclnnOther(void) {}", other / "op_api" / "lib" / "libcust_opapi.so")
    assert machine.build("--check", "--jobs=1", ASCEND_CUSTOM_OPP_PATH=str(other)).stderr == ""


def test_custom_path_that_names_no_vendor(machine: MadeUpMachine) -> None:
    (machine.folder / "others" / "vendors").mkdir(parents=True)
    others, none = f"{machine.folder}/others", f"{machine.folder}/none"
    assert_stops(
        machine.build("--check", ASCEND_CUSTOM_OPP_PATH=f"{others}:{none}"),
        0,
        "note: `ASCEND_CUSTOM_OPP_PATH` must name vendors' own folders, such as "
        "/m/others/vendors/asr_ascend, but names /m/others.",
        "note: `ASCEND_CUSTOM_OPP_PATH` names a folder that isn't there: /m/none.",
    )


def test_another_vendor_has_the_operator(machine: MadeUpMachine) -> None:
    """It runs unless set_env.bash names ours; config.ini doesn't list what --install-path made."""
    vendors = machine.opp / "vendors"
    machine.library(SAME_OPERATOR, vendors / "other" / "op_api" / "lib" / "libcust_opapi.so")
    write(vendors / "config.ini", "load_priority=other\n")
    sentence = (
        "note: /m/cann/opp/vendors/other has an RnntLossFused of its own, which runs in every "
        f"shell that doesn't source {VENDOR}/bin/set_env.bash."
    )
    assert_stops(machine.build("--check", "--jobs=1"), 0, sentence)
    result = machine.build("--only=package", "--jobs=1")
    assert_stops(result, 0, sentence)
    assert f"build.sh: In every shell that uses the operator: source {VENDOR}/bin/set_env.bash" in (
        result.stdout.splitlines()
    )
    assert (vendors / "config.ini").read_text() == "load_priority=other\n"
