"""RnntLossFused on the emulator, for tests: builds of the real kernels and of altered ones."""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path

from torch import Tensor

from kernels.rnnt_loss_fused.emulated.emulated_operator import (  # noqa: F401 - tests use them
    BAND,
    BAND_WIDTH,
    CROSS_CHECK,
    DROP_NAN,
    DTYPES,
    LABEL,
    LOGIT_LENGTH,
    PROPAGATE_NAN,
    ROW_TOTAL,
    SECOND_OPERAND,
    STATUS_OK,
    TARGET_LENGTH,
    Result,
    Violation,
    call,
    cost_tolerance,
)
from tests.support import compiling, oracles

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
SOURCES = Path("rnnt_loss_fused") / "emulated"


def build(kernels: Path = KERNELS) -> ctypes.CDLL:
    """Compiles the kernels of a source tree and their C entry against the emulator."""
    sources = sorted((kernels / SOURCES).glob("*.cpp"))
    flags = [*compiling.EMULATED, *os.environ.get("EMULATED_RNNT_LOSS_FLAGS", "").split()]
    includes = [kernels / "emulator", kernels / "rnnt_loss_fused"]
    return ctypes.CDLL(
        str(compiling.program("libemulated_rnnt_loss.so", sources, flags, includes, shared=True))
    )


def build_altered(name: str, header: str, changes: dict[str, str]) -> ctypes.CDLL:
    """The same with pieces of one header of op_kernel replaced, each of which occurs once."""
    kernels = compiling.FOLDER / f"altered-{name}" / "kernels"
    with compiling.lock(kernels.parent):
        shutil.rmtree(kernels, ignore_errors=True)
        for part in ("rnnt_lattice", "emulator", "rnnt_loss_fused"):
            shutil.copytree(KERNELS / part, kernels / part)
        source = kernels / "rnnt_loss_fused" / "op_kernel" / header
        text = source.read_text()
        for old, new in changes.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        source.write_text(text)
        return build(kernels)


def assert_costs(actual: Tensor, expected: Tensor) -> None:
    oracles.assert_within(actual, expected, cost_tolerance(expected), "cost")
