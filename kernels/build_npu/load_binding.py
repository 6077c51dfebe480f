"""Loads the torch binding named on the command line; fails with one sentence where it can't."""

import sys
from pathlib import Path

import torch

import asr_ascend.losses  # defines the operators

OPERATORS = ("rnnt_loss_forward", "rnnt_loss_backward", "rnnt_loss_backward_")


def main(library: str) -> None:
    package = Path(asr_ascend.__file__).resolve().parent
    if package != Path(library).resolve().parents[1]:
        sys.exit(
            f"problem: this Python takes asr_ascend from {package}: install this checkout there."
        )
    try:
        torch.ops.load_library(library)
    except OSError as error:
        text = str(error).splitlines()[0]
        if "undefined symbol" in text:
            text += f". It was compiled for another torch or C++ ABI than {torch.__version__}'s."
        sys.exit(f"problem: {text}")
    for name in OPERATORS:
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"asr_ascend::{name}", "PrivateUse1"):
            sys.exit(f"problem: it has no implementation of asr_ascend::{name} for the NPU.")


main(sys.argv[1])
