"""The table of versions that belong together: checks, requirements and documents agree with it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.support.made_up_machine import REPOSITORY

TABLE = json.loads((REPOSITORY / "asr_ascend" / "npu_versions.json").read_text())


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def test_sets_are_within_the_least_versions() -> None:
    for each in TABLE["sets"]:
        assert each["torch_npu"].startswith(each["torch"]), each
        assert number(each["torch_npu_release"]) >= number(TABLE["least_torch_npu_release"]), each
        assert number(each["cann"]) >= number(TABLE["least_cann"]), each
        assert ".".join(each["cann"].split(".")[:2]) in TABLE["compatible_cann"], each
    assert set(TABLE["sources"]) == {
        *("sets", "compatible_cann", "least_cann", "least_torch_npu_release"),
        *("soc", "chips", "libraries"),
    }


def test_the_newest_package_of_a_torch_comes_first() -> None:
    """The checks name the first one of a torch as the one to install."""
    for torch in {each["torch"] for each in TABLE["sets"]}:
        releases = [
            number(each["torch_npu_release"]) for each in TABLE["sets"] if each["torch"] == torch
        ]
        assert releases == sorted(releases, reverse=True), torch


def test_tests_over_the_stand_in_run_a_package_of_the_table() -> None:
    script = (REPOSITORY / "kernels" / "cann_standin" / "make_venv.sh").read_text()
    (version,) = re.findall(r"torch-npu==([\d.a-z]+)", script)
    assert version in {each["torch_npu"] for each in TABLE["sets"]}


def test_the_least_torch_npu_is_what_the_package_requires() -> None:
    requirements = (REPOSITORY / "pyproject.toml").read_text()
    (least,) = re.findall(r'^npu = \["torch-npu>=(.+)"\]$', requirements, re.MULTILINE)
    (torch,) = re.findall(r'^  "torch>=(.+)",$', requirements, re.MULTILINE)
    of_that_torch = [
        each["torch_npu"] for each in TABLE["sets"] if number(each["torch"])[:2] == number(torch)
    ]
    assert least == min(of_that_torch, key=number)


def test_chips_are_those_that_the_operator_is_defined_for() -> None:
    definition = REPOSITORY / "kernels" / "rnnt_loss_fused" / "op_host" / "rnnt_loss_fused_def.cpp"
    defined = set(re.findall(r'AddConfig\("(\w+)"', definition.read_text()))
    assert set(TABLE["soc"]) == defined


def test_documents_name_the_least_versions() -> None:
    build = (REPOSITORY / "kernels" / "BUILD.md").read_text()
    assert f"TorchNPU {TABLE['least_torch_npu_release']} or later" in build
    assert f"| {TABLE['least_cann'].removesuffix('.0')} or later" in build


def test_pythons_are_those_of_the_package() -> None:
    requirements = (REPOSITORY / "pyproject.toml").read_text()
    (least,) = re.findall(r'^requires-python = ">=(.+)"$', requirements, re.MULTILINE)
    assert TABLE["python"][0] == least


def test_the_headers_are_those_that_the_binding_includes() -> None:
    binding = (REPOSITORY / "kernels" / "torch_binding" / "rnnt_loss_npu.cpp").read_text()
    header, _ = TABLE["binding_headers"]
    assert f'#include "{header}"' in binding
    assert "EXEC_NPU_CMD_EXT(" in binding
    assert Path(header).name == "npu_cpp_extension.h"
