"""Who may import whom (CONTRIBUTING.md), read from the sources; and what an import needs."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "asr_ascend"
HEAVY = {"lightning", "hydra", "omegaconf", "torchaudio", "sentencepiece", "soundfile", "torch_npu"}


def imported_modules(path: Path) -> set[str]:
    """Absolute names of everything a source file imports, at any depth of its code."""
    package = ["asr_ascend", *path.relative_to(PACKAGE).parts[:-1]]
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names.add(module)
            names.update(f"{module}.{alias.name}" for alias in node.names)
    return names


def sources(*parts: str) -> list[Path]:
    found = sorted(PACKAGE.joinpath(*parts).rglob("*.py"))
    assert found, f"no sources under {parts}"
    return found


def roots(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("path", sources("losses"), ids=lambda p: p.name)
def test_losses_import_torch_and_the_standard_library_alone(path):
    allowed = {"torch", "asr_ascend", *sys.stdlib_module_names}
    if path.name == "npu_library.py":
        allowed.add("torch_npu")
    assert roots(imported_modules(path)) <= allowed


@pytest.mark.parametrize("path", sources("plugins"), ids=lambda p: p.name)
def test_plugins_name_no_framework_in_an_import(path):
    """A framework is imported by name, inside of `install`."""
    assert roots(imported_modules(path)) <= {"torch", "asr_ascend", *sys.stdlib_module_names}


@pytest.mark.parametrize("path", sources("models"), ids=lambda p: p.name)
def test_models_know_no_tokenizer_or_lightning(path):
    names = imported_modules(path)
    assert not roots(names) & {"lightning", "hydra", "omegaconf", "sentencepiece"}


# Lower first: a room may import those before it, never those after it.
ROOMS = (
    ("system",),
    ("config", "losses"),  # neither imports the other
    ("models", "plugins"),  # neither imports the other
    ("data",),
    ("decoding",),
    ("checkpoints",),
    ("evaluation", "training"),  # neither imports the other
    ("doctor",),
)
# And the recogniser, for those who want the model and not the commands.
COMMANDS = {"__main__", "train", "evaluate", "transcribe", "average", "compare", "recognizer"}
# Rooms that a room doesn't need, though they lie below it.
STRANGERS = {
    "losses": {"system"},
    "models": {"losses", "system"},
    "plugins": {"system", "config"},
}


def test_every_room_has_its_place():
    rooms = {p.name for p in PACKAGE.iterdir() if p.is_dir() and (p / "__init__.py").is_file()}
    assert rooms == {room for floor in ROOMS for room in floor}
    assert {p.stem for p in PACKAGE.glob("*.py")} == {"__init__", *COMMANDS}


@pytest.mark.parametrize("room", [room for floor in ROOMS for room in floor])
def test_rooms_import_lower_rooms_alone(room):
    floor = next(number for number, rooms in enumerate(ROOMS) if room in rooms)
    allowed = {name for rooms in ROOMS[:floor] for name in rooms} | {room}
    allowed -= STRANGERS.get(room, set())
    for path in sources(room):
        if path.stem in ("command", "__main__"):
            continue  # a command may use what it likes
        own = {n.split(".")[1] for n in imported_modules(path) if n.startswith("asr_ascend.")}
        assert own <= allowed, path


def test_torch_npu_is_imported_in_one_place():
    users = {p.name for p in sources() if "torch_npu" in roots(imported_modules(p))}
    assert users == {"npu_library.py"}


def test_hydra_stays_in_the_entry_points():
    users = {p.stem for p in sources() if roots(imported_modules(p)) & {"hydra", "omegaconf"}}
    assert users == {"composing"}


def test_the_package_itself_imports_nothing_heavy():
    assert not roots(imported_modules(PACKAGE / "__init__.py")) & ({"torch"} | HEAVY)


def test_the_doctor_itself_runs_on_the_standard_library_alone():
    """Its own process imports nothing that may be broken: its children do."""
    program = f"""
import sys
for name in {sorted({"torch", "numpy", *HEAVY})!r}:
    sys.modules[name] = None
import asr_ascend.__main__
from asr_ascend.doctor import command
ours = {{name for name in sys.modules if name.startswith("asr_ascend.")}}
print(sorted(name for name in ours if name.split(".")[1] not in ("doctor", "system", "__main__")))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ, timeout=500
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_the_loss_works_where_only_torch_is_installed():
    """A process in which every other dependency fails to import, as in a bare environment."""
    program = f"""
import sys
for name in {sorted(HEAVY)!r}:
    sys.modules[name] = None
import torch
from asr_ascend.losses import rnnt_loss
logits = torch.zeros(24, 8)
loss = rnnt_loss(logits, torch.tensor([[2, 3], [1, 0]]), torch.tensor([4, 6]), torch.tensor([2, 1]))
print(f"{{loss.item():.5f}}")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ, timeout=500
    )
    # Equal logits: (T + U) ln V - ln C(T + U - 1, U), the mean over T, U = (4, 2) and (6, 1).
    # (6 ln 8 - ln 10 + 7 ln 8 - ln 6) / 2 = 11.46920
    assert (done.returncode, done.stdout.strip()) == (0, "11.46920"), done.stderr
