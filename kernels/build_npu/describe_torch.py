"""Prints the torch of this Python for build.sh: one key=value a line, and problem=sentence."""

import os
import platform
import re
from importlib import metadata

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
        print(
            "problem=torch_npu is not installed in this Python: "
            f"pip install torch-npu=={release(torch.__version__)}"
        )
        return
    print(f"torch_npu={version}")
    if release(version) != release(torch.__version__):
        print(
            f"problem=torch_npu {version} is made for torch {release(version)}, "
            f"but torch is {torch.__version__}: install one of the two anew."
        )
        return
    try:
        import torch_npu  # noqa: F401
    except Exception as error:
        print(
            f"problem=torch_npu can't be imported: {first_line(error)}. "
            "Is CANN's set_env.sh sourced, and the driver's lib64 in LD_LIBRARY_PATH?"
        )


def release(version: str) -> str:
    """2.13.0 of 2.13.0+cpu and of 2.13.0.post2."""
    return re.match(r"\d+(\.\d+){0,2}", version)[0]


main()
