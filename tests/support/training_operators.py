"""Prints the operators of training steps as JSON: name of each, and the dtypes it was given.

Run as a program by the tests over the stand-in for CANN, whose Python has no torchaudio.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import defaultdict

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from asr_ascend.losses import rnnt
from tests.support.device_steps import SETTINGS, steps


class Operators(TorchDispatchMode):
    """Keeps the names of torch's operators, and the dtypes of the floats that each was given."""

    def __init__(self) -> None:
        super().__init__()
        self.found: defaultdict[str, set[str]] = defaultdict(set)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "aten":
            floats = [a for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()]
            dtypes = {str(value.dtype).removeprefix("torch.") for value in floats}
            self.found[func.name()] |= dtypes
        return func(*args, **(kwargs or {}))


def main() -> None:
    warnings.simplefilter("ignore")
    assert rnnt  # the losses' own operators are registered, and not aten's
    operators = Operators()
    for overrides in SETTINGS:
        with operators:
            steps(1, *overrides)
    json.dump({name: sorted(dtypes) for name, dtypes in operators.found.items()}, sys.stdout)


if __name__ == "__main__":
    main()
