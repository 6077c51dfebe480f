"""Prints the torch of this Python for build.sh: one key=value a line, problem= and note=sentence.

describe_torch.py [VERSION OF CANN]
"""

import os
import platform
import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from asr_ascend.doctor import versions

# torch would otherwise import torch_npu, which fails as a whole where CANN is not in reach.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"


def first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0].rstrip(".")


def main() -> None:
    print(f"python={platform.python_version()}")
    try:
        import torch
    except Exception as error:
        print(f"problem=torch can't be imported by this Python: {first_line(error)}")
        return
    print(f"torch={torch.__version__}")
    print(f"abi={int(torch._C._GLIBCXX_USE_CXX11_ABI)}")
    try:
        version = metadata.version("torch_npu")
    except metadata.PackageNotFoundError:
        install = versions.torch_npu_install(torch.__version__)
        print(f"problem=torch_npu is not installed in this Python: {install}")
        return
    print(f"torch_npu={version}")
    fault = versions.torch_npu_fault(version, torch.__version__)
    if fault is not None:
        print(f"problem={fault}: install one of the two anew.")
        return
    try:
        import torch_npu
    except Exception as error:
        print(
            f"problem=torch_npu can't be imported: {first_line(error)}. "
            "Is CANN's set_env.sh sourced, and the driver's lib64 in LD_LIBRARY_PATH?"
        )
        return
    includes = Path(torch_npu.__file__).parent / "include"
    fault = versions.header_fault(includes, version, torch.__version__)
    if fault is not None:
        print(f"problem={fault}.")
    fault = versions.cann_fault(version, *(sys.argv[1:2] or ["unknown"]))
    if fault is not None:
        print(f"note={fault}.")


main()
