"""A machine for kernels/build.sh that never was: a CANN tree, torch and tools made of scripts."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DOUBLE = Path("cann_standin") / "cann_double" / "cmake"
# Not the tests' own Python: there the package is installed, and with it real torch.
BARE_PYTHON = Path(sys.base_prefix) / "bin" / "python3"
TOOLS = (
    *("bash", "sh", "env", "sed", "grep", "awk", "sort", "head", "tail", "tr", "cut", "cat", "cp"),
    *(
        "mkdir",
        "rm",
        "mv",
        "find",
        "nm",
        "uname",
        "nproc",
        "readlink",
        "dirname",
        "chmod",
        "ld",
        "touch",
    ),
    *("cmake", "make", "gcc", "g++", "as", "ar", "ranlib"),
)
VERSIONS = json.loads((REPOSITORY / "asr_ascend" / "npu_versions.json").read_text())
VENDOR = "/m/cann/opp/vendors/asr_ascend"

needs_tools = pytest.mark.skipif(
    any(shutil.which(name) is None for name in TOOLS) or not BARE_PYTHON.exists(),
    reason="not all of build.sh's tools are here",
)

OPERATORS = ("RnntLossFused", "RnntLossForward", "RnntLossBackward")
FUNCTIONS = [f"aclnn{name}{end}" for name in OPERATORS for end in ("", "GetWorkspaceSize")]

ASC_CONFIG = """include("{double}/ASCConfig.cmake")
foreach(target binary package)
  add_custom_target(${{target}} VERBATIM COMMAND
    sh "$ENV{{ASCEND_HOME_PATH}}/made_up/${{target}}.sh" "${{CMAKE_BINARY_DIR}}" "${{vendor_name}}")
