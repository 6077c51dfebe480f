"""Holds the kernels and kernels/rnnt_lattice to what the device's compiler takes. Needs clang.

    python kernels/device_lint/lint_device_code.py [--kernels FOLDER] [--clang PROGRAM]

The sources are compiled, not run, against declarations of AscendC (kernel_operator.h beside this
file) in which a pointer to global memory and one to UB are different types. The rules look at
clang's syntax tree and, for what is called, at its intermediate code. Exit status: 0 clean or
clang is missing (said on stderr), 1 with one line per finding.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import call_graph

HERE = Path(__file__).resolve().parent
KERNELS = HERE.parent
FOLDERS = ("rnnt_loss_fused/op_kernel", "rnnt_lattice")
HEADERS = {"stdint.h", "kernel_operator.h"}  # besides the project's own

ALLOCATORS = {"malloc", "calloc", "realloc", "free", "aligned_alloc", "alloca", "__builtin_alloca"}
NODES = {  # of the syntax tree: rule and what is said
    "CXXThrowExpr": ("exceptions", "`throw`"),
    "CXXTryStmt": ("exceptions", "`try`"),
    "CXXCatchStmt": ("exceptions", "`catch`"),
    "CXXNewExpr": ("allocation", "`new`"),
    "CXXDeleteExpr": ("allocation", "`delete`"),
    "CXXDynamicCastExpr": ("rtti", "`dynamic_cast`"),
    "LambdaExpr": ("lambda", "a lambda"),
}
FUNCTIONS = {"FunctionDecl", "CXXMethodDecl", "CXXConstructorDecl", "CXXDestructorDecl"}
SCOPES = {"CXXRecordDecl": "record", "LambdaExpr": "lambda", **dict.fromkeys(FUNCTIONS, "function")}
FOREIGN_SPACE = re.compile(r"__gm__|__ubuf__|address_space\(")
INCLUDE = re.compile(r'^\s*#\s*include\s*["<](.+)[">]')
LITERAL = re.compile(r"\d+[uU]?[lL]*")
LITERAL_MACRO = re.compile(r"^#define (\w+) \d+[uU]?[lL]*$", re.MULTILINE)
TILING_KEY = re.compile(r"TILING_KEY_IS\(\s*([^()]*?)\s*\)")
DIAGNOSTIC = re.compile(r"^(.+?):(\d+):\d+: (?:fatal )?error: (.*)$", re.MULTILINE)


@dataclass(frozen=True, order=True)
class Finding:
    file: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.message}."


def sources(kernels: Path) -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((kernels / folder).glob("*.*"))]


def command(clang: str, *flags: str) -> list[str]:
    """A freestanding compile for the host processor of an Atlas A2, no standard library in reach.

    aarch64 because every clang for it has a 16-bit float.
    """
    resources = subprocess.run(
        [clang, "-print-resource-dir"], capture_output=True, text=True, check=True
    ).stdout.strip()
    language = ["--target=aarch64-linux-gnu", "-std=c++17", "-ffreestanding", "-nostdinc"]
    includes = ["-isystem", f"{resources}/include", f"-I{HERE}"]
    return [clang, "-x", "c++", *language, *includes, "-ferror-limit=0", *flags]


def normalised(path: str) -> str:
    """clang names a header by the way it was reached: op_kernel/../../rnnt_lattice/walk.h."""
    return os.path.normpath(path)


def check_includes(paths: list[Path]) -> Iterator[Finding]:
    own = {path.name for path in paths}
    for path in paths:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            included = INCLUDE.match(line)
            if included and Path(included[1]).name not in own | HEADERS:
                yield Finding(str(path), number, "std", f"`{included[1]}` is not there on a device")


def check_tiling(paths: list[Path]) -> Iterator[Finding]:
    """What CANN's tools read of the text, before a compiler does."""
    texts = {path: path.read_text() for path in paths}
    literals = {name for text in texts.values() for name in LITERAL_MACRO.findall(text)}
    for path, text in texts.items():
        lines = [line.partition("//")[0] for line in text.splitlines()]
        defaults = [n for n, line in enumerate(lines, 1) if "REGISTER_TILING_DEFAULT(" in line]
        uses = any(word in line for line in lines for word in ("TILING_KEY_IS(", "GET_TILING_DATA"))
        if path.suffix == ".cpp" and (len(defaults) > 1 or (uses and not defaults)):
            message = f"an entry needs one REGISTER_TILING_DEFAULT, but has {len(defaults)}"
            yield Finding(str(path), defaults[1] if defaults else 1, "tiling", message)
        for number, line in enumerate(lines, 1):
            for key in TILING_KEY.findall(line):
                if not LITERAL.fullmatch(key) and key not in literals:
                    message = f"TILING_KEY_IS takes a literal or a macro of one, not `{key}`"
                    yield Finding(str(path), number, "tiling", message)


