"""Builds the binding: `python setup.py build_ext --build-lib DIR` leaves DIR/libasr_ascend_npu.so.

Needs torch_npu with its torch, and a C++17 compiler; CANN only to run. `kernels/build.sh` calls
this and puts the library where asr_ascend looks for it.
"""

from pathlib import Path

import torch
import torch_npu
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension
from torch_npu.utils.cpp_extension import NpuExtension

HERE = Path(__file__).resolve().parent
NAME = "libasr_ascend_npu"
HEADERS = Path(torch_npu.__file__).parent / "include"
TORCH_HEADERS = Path(torch.__file__).parent / "include"


def headers() -> list[str]:
    """-isystem, so that warnings are those of our own sources."""
    third_party = HEADERS / "third_party"
    folders = [
        TORCH_HEADERS,
        TORCH_HEADERS / "torch" / "csrc" / "api" / "include",
        HEADERS,
        third_party / "acl" / "inc",
        third_party / "hccl" / "inc",
        third_party / "op-plugin",
        third_party / "op-plugin" / "op_plugin" / "include",
    ]
    return [argument for folder in folders for argument in ("-isystem", str(folder))]


def torch_release() -> str:
    """The name that op-plugin's headers have for a minor release of torch, such as V2R13."""
    major, minor = torch.__version__.split(".")[:2]
    return f"V{major}R{minor}"


class BuildLibrary(BuildExtension):
    """A library for torch.ops.load_library: no Python module, so no Python in its name."""

    def get_ext_filename(self, ext_name: str) -> str:
        return f"{ext_name}.so"


setup(
    name=NAME,
    version="0.1.0",
    ext_modules=[
        NpuExtension(
            name=NAME,
            sources=[str(HERE / "rnnt_loss_npu.cpp")],
            depends=[
                str(HERE.parent / "rnnt_loss_fused" / "op_host" / name)
                for name in ("rnnt_loss_fused_check.h", "rnnt_loss_fused_tiling_plan.h")
            ],
            extra_compile_args=[
                *headers(),
                f"-DCURRENT_VERSION={torch_release()}",
                *("-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror"),
            ],
        )
    ],
    cmdclass={"build_ext": BuildLibrary.with_options(use_ninja=False)},
    script_args=None,
)