endforeach()
"""
# What a run package does when it is installed.
PACKAGE = """cat > "$1/custom_opp_made_up.run" <<END
for option; do case \\$option in --install-path=*) path=\\${option#*=} ;; esac; done
vendor=\\$path/vendors/$2
mkdir -p \\$vendor/op_api/lib \\$vendor/bin
cp "$ASCEND_HOME_PATH/made_up/libcust_opapi.so" \\$vendor/op_api/lib
touch \\$vendor/bin/set_env.bash
for name in rnnt_loss_fused rnnt_loss_forward rnnt_loss_backward; do
  mkdir -p \\$vendor/op_impl/ai_core/tbe/kernel/ascend910b/\\$name
  touch \\$vendor/op_impl/ai_core/tbe/kernel/ascend910b/\\$name/\\$name.o
done
END
"""
TORCH = """import ctypes, os, types
__version__ = os.environ.get("MADE_UP_TORCH", "2.13.0+cpu")
_C = types.SimpleNamespace(
    _GLIBCXX_USE_CXX11_ABI=True,
    _dispatch_has_kernel_for_dispatch_key=lambda name, key: (name, key)
    != (os.environ.get("MADE_UP_LACK"), "PrivateUse1"),
)
ops = types.SimpleNamespace(load_library=lambda path: ctypes.CDLL(path, mode=os.RTLD_NOW))
npu = types.SimpleNamespace(is_available=lambda: False)
"""
SETUP = """import os, subprocess, sys
folder = sys.argv[sys.argv.index("--build-lib") + 1]
os.makedirs(folder, exist_ok=True)
print(f"CXX={os.environ['CXX']} MAX_JOBS={os.environ['MAX_JOBS']}")
source = os.environ.get("MADE_UP_BINDING", "int binding;")
subprocess.run(
    ["gcc", "-shared", "-x", "c", "-", "-o", f"{folder}/libasr_ascend_npu.so"],
    input=source.encode(), check=True,
)
"""
CHIPS = """NPU ID  Chip ID  Chip Logic ID  Chip Name
0       0        0              Ascend 910B3
0       1        -              Mcu
"""


class MadeUpMachine:
    """Each part can be broken before `build` is called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tools = folder / "tools"
        self.cann = folder / "cann"
        self.opp = self.cann / "opp"
        self.build_dir = folder / "build"
        self.site = folder / "site"
        self.kernels = folder / "repository" / "kernels"
        self.environment = {
            "PATH": str(self.tools),
            "HOME": str(folder / "home"),
            "ASCEND_HOME_PATH": str(self.cann),
            "ASCEND_OPP_PATH": str(self.opp),
            "ASCEND_ROOTS": str(folder / "no_ascend"),
            "PYTHONPATH": str(self.site),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHON": str(BARE_PYTHON),
            "LC_ALL": "C",
        }
        self._make_repository()
        self._make_tools()
        self._make_cann()
        self._make_torch()

    def _make_repository(self) -> None:
        for part in ("build_npu", "cann_standin", "rnnt_lattice", "rnnt_loss_fused", "verify"):
            shutil.copytree(REPOSITORY / "kernels" / part, self.kernels / part)
        for file in ("__init__.py", "build.sh"):
            shutil.copy(REPOSITORY / "kernels" / file, self.kernels)
        write(self.kernels / "torch_binding" / "setup.py", SETUP)
        write(self.kernels.parent / "asr_ascend" / "__init__.py", "")
        versions = Path("asr_ascend") / "npu_versions.json"
        shutil.copy(REPOSITORY / versions, self.kernels.parent / versions)
        write(self.kernels.parent / "asr_ascend" / "losses" / "__init__.py", "")
        for part in ("doctor", "system"):
            shutil.copytree(
                REPOSITORY / "asr_ascend" / part, self.kernels.parent / "asr_ascend" / part
            )

    def _make_tools(self) -> None:
        self.tools.mkdir(parents=True)
        for name in TOOLS:
            (self.tools / name).symlink_to(shutil.which(name))
        (self.tools / "python3").symlink_to(BARE_PYTHON)
        self.tool("npu-smi", f"cat <<END\n{CHIPS}END\n")

    def tool(self, name: str, script: str) -> None:
        (self.tools / name).unlink(missing_ok=True)
        write(self.tools / name, f"#!/bin/sh\n{script}").chmod(0o755)

    def _make_cann(self) -> None:
        machine = os.uname().machine
        info = f"package_name=Ascend-cann-toolkit\nversion=9.1.0\narch={machine}\nos=linux\n"
        write(self.cann / f"{machine}-linux" / "ascend_toolkit_install.info", info)
        write(self.cann / "set_env.sh", "")
        for name in ("bisheng", "asc_opc"):
            write(self.cann / "bin" / name, "").chmod(0o755)
        # As set_env.sh does.
        self.environment["PATH"] += f":{self.cann}/bin"
        asc = ASC_CONFIG.format(double=self.kernels / DOUBLE)
        write(self.cann / "compiler" / "tikcpp" / "ascendc_kernel_cmake" / "ASCConfig.cmake", asc)
        write(self.cann / "made_up" / "binary.sh", "true")
        write(self.cann / "made_up" / "package.sh", PACKAGE)
        self.library("".join(f"void {name}(void) {{}}\n" for name in FUNCTIONS))
        for folder in ("opp", "runtime"):  # torch_npu looks for them
            (self.cann / folder).mkdir()

    def library(self, source: str, path: Path | None = None) -> None:
        """Compiles libcust_opapi.so, of the made-up package or at `path`."""
        path = path or self.cann / "made_up" / "libcust_opapi.so"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(compiled(source))

    def _make_torch(self) -> None:
        write(self.site / "torch" / "__init__.py", TORCH)
        write(self.site / "torch_npu" / "__init__.py", "")
        for name, word in VERSIONS["binding_headers"].items():
            write(self.site / "torch_npu" / "include" / name, f"{word}\n")
        write(
            self.site / "torch_npu-2.13.0.dist-info" / "METADATA",
            "Metadata-Version: 2.1\nName: torch_npu\nVersion: 2.13.0\n",
        )

    def build(self, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs build.sh; paths of this machine are printed as from /m."""
        command = [str(self.kernels / "build.sh"), f"--build-dir={self.build_dir}", *options]
        variables = {**self.environment, **environment}
        result = subprocess.run(
            command,
            env={key: value for key, value in variables.items() if value},
            capture_output=True,
            text=True,
            check=False,
        )
        result.stdout = result.stdout.replace(str(self.folder), "/m")
        result.stderr = result.stderr.replace(str(self.folder), "/m")
        return result


@functools.cache
def compiled(source: str) -> bytes:
    """A shared library of C source."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "library.so"
        command = ["gcc", "-shared", "-x", "c", "-", "-o", str(path)]
        subprocess.run(command, input=source.encode(), check=True)
        return path.read_bytes()


def assert_stops(result: subprocess.CompletedProcess[str], status: int, *sentences: str) -> None:
    """Ends with this status, and these sentences are all that stderr has."""
    assert result.stderr.splitlines() == [f"build.sh: {sentence}" for sentence in sentences]
    assert result.returncode == status


def assert_missing(result: subprocess.CompletedProcess[str], *sentences: str) -> None:
    """Refuses before anything is built, and lists these."""
    count = "1 problem" if len(sentences) == 1 else f"{len(sentences)} problems"
    assert_stops(result, 3, *sentences, f"{count}; nothing was built.")
    assert result.stdout == ""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
