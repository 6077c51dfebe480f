"""The kernel's source keeps to what the device's compiler takes."""

from __future__ import annotations

import re

import pytest

from tests.support import emulated_operator as emulated

SOURCES = sorted(
    [
        *(emulated.KERNELS / "rnnt_loss_fused" / "op_kernel").iterdir(),
        *(emulated.KERNELS / "rnnt_lattice").glob("*.h"),
    ]
)
# The host's library, double precision, allocation, exceptions, dynamic types, lambdas.
FORBIDDEN = re.compile(
    r"\bstd::|\bdouble\b|\bvirtual\b|\bnew\b|\bdelete\b|\bmalloc\b|\btry\b|\bcatch\b|\bthrow\b"
    r"|\bdynamic_cast\b|\btypeid\b|\bthread_local\b|\[[&=]"
)
INCLUDE = re.compile(r'^#include ["<](.+)[">]$', re.MULTILINE)
FUNCTION = re.compile(
    r"^ *(?:__aicore__ inline|ASR_ASCEND_CORE_(?:INLINE|METHOD)) [\w:<>&* ]*?(\w+)\(",
    re.MULTILINE,
)


def code_of(source: str) -> str:
    return re.sub(r"//.*", "", source)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_nothing_that_a_device_lacks(path) -> None:
    source = path.read_text()
    assert FORBIDDEN.findall(code_of(source)) == []
    own = {header.name for header in SOURCES} | {"stdint.h", "kernel_operator.h"}
    assert {name.split("/")[-1] for name in INCLUDE.findall(source)} <= own
    assert len(source.splitlines()) <= 400


def test_no_function_calls_itself() -> None:
    """Nor, in turn, one that calls it, as far as names tell: the device has no recursion."""
    bodies: dict[str, set[str]] = {}
    for path in SOURCES:
        source = code_of(path.read_text())
        starts = list(FUNCTION.finditer(source))
        ends = [*(match.start() for match in starts[1:]), len(source)][: len(starts)]
        for match, end in zip(starts, ends, strict=True):
            body = source[source.find("{", match.end()) : end]
            called = set(re.findall(r"(?<![.\w:])(\w+)(?:<[^<>();]*>)?\(", body))
            bodies.setdefault(match.group(1), set()).update(called)
    assert len(bodies) > 80
    reached = {name: called & bodies.keys() for name, called in bodies.items()}
    for _ in bodies:
        for name, names in reached.items():
            reached[name] = names | {further for each in names for further in reached[each]}
    assert [name for name, names in reached.items() if name in names] == []
