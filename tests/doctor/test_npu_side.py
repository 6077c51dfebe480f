"""torch_npu, the operator package and the binding, on a made-up Atlas A2 with one part broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from asr_ascend.doctor import npu_side
from asr_ascend.doctor.probing import Outcome
from asr_ascend.doctor.versions import table, torch_npu_install
from tests.support.atlas_a2 import FINE, FOREIGN_LIBRARY, KERNELS, OTHER_PROCESSOR, AtlasA2
from tests.support.made_up_machine import needs_tools, write

pytestmark = needs_tools


@pytest.fixture
def with_torch_npu(monkeypatch: pytest.MonkeyPatch):
    def version(number: str | None) -> None:
        monkeypatch.setattr(npu_side, "version_of", lambda name: number)

    version("2.13.0")
    return version


def fine(atlas: AtlasA2, **changes: Outcome) -> dict[str, Outcome]:
    """What the processes say where all is right, but for the changes."""
    torch_npu = dict(FINE["torch_npu"].values or {})
    torch_npu["includes"] = str(atlas.site / "torch_npu" / "include")
    return {**FINE, "torch_npu": Outcome(torch_npu), **changes}


# torch_npu


def said_of_torch_npu(atlas: AtlasA2, outcomes: dict[str, Outcome]) -> list[list[str | None]]:
    return [atlas.said(line) for line in npu_side.torch_npu(atlas.machine(), outcomes)]


def test_torch_npu_is_right(atlas: AtlasA2, with_torch_npu) -> None:
    assert said_of_torch_npu(atlas, fine(atlas)) == [
        ["ok", "2.13.0 (released with CANN 9.2.0) sees 8 device(s): Ascend910B3", None]
    ]


def test_no_torch_npu(atlas: AtlasA2, with_torch_npu) -> None:
    with_torch_npu(None)
    assert said_of_torch_npu(atlas, fine(atlas)) == [
        ["missing", "it is not installed", "pip install torch-npu==2.13.0"]
    ]


@pytest.mark.parametrize(
    ("torch", "command"),
    [
        ("2.9.0+cpu", "pip install torch-npu==2.9.0.post9"),
        ("2.14.1", "pip install torch==2.14.0 torch-npu==2.14.0"),
        ("2.8.0", "pip install torch==2.14.0 torch-npu==2.14.0"),
        ("unknown", "pip install torch==2.14.0 torch-npu==2.14.0"),
    ],
)
def test_which_torch_npu_to_install(torch: str, command: str) -> None:
    assert torch_npu_install(torch) == command


def test_torch_npu_for_another_torch(atlas: AtlasA2, with_torch_npu) -> None:
    torch = Outcome({"version": "2.12.0+cpu", "abi": True})
    broken = Outcome(None, "RuntimeError: Failed to load the backend extension: torch_npu")
    assert said_of_torch_npu(atlas, fine(atlas, torch=torch, autoload=broken)) == [
        [
            "wrong",
            "torch_npu 2.13.0 is made for torch 2.13.0, but torch is 2.12.0+cpu",
            "pip install torch-npu==2.12.0.post3",
        ],
        [
            "wrong",
            "even `import torch` fails in this Python, since torch imports torch_npu by itself",
            "export TORCH_DEVICE_BACKEND_AUTOLOAD=0",
        ],
    ]


def test_torch_npu_without_its_libraries(atlas: AtlasA2, with_torch_npu) -> None:
    reason = "ImportError: libhccl.so: cannot open shared object file: No such file or directory"
    assert said_of_torch_npu(atlas, fine(atlas, torch_npu=Outcome(None, reason))) == [
        ["wrong", f"2.13.0 can't be imported: {reason}", "source /m/cann/set_env.sh"]
    ]


def test_torch_npu_that_is_too_old(atlas: AtlasA2, with_torch_npu) -> None:
    header = next(name for name in table()["binding_headers"])
    (atlas.site / "torch_npu" / "include" / header).unlink()
    assert said_of_torch_npu(atlas, fine(atlas)) == [
        [
            "wrong",
            "torch_npu 2.13.0 has no npu_cpp_extension.h, which the binding needs: install a "
            "package of TorchNPU 26.0.0 or later, such as torch-npu==2.13.0",
            "pip install torch-npu==2.13.0",
        ]
    ]


def test_a_cann_that_torch_npu_is_not_known_to_run_with(atlas: AtlasA2, with_torch_npu) -> None:
    next(atlas.cann.glob("*/ascend_toolkit_install.info")).write_text("version=9.3.0\n")
    assert said_of_torch_npu(atlas, fine(atlas)) == [
        [
            "warning",
            "torch_npu 2.13.0 (TorchNPU 26.2.0) goes with CANN 9.2.0 and runs with 8.5, 9.0, 9.1 "
            "and 9.2, but the toolkit is 9.3.0",
            "install CANN 9.2.0",
        ]
    ]


def test_a_torch_npu_that_the_table_lacks(atlas: AtlasA2, with_torch_npu) -> None:
    with_torch_npu("2.13.0.post7")
    assert said_of_torch_npu(atlas, fine(atlas))[0][1] == (
        "2.13.0.post7 (its CANN is not known here) sees 8 device(s): Ascend910B3"
    )


def test_the_stand_in_is_no_chip(atlas: AtlasA2, with_torch_npu) -> None:
    values = {**(fine(atlas)["torch_npu"].values or {}), "stand_in": True, "count": 1}
    assert said_of_torch_npu(atlas, fine(atlas, torch_npu=Outcome(values)))[0][1] == (
        "2.13.0 (released with CANN 9.2.0) sees 1 device(s): the stand-in for CANN, no chip"
    )


def test_torch_that_is_told_not_to_import_it(atlas: AtlasA2, with_torch_npu) -> None:
    machine = atlas.machine(TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    (line,) = npu_side.torch_npu(machine, fine(atlas))
    assert atlas.said(line) == [
        "wrong",
        "2.13.0 (released with CANN 9.2.0) sees 8 device(s): Ascend910B3; but "
        "`TORCH_DEVICE_BACKEND_AUTOLOAD` is 0, so torch doesn't import it by itself and training "
        "finds no NPU",
        "unset TORCH_DEVICE_BACKEND_AUTOLOAD",
    ]


# The operator package


def said_of_package(atlas: AtlasA2, outcomes: dict[str, Outcome], **changes: str) -> list:
    machine = atlas.machine(**changes)
    return [atlas.said(line) for line in npu_side.operator_package(machine, outcomes)]


def loaded(library: Path, **values: object) -> dict[str, Outcome]:
    return {f"operator_library:{library}": Outcome({"lacks": [], **values})}


def test_the_package_is_right(atlas: AtlasA2) -> None:
    library = atlas.install_package()
    assert npu_side.operator_library(atlas.machine()) == library
    assert said_of_package(atlas, loaded(library)) == [
        ["ok", "/m/cann/opp/vendors/asr_ascend; its 6 functions load", None]
    ]


def test_no_package(atlas: AtlasA2) -> None:
    sentence = (
        "no folder of `ASCEND_CUSTOM_OPP_PATH` or vendors/ of `ASCEND_OPP_PATH` has RnntLossFused"
    )
    assert said_of_package(atlas, {}, ASCEND_CUSTOM_OPP_PATH="") == [
        ["missing", sentence, "kernels/build.sh"]
    ]
    script = write(atlas.kernels.parent / "build/npu/opp/vendors/asr_ascend/bin/set_env.bash", "")
    assert script.is_file()
    assert said_of_package(atlas, {}, ASCEND_CUSTOM_OPP_PATH="")[0][2] == (
        "source /m/repository/build/npu/opp/vendors/asr_ascend/bin/set_env.bash"
    )


def test_a_package_for_another_processor(atlas: AtlasA2) -> None:
    library = atlas.install_package()
    library.write_bytes(FOREIGN_LIBRARY + b"aclnnRnntLossFused")
    machine = atlas.machine()
    assert said_of_package(atlas, {}) == [
        [
            "wrong",
            "/m/cann/opp/vendors/asr_ascend/op_api/lib/libcust_opapi.so is made for "
            f"{OTHER_PROCESSOR}, but this machine is {machine.processor}",
            "kernels/build.sh --only package",
        ]
    ]


def test_a_package_that_does_not_load_or_lacks_functions(atlas: AtlasA2) -> None:
    library = atlas.install_package()
    step, path = f"operator_library:{library}", "/m/cann/opp/vendors/asr_ascend"
    reason = "libascendcl.so: cannot open shared object file: No such file or directory"
    assert said_of_package(atlas, {step: Outcome(None, reason)}) == [
        [
            "wrong",
            f"{path}/op_api/lib/libcust_opapi.so doesn't load: {reason}",
            "source /m/cann/set_env.sh",
        ]
    ]
    assert said_of_package(atlas, loaded(library, lacks=["aclnnRnntLossBackward"])) == [
        [
            "wrong",
            f"{path}/op_api/lib/libcust_opapi.so lacks 1 of 6 functions: aclnnRnntLossBackward",
            "kernels/build.sh --only package",
        ]
    ]


def test_a_package_without_kernels(atlas: AtlasA2) -> None:
    library = atlas.install_package()
    (atlas.vendor / KERNELS / "rnnt_loss_backward" / "kernel.o").unlink()
    assert said_of_package(atlas, loaded(library)) == [
        [
            "wrong",
            "/m/cann/opp/vendors/asr_ascend has no compiled kernels for ascend910b",
            "kernels/build.sh --only package",
        ]
    ]


def test_two_packages_that_hide_each_other(atlas: AtlasA2) -> None:
    """torch_npu takes ASCEND_CUSTOM_OPP_PATH first, then the vendors in config.ini's order."""
    atlas.install_package()
    other = atlas.install_package(atlas.opp / "vendors" / "other")
    atlas.install_package(atlas.opp / "vendors" / "another")
    write(atlas.opp / "vendors" / "config.ini", "load_priority=other,asr_ascend\n")
    assert npu_side.operator_packages(atlas.machine(ASCEND_CUSTOM_OPP_PATH="")) == [
        atlas.opp / "vendors" / name for name in ("other", "asr_ascend", "another")
    ]
    found = said_of_package(atlas, loaded(other), ASCEND_CUSTOM_OPP_PATH="")
    assert found == [
        ["ok", "/m/cann/opp/vendors/other; its 6 functions load", None],
        [
            "warning",
            "/m/cann/opp/vendors/asr_ascend and /m/cann/opp/vendors/another also have the "
            "operator; /m/cann/opp/vendors/other hides them",
            "export ASCEND_CUSTOM_OPP_PATH=/m/cann/opp/vendors/other",
        ],
    ]


