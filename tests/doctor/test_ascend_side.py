"""Driver, chip, CANN and its environment, on a made-up Atlas A2 with one part broken."""

from __future__ import annotations

import os
import shutil

import pytest

from asr_ascend.doctor import ascend_side, versions
from tests.support.atlas_a2 import OTHER_PROCESSOR, AtlasA2
from tests.support.made_up_machine import needs_tools, write

pytestmark = needs_tools
SOURCE = "source /m/cann/set_env.sh"


def test_all_is_right(atlas: AtlasA2) -> None:
    machine = atlas.machine()
    assert atlas.said(ascend_side.driver(machine)) == ["ok", "25.5.1", None]
    assert atlas.said(ascend_side.chip(machine)) == ["ok", "910B3 (ascend910b)", None]
    assert atlas.said(ascend_side.cann(machine)) == ["ok", "9.1.0 in /m/cann", None]
    sentence = "`ASCEND_HOME_PATH` and `ASCEND_OPP_PATH` are set"
    assert atlas.said(ascend_side.environment(machine)) == ["ok", sentence, None]
    assert atlas.said(ascend_side.libraries(machine)) == ["ok", "in LD_LIBRARY_PATH", None]


# Driver and chip


def test_no_driver(atlas: AtlasA2) -> None:
    atlas.device.unlink()
    atlas.driver.unlink()
    (atlas.tools / "npu-smi").unlink()
    assert atlas.said(ascend_side.driver(atlas.machine())) == [
        "missing",
        "there is no driver: no version.info, no npu-smi, no device file",
        "install the driver and firmware of Atlas A2 (docs/ascend.md)",
    ]


def test_a_container_without_the_device(atlas: AtlasA2) -> None:
    atlas.device.unlink()
    assert atlas.said(ascend_side.driver(atlas.machine())) == [
        "warning",
        "25.5.1, but there is no /m/davinci_manager: in a container, it must be handed in",
        "docker run --device=/dev/davinci0 --device=/dev/davinci_manager --device=/dev/devmm_svm "
        "--device=/dev/hisi_hdc ...",
    ]


def test_a_device_that_this_user_may_not_open(
    atlas: AtlasA2, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may open everything
    assert atlas.said(ascend_side.driver(atlas.machine())) == [
        "wrong",
        "25.5.1, but this user may not open /m/davinci_manager",
        "sudo usermod -aG HwHiAiUser $USER, and log in again",
    ]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "echo 'DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)'; exit 1",
            [
                "wrong",
                "npu-smi fails, so the driver isn't ready: DrvMngGetConsoleLogLevel failed. "
                "(g_conLogLevel=3)",
                "sudo reboot, or install the driver anew",
            ],
        ),
        ("echo none", ["warning", "npu-smi names no chip", "npu-smi info -m"]),
        (
            "echo '0 0 0 Ascend 910B4-1'; echo '0 1 - Mcu'; echo '1 0 1 Ascend 910B4-1'",
            ["ok", "910B4-1 (ascend910b), 2 of them", None],
        ),
        (
            "echo '0 0 0 Ascend 310P3'",
            [
                "wrong",
                "310P3 (ascend310p), but the kernels are for ascend910b and don't start on it",
                None,
            ],
        ),
        (
            "echo '0 0 0 Ascend 910X'",
            ["warning", "npu-smi names a chip 910X that is not known here", "npu-smi info -m"],
        ),
    ],
)
def test_what_npu_smi_says(atlas: AtlasA2, script: str, said: list[str | None]) -> None:
    atlas.tool("npu-smi", script)
    assert atlas.said(ascend_side.chip(atlas.machine())) == said


def test_no_npu_smi(atlas: AtlasA2) -> None:
    (atlas.tools / "npu-smi").unlink()
    assert atlas.said(ascend_side.chip(atlas.machine())) == [
        "warning",
        "npu-smi is not in PATH, so the chip is not known",
        "export PATH=$PATH:/usr/local/bin:/usr/local/sbin",
    ]


# CANN


def test_no_toolkit(atlas: AtlasA2) -> None:
    assert atlas.said(ascend_side.cann(atlas.machine(ASCEND_HOME_PATH=""))) == [
        "missing",
        "`ASCEND_HOME_PATH` is not set and there is no toolkit in /m/ascend",
        "install the CANN toolkit for Atlas A2, 8.5.0 or later (docs/ascend.md)",
    ]


def test_a_toolkit_that_is_not_sourced(atlas: AtlasA2) -> None:
    write(atlas.folder / "ascend" / "ascend-toolkit" / "set_env.sh", "")
    script = "/m/ascend/ascend-toolkit/set_env.sh"
    machine = atlas.machine(ASCEND_HOME_PATH="", ASCEND_OPP_PATH="")
    assert atlas.said(ascend_side.cann(machine)) == [
        "missing",
        f"`ASCEND_HOME_PATH` is not set, but there is {script}",
        f"source {script}",
    ]
    assert atlas.said(ascend_side.environment(machine)) == [
        "missing",
        "set_env.sh is not sourced",
        f"source {script}",
    ]


