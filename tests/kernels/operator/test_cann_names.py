"""Every CANN name of the device code is in a table, and is declared where CANN declares it.

The emulator and the lint stand in for CANN's headers. A name that they declare in another namespace
makes them accept what CANN refuses.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import emulated_operator as emulated

KERNELS = emulated.KERNELS
LINT = KERNELS / "device_lint"
OP_KERNEL = KERNELS / "rnnt_loss_fused" / "op_kernel"
SOURCES = sorted([*OP_KERNEL.iterdir(), *(KERNELS / "rnnt_lattice").glob("*.h")])
NAMES = json.loads((LINT / "cann_names.json").read_text())["names"]
KINDS = {
    "macro", "definition", "function", "function template", "enumerator", "enum", "type", "alias",
    "struct", "struct template", "class", "class template", "method",
}  # fmt: skip
CLASSES = {
    "AscendC::TPipe": "AscendC::TPipe",
    "AscendC::TBuf": "AscendC::TBuf<>",
    "AscendC::TQue": "AscendC::TQue<AscendC::TPosition::VECIN, 1>",
    "AscendC::LocalTensor": "AscendC::LocalTensor<float>",
    "AscendC::GlobalTensor": "AscendC::GlobalTensor<float>",
}
# Words of the language and of the preprocessor, and the macros of the project's own headers.
OWN = re.compile(r"(ASR_ASCEND|RNNT_LOSS)_\w+|__asm__")


def code_of(path: Path) -> str:
    return re.sub(r"//.*", "", path.read_text())


def used_names() -> set[tuple[str, str]]:
    """(namespace, name) of everything that the device code takes from CANN."""
    code = "\n".join(map(code_of, SOURCES))
    used = {("AscendC", name) for name in re.findall(r"AscendC::(\w+)", code)}
    bare = set(re.findall(r"(?<![\w:])(?:__\w+__|[A-Z][A-Z0-9]*_[A-Z0-9_]+)\b", code))
    used |= {("", name) for name in bare if not OWN.fullmatch(name)}
    functions = set(re.findall(r"(?<![\w:.>])([A-Za-z]\w+)\(", code))
    declared = (LINT / "kernel_operator.h").read_text().split("}  // namespace AscendC")[-1]
    functions -= {"sizeof", "static_assert"}
    used |= {("", name) for name in functions if re.search(rf"\b{name}\(", declared)}
    used |= {("", name) for name in ("half", "bfloat16_t") if re.search(rf"\b{name}\b", code)}
    members = set(re.findall(r"(?:\.|->)(?:template )?(\w+)(?:<[^;(]*?>)?\(", code))
    known = {row["name"] for row in NAMES if row["kind"] == "method"} | members_of_the_lint()
    own = set(re.findall(r"(?:inline|METHOD)[\w:<>&*, ]* (\w+)\(", code))
    return used | {("method", name) for name in (members & known) - (own - {"Get"})}


def members_of_the_lint() -> set[str]:
    """Methods of the classes that the lint declares."""
    text = (LINT / "kernel_operator.h").read_text()
    bodies = re.findall(r"^class \w+[^;{]*\{(.*?)^\};", text, re.MULTILINE | re.DOTALL)
    return {name for body in bodies for name in re.findall(r"^  .*?\b(\w+)\(", body, re.MULTILINE)}


def table_key(row: dict) -> tuple[str, str]:
    return ("method" if row["kind"] == "method" else row["namespace"], row["name"])


def test_the_table_has_every_name_that_is_used_and_no_other() -> None:
    assert used_names() == {table_key(row) for row in NAMES}


def test_rows_are_complete() -> None:
    keys = [(row["namespace"], row["name"]) for row in NAMES]
    assert len(set(keys)) == len(keys)
    for row in NAMES:
        assert row["kind"] in KINDS, row
        assert row["source"] == "bisheng" or "/" in row["source"], row
        assert row["namespace"] in {"", "AscendC", *CLASSES}, row


def probes(row: dict) -> tuple[str, str | None]:
    """Code that must compile, and code that must not."""
    name = row["name"]
    if row["kind"] == "method":
        owner = CLASSES[row["namespace"]]
        return f"struct S : {owner} {{ using {owner}::{name}; }};", None
    if row["kind"] == "macro":
        return f"\n#ifndef {name}\n#error {name}\n#endif\n", None
    here, there = ("AscendC", "") if row["namespace"] else ("", "AscendC")
    return f"using {here}::{name};", f"using {there}::{name};"


def misplaced(command: list[str], folder: Path) -> list[str]:
    """Names that a header doesn't declare, or declares elsewhere than CANN does."""
    unit, lines, wanted = folder / "probe.cpp", ['#include "kernel_operator.h"'], {}
    for row in NAMES:
        if row["kind"] == "definition":  # of the branches of an #if, all of which are compiled here
            continue
        for code, compiles in zip(probes(row), (True, False), strict=True):
            if code is None:
                continue
            first = len(lines) + 1
            scope = f"namespace probe_{first} {{"
            lines += [code] if "#" in code else [f"{scope} {code} }}"]
            lines = "\n".join(lines).split("\n")
            wanted[first, len(lines)] = (row["name"], compiles)
    unit.write_text("\n".join(lines) + "\n")
    result = subprocess.run([*command, str(unit)], capture_output=True, text=True, check=False)
    errors = re.findall(r"^(.+?):(\d+):\d+: (?:fatal )?error: ", result.stderr, re.MULTILINE)
    assert {file for file, _ in errors} <= {str(unit)}, result.stderr
    failed = {int(line) for _, line in errors}
    assert failed, result.stderr
    return [
        name
        for (first, last), (name, compiles) in wanted.items()
        if compiles == any(first <= line <= last for line in failed)
    ]


