"""Who calls whom in LLVM's textual intermediate code, as clang emits it without optimisation."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

_DEFINE = re.compile(r"^define .*?@([\w.$]+)\(.*?(?:!dbg !(\d+))?.*\{$")
_DEBUG = re.compile(r"!dbg !(\d+)")
_DECLARE = re.compile(r"^declare .*?@([\w.$]+)\(")
_CALL = re.compile(r"\b(?:call|invoke)\b")
_CALLEE = re.compile(r"(@[\w.$]+|%[\w.]+)\(")
_NAME = re.compile(r"@([\w.$]+)")
_SUBPROGRAM = re.compile(
    r"^!(\d+) = distinct !DISubprogram\(name: \"(.*?)\".*?file: !(\d+), line: (\d+)"
)
_FILE = re.compile(r'^!(\d+) = !DIFile\(filename: "(.*?)", directory: "(.*?)"')

# AscendC, what the lint's header declares, what a compiler makes of copies and zeros; and behind
# new, delete, throw and dynamic_cast, which have rules of their own.
_KNOWN = re.compile(
    r"_ZNK?7AscendC|_Z\d+DeviceLint|_Z11GetTPipePtrv$|llvm\.|mem(?:cpy|set|move)$"
    r"|_Zn[wa]|_Zd[la]|__cxa_|__gxx_|_ZSt9terminate|__dynamic_cast"
)


class CallGraph:
    """Functions by their linker name."""

    def __init__(self, code: str) -> None:
        self._callees: dict[str, set[str]] = {}
        self._declared: set[str] = set()
        self._indirect: list[str] = []
        self._subprogram: dict[str, str] = {}
        self._subprograms: dict[str, tuple[str, str, int]] = {}
        self._files: dict[str, str] = {}
        self.has_initialisers = "@llvm.global_ctors" in code
        self._parse(code)

    def _parse(self, code: str) -> None:
        function = ""
        for line in code.splitlines():
            if line.startswith("define "):
                function = _DEFINE.match(line)[1]
                self._callees[function] = set()
                if debug := _DEBUG.search(line):
                    self._subprogram[function] = debug[1]
            elif line == "}":
                function = ""
            elif function:
                # Any mention counts: a function whose address is taken may be called.
                self._callees[function].update(_NAME.findall(line))
                if _CALL.search(line) and (callee := _CALLEE.search(line)) and callee[1][0] == "%":
                    self._indirect.append(function)
            elif declared := _DECLARE.match(line):
                self._declared.add(declared[1])
            elif subprogram := _SUBPROGRAM.match(line):
                number, name, file, at = subprogram.groups()
                self._subprograms[number] = (name, file, int(at))
            elif file := _FILE.match(line):
                self._files[file[1]] = os.path.normpath(Path(file[3]) / file[2])

    def name(self, function: str) -> str:
        """As the source has it, without arguments."""
        return self._subprograms.get(self._subprogram.get(function, ""), (function,))[0]

    def place(self, function: str) -> tuple[str, int]:
        """File and line of the definition."""
        _, file, line = self._subprograms.get(self._subprogram.get(function, ""), ("", "", 0))
        return self._files.get(file, "?"), line

    def functions(self) -> list[str]:
        return sorted(self._callees)

    def cycles(self) -> Iterator[list[str]]:
        """A shortest cycle through each group of functions that call each other."""
        reported: set[str] = set()
        for start in self.functions():
            if start in reported:
                continue
            cycle = self._shortest_cycle(start)
            if cycle:
                reported.update(cycle)
                yield cycle

    def _shortest_cycle(self, start: str) -> list[str]:
        came_from = dict.fromkeys(self._callees[start], start)
        queue = list(came_from)
        for function in queue:
            if function == start:
                path = [came_from[start]]
                while path[0] != start:
                    path.insert(0, came_from[path[0]])
                return path
            for callee in self._callees.get(function, ()):
                if callee not in came_from:
                    came_from[callee] = function
                    queue.append(callee)
        return []

    def indirect_callers(self) -> list[str]:
        return sorted(set(self._indirect))

    def foreign_calls(self) -> Iterator[tuple[str, str]]:
        """Calls of functions that are declared but that nothing on a device defines."""
        for function in self.functions():
            for callee in sorted(self._callees[function] & self._declared):
                if not _KNOWN.match(callee):
                    yield function, callee