@pytest.mark.parametrize(
    ("info", "said"),
    [
        (
            "version=8.1.RC1\n",
            [
                "wrong",
                "the toolkit in /m/cann is 8.1.RC1, but must be 8.5.0 or later",
                "install CANN 8.5.0 or later and source its set_env.sh",
            ],
        ),
        (
            f"version=9.1.0\narch={OTHER_PROCESSOR}\n",
            [
                "wrong",
                f"the toolkit in /m/cann is for {OTHER_PROCESSOR}, but this machine is "
                f"{os.uname().machine}",
                f"install the toolkit for {os.uname().machine}",
            ],
        ),
        (
            "nothing\n",
            [
                "warning",
                "the toolkit in /m/cann doesn't say its version; it must be 8.5.0 or later",
                "ls /m/cann",
            ],
        ),
    ],
)
def test_what_a_toolkit_says_of_itself(atlas: AtlasA2, info: str, said: list[str | None]) -> None:
    next(atlas.cann.glob("*/ascend_toolkit_install.info")).write_text(info)
    assert atlas.said(ascend_side.cann(atlas.machine())) == said


@pytest.mark.parametrize("kind", ["gone", "loop", "file"])
def test_a_folder_of_cann_that_cannot_be_read(atlas: AtlasA2, kind: str) -> None:
    """A loop of links can't be read by anyone, not even by root, whom no permission stops."""
    shutil.rmtree(atlas.cann)
    reasons = {
        "gone": "No such file or directory",
        "loop": "Too many levels of symbolic links",
        "file": "Not a directory",
    }
    if kind == "loop":
        atlas.cann.symlink_to(atlas.cann)
    elif kind == "file":
        write(atlas.cann, "")
    machine = atlas.machine()
    assert atlas.said(ascend_side.cann(machine)) == [
        "wrong",
        f"`ASCEND_HOME_PATH` names /m/cann, which can't be read: {reasons[kind]}",
        "source /m/ascend/ascend-toolkit/set_env.sh",
    ]
    assert ascend_side.environment(machine).status == "wrong"
    assert ascend_side.libraries(machine).status == "missing"


# set_env


def test_half_of_set_env(atlas: AtlasA2) -> None:
    assert atlas.said(ascend_side.environment(atlas.machine(ASCEND_OPP_PATH=""))) == [
        "wrong",
        "half of it is set: `ASCEND_HOME_PATH` is /m/cann, `ASCEND_OPP_PATH` is not set",
        SOURCE,
    ]
    assert atlas.said(ascend_side.environment(atlas.machine(ASCEND_HOME_PATH=""))) == [
        "missing",
        "half of it is set: `ASCEND_OPP_PATH` is /m/cann/opp, `ASCEND_HOME_PATH` is not set",
        "source /m/ascend/ascend-toolkit/set_env.sh",
    ]


def test_two_toolkits_mixed(atlas: AtlasA2) -> None:
    (atlas.folder / "elsewhere" / "other" / "opp").mkdir(parents=True)
    machine = atlas.machine(ASCEND_OPP_PATH=f"{atlas.folder}/elsewhere/other/opp")
    assert atlas.said(ascend_side.environment(machine)) == [
        "wrong",
        "two toolkits are mixed: `ASCEND_HOME_PATH` is /m/cann, `ASCEND_OPP_PATH` is "
        "/m/elsewhere/other/opp",
        f"open a new shell and {SOURCE}",
    ]


def test_an_opp_path_that_is_no_folder(atlas: AtlasA2) -> None:
    machine = atlas.machine(ASCEND_OPP_PATH=f"{atlas.cann}/none")
    assert atlas.said(ascend_side.environment(machine)) == [
        "wrong",
        "`ASCEND_OPP_PATH` names /m/cann/none, which is no folder",
        SOURCE,
    ]


def test_libraries_that_are_not_in_reach(atlas: AtlasA2) -> None:
    (atlas.cann / "lib64" / "libhccl.so").unlink()
    assert atlas.said(ascend_side.libraries(atlas.machine())) == [
        "missing",
        "libhccl.so is in no folder of LD_LIBRARY_PATH, so torch_npu can't be imported",
        SOURCE,
    ]
    machine = atlas.machine(LD_LIBRARY_PATH="")
    assert atlas.said(ascend_side.libraries(machine))[1].startswith(  # type: ignore[union-attr]
        "libhccl.so, libascendcl.so, libacl_op_compiler.so, libge_runner.so and libgraph.so are in"
    )


# The table that build.sh reads, too


@pytest.mark.parametrize(
    ("chip", "soc"),
    [
        *((name, "ascend910b") for name in versions.table()["soc"]["ascend910b"]),
        *(("910B4-1", "ascend910b"), ("910_9391", "ascend910_93"), ("910C1", "ascend910_93")),
        *(("910A", "ascend910"), ("910", "ascend910"), ("310P3", "ascend310p")),
        *(("310B1", "ascend310b"), ("310", "ascend310"), ("920", None)),
    ],
)
def test_chips_by_name(chip: str, soc: str | None) -> None:
    assert versions.soc_of_chip(chip) == soc