def check_compile(clang: str, unit: Path) -> Iterator[Finding]:
    """What clang itself refuses: unknown names, pointers that change their address space."""
    result = subprocess.run(
        [*command(clang, "-fsyntax-only", "-Werror=vla"), str(unit)], capture_output=True, text=True
    )
    for file, line, message in DIAGNOSTIC.findall(result.stderr):
        if "file not found" in message:  # check_includes says it
            continue
        rule = "compile"
        if "'std'" in message:
            rule = "std"
        elif "variable length array" in message:
            rule, message = "allocation", "the size of an array must be constant"
        elif "<typeinfo>" in message:
            rule, message = "rtti", "`typeid` is not there on a device"
        elif "address space" in message or FOREIGN_SPACE.search(message):
            rule = "address spaces"
        yield Finding(normalised(file), int(line), rule, message)
    if result.returncode != 0 and not DIAGNOSTIC.search(result.stderr):
        raise RuntimeError(f"{clang} failed: {result.stderr.strip()}")


class TreeRules:
    """Walks clang's syntax tree, whose locations give file and line only where they change."""

    def __init__(self, paths: list[Path]) -> None:
        self.findings: set[Finding] = set()
        self._paths = {str(path) for path in paths}
        self._file = ""
        self._line = 0

    def visit(self, node: dict, scope: str = "global") -> None:
        for key in ("loc", "range"):
            self._follow(node.get(key, {}))
        # A node lies where it begins; `range` ends with its last line.
        file, line = self._begin(node)
        if file in self._paths and not node.get("isImplicit"):
            for rule, message in self._rules(node, scope):
                self.findings.add(Finding(file, line, rule, message))
        kind = node.get("kind", "")
        inner_scope = SCOPES.get(kind, scope) if scope != "lambda" else scope
        for key, value in node.items():
            if key == "inner":
                for child in value:
                    self.visit(child, inner_scope)
            elif key not in ("loc", "range"):
                self._follow(value)

    def _follow(self, value: object) -> None:
        """Keeps the current file and line up to date, in the order of the dump."""
        if isinstance(value, list):
            for item in value:
                self._follow(item)
        if not isinstance(value, dict):
            return
        if "offset" in value:
            if "file" in value:
                self._file = normalised(value["file"])
            self._line = value.get("line", self._line)
            value["_at"] = (self._file, self._line)
            return
        for item in value.values():
            self._follow(item)

    @staticmethod
    def _begin(node: dict) -> tuple[str, int]:
        for place in (node.get("loc", {}), node.get("range", {}).get("begin", {})):
            place = place.get("expansionLoc", place)
            if "_at" in place:
                return place["_at"]
        return "", 0

    def _rules(self, node: dict, scope: str) -> Iterator[tuple[str, str]]:
        kind = node.get("kind", "")
        kind_of_type = node.get("type", {})
        type_name = kind_of_type.get("desugaredQualType", kind_of_type.get("qualType", ""))
        if kind in NODES:
            yield NODES[kind][0], f"{NODES[kind][1]} is not there on a device"
        if re.search(r"\bdouble\b", type_name):
            yield "double", "there is no double precision on a device"
        if node.get("virtual") or any(base.get("isVirtual") for base in node.get("bases", [])):
            yield "virtual", f"`{node.get('name', '')}` must not be virtual"
        if kind == "NamespaceDecl" and node.get("name") == "std":
            yield "std", "there is no namespace std on a device"
        if kind == "DeclRefExpr" and node.get("referencedDecl", {}).get("name") in ALLOCATORS:
            yield "allocation", f"`{node['referencedDecl']['name']}` is not there on a device"
        if kind == "VarDecl":
            yield from self._variable(node, scope, kind_of_type.get("qualType", ""))
        if kind in FUNCTIONS and scope != "lambda":
            yield from self._function(node)
        yield from self._addresses(node, kind, kind_of_type.get("qualType", ""))

    @staticmethod
    def _variable(node: dict, scope: str, type_name: str) -> Iterator[tuple[str, str]]:
        name = node.get("name", "")
        if "tls" in node:
            yield "state", f"`{name}` must not be thread_local"
        lasting = scope in ("global", "record") or node.get("storageClass") in ("static", "extern")
        innermost = type_name.rpartition("*")[2] if "*" in type_name else type_name
        if lasting and not node.get("constexpr") and not re.search(r"\bconst\b", innermost):
            yield "state", f"`{name}` must be constant: cores have no variables that outlive a call"

    @staticmethod
    def _function(node: dict) -> Iterator[tuple[str, str]]:
        inner = [child.get("kind") for child in node.get("inner", [])]
        defaulted = node.get("explicitlyDefaulted") or node.get("explicitlyDeleted")
        if "CompoundStmt" in inner and "AnnotateAttr" not in inner and not defaulted:
            yield "qualifier", f"`{node.get('name', '')}` must be __aicore__"

    @staticmethod
    def _addresses(node: dict, kind: str, type_name: str) -> Iterator[tuple[str, str]]:
        rule = "address spaces"
        if node.get("castKind") == "AddressSpaceConversion":
            yield rule, "a cast must not change what memory a pointer points to"
        if node.get("castKind") == "IntegralToPointer":
            yield rule, "an address must not be made of a number"
        access = kind == "ArraySubscriptExpr" or (
            kind == "UnaryOperator" and node.get("opcode") == "*"
        )
        arrow = node.get("isArrow") and kind == "MemberExpr"
        if arrow:
            base = node.get("inner", [{}])[0].get("type", {})
            type_name = base.get("desugaredQualType", base.get("qualType", ""))
        if (access or arrow) and FOREIGN_SPACE.search(type_name):
            yield rule, "memory outside the core must be reached through a tensor"