def test_the_emulator_declares_each_name_where_cann_does(tmp_path: Path) -> None:
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no C++ compiler `{compiler}`")
    command = [compiler, "-std=c++17", "-fsyntax-only", f"-I{KERNELS / 'emulator'}"]
    assert misplaced(command, tmp_path) == []


def test_the_lint_declares_each_name_where_cann_does(tmp_path: Path) -> None:
    if shutil.which("clang++") is None:
        pytest.skip("there is no clang++")
    command = ["clang++", "--target=aarch64-linux-gnu", "-std=c++17", "-ffreestanding", "-w"]
    command += ["-ferror-limit=0", "-fsyntax-only", f"-I{LINT}"]
    assert misplaced(command, tmp_path) == []


@pytest.mark.parametrize(
    ("dtype", "type_name"),
    [("DT_FLOAT", "float"), ("DT_FLOAT16", "half"), ("DT_BF16", "bfloat16_t")],
)
@pytest.mark.parametrize("entry", ["fused", "forward", "backward"])
def test_an_entry_has_the_keys_of_its_dtype_only(entry: str, dtype: str, type_name: str) -> None:
    """CANN compiles an entry once for each dtype; every key in it becomes a kernel."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no C++ compiler `{compiler}`")
    dtypes = ["-DDT_FLOAT=0", "-DDT_FLOAT16=1", "-DDT_BF16=27"]  # kernel_type.h
    command = [compiler, "-std=c++17", "-E", "-P", f"-I{KERNELS / 'emulator'}", *dtypes]
    source = str(OP_KERNEL / f"rnnt_loss_{entry}.cpp")
    keyed, every = (
        subprocess.run([*command, *options, source], capture_output=True, text=True, check=True)
        for options in ([f"-DORIG_DTYPE_LOGITS={dtype}"], [])
    )
    calls = re.compile(rf"rnnt_loss::Run{entry.capitalize()}<(\w+)>\(")
    assert calls.findall(keyed.stdout) == [type_name]
    assert calls.findall(every.stdout) == ["float", "half", "bfloat16_t"]
