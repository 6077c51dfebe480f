"""Prints the torch of this Python for build.sh: one key=value a line, problem= and note=sentence.

describe_torch.py [VERSION OF CANN]
"""

import json
import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path

VERSIONS = Path(__file__).resolve().parents[2] / "asr_ascend" / "npu_versions.json"

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
        import torch_npu
    except Exception as error:
        print(
            f"problem=torch_npu can't be imported: {first_line(error)}. "
            "Is CANN's set_env.sh sourced, and the driver's lib64 in LD_LIBRARY_PATH?"
        )
        return
    table = json.loads(VERSIONS.read_text())
    check_headers(table, Path(torch_npu.__file__).parent / "include", version, torch.__version__)
    check_cann(table, version, *sys.argv[1:2])


def check_headers(table: dict, includes: Path, version: str, torch_version: str) -> None:
    """The binding is written for what older releases of torch_npu don't have."""
    for name, word in table["binding_headers"].items():
        header = includes / name
        if header.is_file() and word in header.read_text(errors="replace"):
            continue
        lacks = f"{word} in {header.name}" if header.is_file() else header.name
        fitting = [each for each in table["sets"] if each["torch"] == release(torch_version)]
        advice = f", such as torch-npu=={fitting[0]['torch_npu']}" if fitting else ""
        print(
            f"problem=torch_npu {version} has no {lacks}, which the binding needs: install a "
            f"package of TorchNPU {table['least_torch_npu_release']} or later{advice}."
        )
        return


def check_cann(table: dict, version: str, cann: str = "unknown") -> None:
    """What a release of torch_npu is made for, where the table knows the release."""
    for each in table["sets"]:
        if each["torch_npu"] != version or cann == "unknown":
            continue
        if minor(cann) != minor(each["cann"]):
            print(
                f"note=torch_npu {version} (TorchNPU {each['torch_npu_release']}) goes with CANN "
                f"{each['cann']}, but the toolkit is {cann}."
            )


def minor(version: str) -> str:
    """9.1 of 9.1.0 and of 9.1.RC1."""
    return ".".join(version.split(".")[:2])


def release(version: str) -> str:
    """2.13.0 of 2.13.0+cpu and of 2.13.0.post2."""
    return re.match(r"\d+(\.\d+){0,2}", version)[0]


main()
