"""Docstrings of public functions and methods start with a verb in the third person."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "asr_ascend"
#: Packages and modules of `asr_ascend` that hold the rule.
PACKAGES = [
    "__init__.py",
    "__main__.py",
    "average.py",
    "checkpoints",
    "compare.py",
    "config",
    "data",
    "decoding",
    "evaluate.py",
    "evaluation",
    "losses",
    "models",
    "recognizer.py",
    "system",
    "train.py",
    "training",
    "transcribe.py",
]
#: First words in use, sorted; a new one is a line here. A verb stands here, never a noun.
VERBS = [
    "Adds",
    "Answers",
    "Applies",
    "Averages",
    "Builds",
    "Calls",
    "Checks",
    "Chooses",
    "Clips",
    "Closes",
    "Compares",
    "Composes",
    "Computes",
    "Convolves",
    "Copies",
    "Counts",
    "Decodes",
    "Describes",
    "Divides",
    "Draws",
    "Encodes",
    "Ends",
    "Escapes",
    "Evaluates",
    "Fills",
    "Finds",
    "Forgets",
    "Frees",
    "Freezes",
    "Gathers",
    "Gives",
    "Groups",
    "Holds",
    "Imports",
    "Joins",
    "Judges",
    "Loads",
    "Locks",
    "Logs",
    "Makes",
    "Measures",
    "Mixes",
    "Moves",
    "Names",
    "Packs",
    "Pads",
    "Parses",
    "Passes",
    "Places",
    "Plans",
    "Prints",
    "Quotes",
    "Reads",
    "Rebuilds",
    "Reduces",
    "Refuses",
    "Registers",
    "Removes",
    "Replaces",
    "Resamples",
    "Restores",
    "Returns",
    "Runs",
    "Scales",
    "Seeds",
    "Sends",
    "Sets",
    "Simulates",
    "Speaks",
    "Splits",
    "Starts",
    "Stops",
    "Summarises",
    "Sums",
    "Takes",
    "Trains",
    "Transcribes",
    "Turns",
    "Waits",
    "Warns",
    "Wraps",
    "Writes",
    "Yields",
]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules(name: str) -> list[Path]:
    path = PACKAGE / name
    found = [path] if path.is_file() else sorted(path.rglob("*.py"))
    assert found, f"asr_ascend/{name} is not there"
    return found


def is_function_to_call(node: Function) -> bool:
    """Whether a definition is no property and no overload, which has no docstring."""
    decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return not decorators & {"property", "cached_property", "setter", "overload"}


def public_functions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Functions and methods with their names; what stands in a function is not public."""
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            yield from public_functions([*node.body, *node.orelse], prefix)
        elif isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            if isinstance(node, ast.ClassDef):
                yield from public_functions(node.body, f"{prefix}{node.name}.")
            elif is_function_to_call(node):
                yield f"{prefix}{node.name}", node


def faults(source: str) -> list[str]:
    """A line for each public function whose docstring doesn't start with a known verb."""
    found = []
    for name, node in public_functions(ast.parse(source).body):
        words = (ast.get_docstring(node) or "").split()
        if not words:
            found.append(f"line {node.lineno}: {name} has no docstring")
        elif words[0].rstrip(",:") not in VERBS:
            found.append(f"line {node.lineno}: the docstring of {name} starts with '{words[0]}'")
    return found


@pytest.mark.parametrize("name", PACKAGES)
def test_docstrings_start_with_a_verb(name):
    found = {
        path.relative_to(PACKAGE).as_posix(): faults(path.read_text("utf-8"))
        for path in modules(name)
    }
    listed = [f"asr_ascend/{path}, {fault}" for path, several in found.items() for fault in several]
    assert not listed, "\n".join(listed)


def test_the_verbs_are_sorted_and_in_the_third_person():
    assert sorted(set(VERBS)) == VERBS
    assert all(verb[0].isupper() and verb.endswith("s") for verb in VERBS)


def test_each_verb_is_in_use():
    functions = [
        node
        for name in PACKAGES
        for path in modules(name)
        for _, node in public_functions(ast.parse(path.read_text("utf-8")).body)
    ]
    used = {(ast.get_docstring(node) or "-").split()[0].rstrip(",:") for node in functions}
    assert set(VERBS) <= used


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('def read():\n    """Reads a file."""', []),
        ("def read(): ...", ["line 1: read has no docstring"]),
        (
            'def read():\n    """Contents of a file."""',
            ["line 1: the docstring of read starts with 'Contents'"],
        ),
        (
            'class Reader:\n    def read(self):\n        """Read a file."""',
            ["line 2: the docstring of Reader.read starts with 'Read'"],
        ),
        ("class Reader:\n    @property\n    def size(self): ...", []),
        ("@typing.overload\ndef read(): ...", []),
        ("def _read(): ...\nclass _Reader:\n    def read(self): ...", []),
        ('def read():\n    """Reads a file."""\n    def nested(): ...', []),
    ],
    ids=[
        "verb",
        "no docstring",
        "noun",
        "method, imperative",
        "property",
        "overload",
        "private",
        "nested",
    ],
)
def test_faults_are_found(source, expected):
    assert faults(source) == expected