def test_a_custom_path_that_names_no_package(atlas: AtlasA2) -> None:
    library = atlas.install_package()
    (atlas.folder / "others" / "vendors").mkdir(parents=True)
    paths = f"{atlas.folder}/others:{atlas.folder}/none:{atlas.vendor}"
    assert said_of_package(atlas, loaded(library), ASCEND_CUSTOM_OPP_PATH=paths)[1:] == [
        [
            "warning",
            "it must name vendors' own folders, but names /m/others",
            "export ASCEND_CUSTOM_OPP_PATH=/m/others/vendors/asr_ascend",
        ],
        [
            "warning",
            "it names /m/none, where there is no package",
            "unset ASCEND_CUSTOM_OPP_PATH",
        ],
    ]


# The binding


def said_of_binding(atlas: AtlasA2, outcome: Outcome, **changes: str) -> list[str | None]:
    outcomes = fine(atlas, binding=outcome)
    return atlas.said(npu_side.binding(atlas.machine(**changes), outcomes))


def test_the_binding(atlas: AtlasA2) -> None:
    library = atlas.kernels.parent / "asr_ascend" / "lib" / "libasr_ascend_npu.so"
    path, build = (
        "/m/repository/asr_ascend/lib/libasr_ascend_npu.so",
        "kernels/build.sh --only binding",
    )
    right = Outcome({"lacks": []})
    assert said_of_binding(atlas, right) == ["missing", "it is not built", build]
    atlas.library("int binding;", library)
    assert said_of_binding(atlas, right) == ["ok", f"{path}; torch takes its operators", None]
    assert said_of_binding(atlas, Outcome({"lacks": ["rnnt_loss_fused"]})) == [
        "wrong",
        f"{path} has no rnnt_loss_fused for the NPU",
        build,
    ]
    reason = f"{path}: undefined symbol: _ZN3c106detail14torchCheckFail"
    assert said_of_binding(atlas, Outcome(None, reason)) == [
        "wrong",
        f"{path} can't be used: {reason}; it was compiled for another torch, or with another C++ "
        "ABI",
        build,
    ]
    assert said_of_binding(atlas, right, ASR_ASCEND_NPU_LIBRARY=str(library)) == [
        "warning",
        f"{path}, since `ASR_ASCEND_NPU_LIBRARY` names it",
        "unset ASR_ASCEND_NPU_LIBRARY",
    ]
    assert said_of_binding(atlas, right, ASR_ASCEND_NPU_LIBRARY="/none") == [
        "wrong",
        "`ASR_ASCEND_NPU_LIBRARY` names /none, which is no file",
        "unset ASR_ASCEND_NPU_LIBRARY",
    ]
    library.write_bytes(FOREIGN_LIBRARY)
    assert said_of_binding(atlas, right)[1] == (
        f"{path} is made for {OTHER_PROCESSOR}, but this machine is {atlas.machine().processor}"
    )
    library.write_bytes(b"")
    assert said_of_binding(atlas, right)[1] == f"{path} is not a shared library"


def test_a_machine_without_anything_of_ascend(atlas: AtlasA2, with_torch_npu, tmp_path) -> None:
    (atlas.tools / "npu-smi").unlink()
    atlas.device.unlink()
    nothing = dict.fromkeys(("ASCEND_HOME_PATH", "ASCEND_OPP_PATH", "ASCEND_CUSTOM_OPP_PATH"), "")
    bare = atlas.machine(**nothing, ASCEND_ROOTS=str(tmp_path / "none"))
    assert not npu_side.is_cpu_machine(bare)  # torch_npu was meant to be of use
    with_torch_npu(None)
    assert npu_side.is_cpu_machine(bare)
    assert not npu_side.is_cpu_machine(atlas.machine(**nothing))  # a driver is installed