def check_tree(clang: str, unit: Path, paths: list[Path]) -> Iterator[Finding]:
    # Sources that don't compile have a tree as well, as far as clang understood them.
    dump = subprocess.run(
        [*command(clang, "-fsyntax-only", "-w", "-Xclang", "-ast-dump=json"), str(unit)],
        capture_output=True,
        text=True,
    )
    rules = TreeRules(paths)
    rules.visit(json.loads(dump.stdout))
    yield from rules.findings


def check_calls(clang: str, unit: Path, found: list[Finding]) -> Iterator[Finding]:
    flags = ["-S", "-emit-llvm", "-O0", "-g1", "-w", "-femit-all-decls", "-o", "-"]
    result = subprocess.run([*command(clang, *flags), str(unit)], capture_output=True, text=True)
    if result.returncode != 0:
        if not found:  # else they say why
            raise RuntimeError(f"{clang} failed: {result.stderr.strip()}")
        return
    graph = call_graph.CallGraph(result.stdout)
    for cycle in graph.cycles():
        names = " -> ".join(graph.name(function) for function in [*cycle, cycle[0]])
        yield Finding(*graph.place(cycle[0]), "recursion", names)
    for function in graph.indirect_callers():
        message = f"`{graph.name(function)}` calls through a pointer"
        yield Finding(*graph.place(function), "function pointer", message)
    for function, callee in graph.foreign_calls():
        message = f"`{graph.name(function)}` calls `{callee}`, which a device doesn't have"
        yield Finding(*graph.place(function), "std", message)
    if graph.has_initialisers:
        yield Finding(str(unit), 1, "state", "a constant is computed before the kernel starts")


def lint(kernels: Path, clang: str) -> list[Finding]:
    """Findings in the device code under `kernels`, sorted, each once."""
    paths = sources(kernels.resolve())
    with tempfile.TemporaryDirectory() as folder:
        unit = Path(folder) / "device_code.cpp"
        in_order = sorted(paths, key=lambda path: path.suffix != ".cpp")  # entries define macros
        unit.write_text("".join(f'#include "{path}"\n' for path in in_order))
        found = [
            *check_includes(paths),
            *check_tiling(paths),
            *check_compile(clang, unit),
            *check_tree(clang, unit, paths),
        ]
        found += check_calls(clang, unit, found)
    return sorted(set(found))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernels", type=Path, default=KERNELS, help="source tree to look at")
    parser.add_argument("--clang", default="clang++", help="clang 14 or later")
    arguments = parser.parse_args()
    clang = shutil.which(arguments.clang)
    if clang is None:
        print(
            f"There is no {arguments.clang}: the device code was not looked at "
            "(apt-get install clang).",
            file=sys.stderr,
        )
        return 0
    findings = lint(arguments.kernels, clang)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
