"""How the CPU library is found, and what is said where it can't be."""

import ctypes
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from asr_ascend.losses import available_backends, rnnt_loss
from asr_ascend.losses.backends import cpu_library

PACKAGE = Path(cpu_library.__file__).resolve().parents[2]
LIBRARY_NAME = "libasr_ascend_cpu.so"
SLOW_WAY = 'until then, backend="reference" works, slowly.'
# Equal logits, T = 3 frames, no label: one path of 3 blanks.
ONE_PATH = (
    torch.zeros(3, 4),
    torch.zeros(1, 0, dtype=torch.int64),
    torch.tensor([3]),
    torch.tensor([0]),
)
ONE_PATH_COST = 3 * math.log(4)


@pytest.fixture(autouse=True)
def load_again_afterwards():
    cpu_library.library.cache_clear()
    yield
    cpu_library.library.cache_clear()


@pytest.fixture
def library_copy(tmp_path):
    """The real library under another path: loaded as one more, with its own static variables."""
    path = tmp_path / "a copy.so"
    shutil.copy(cpu_library._library_path(), path)
    return path


def compile_library(path, source):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=source.encode(), check=True)
    return path


def assert_unavailable(message):
    for call in (cpu_library.library, lambda: rnnt_loss(*ONE_PATH)):
        with pytest.raises(RuntimeError) as raised:
            call()
        assert str(raised.value) == message
    assert available_backends() == ("reference",)
    assert rnnt_loss(*ONE_PATH, backend="reference").item() == pytest.approx(ONE_PATH_COST)


def build_command():
    return f"`pip install -e .` in {PACKAGE.parent}"


def test_library_is_found_and_used():
    assert available_backends() == ("cpu", "reference")
    assert rnnt_loss(*ONE_PATH).item() == pytest.approx(ONE_PATH_COST)
    assert cpu_library.library() is cpu_library.library()


class TestLibraryVariable:
    def test_path(self, monkeypatch, library_copy):
        monkeypatch.setenv("ASR_ASCEND_LIBRARY", str(library_copy))
        assert cpu_library.library()._name == str(library_copy)
        assert rnnt_loss(*ONE_PATH).item() == pytest.approx(ONE_PATH_COST)

    def test_no_such_file(self, monkeypatch, tmp_path):
        monkeypatch.setenv("ASR_ASCEND_LIBRARY", str(tmp_path / "none.so"))
        assert_unavailable(
            f"`ASR_ASCEND_LIBRARY` must be the path of {LIBRARY_NAME}, "
            f"but {tmp_path}/none.so is not a file."
        )

    def test_no_library(self, monkeypatch, tmp_path):
        path = tmp_path / "text.so"
        path.write_text("not a shared library")
        monkeypatch.setenv("ASR_ASCEND_LIBRARY", str(path))
        assert_unavailable(
            f"the CPU library at {path} can't be loaded: {path}: file too short; "
            f"{build_command()} builds it again."
        )

    def test_another_library(self, monkeypatch, tmp_path):
        path = compile_library(tmp_path / "other.so", "int unrelated(void) { return 0; }")
        monkeypatch.setenv("ASR_ASCEND_LIBRARY", str(path))
        assert_unavailable(f"{path} is not {LIBRARY_NAME}: it has no asr_ascend_abi_version.")

    def test_other_abi_version(self, monkeypatch, tmp_path):
        source = "int asr_ascend_abi_version(void) { return 77; }"
        path = compile_library(tmp_path / "old.so", source)
        monkeypatch.setenv("ASR_ASCEND_LIBRARY", str(path))
        assert_unavailable(
            f"the CPU library at {path} must have ABI version {cpu_library.ABI_VERSION}, "
            "but has 77; "
            f"{build_command()} builds it again."
        )


class TestIsaVariable:
    def test_unknown(self, monkeypatch, library_copy):
        monkeypatch.setenv("ASR_ASCEND_LIBRARY", str(library_copy))
        cpu_library.library.cache_clear()
        monkeypatch.setenv("ASR_ASCEND_ISA", "sse9")
        names = runnable_isas()
        assert_unavailable(f"`ASR_ASCEND_ISA` must be one of {names} here, but is sse9.")

    def test_plain(self, monkeypatch, library_copy):
        monkeypatch.setenv("ASR_ASCEND_LIBRARY", str(library_copy))
        monkeypatch.setenv("ASR_ASCEND_ISA", "plain")
        assert cpu_library.library().asr_ascend_isa() == b"plain"
        assert rnnt_loss(*ONE_PATH).item() == pytest.approx(ONE_PATH_COST)


def runnable_isas():
    """As the library itself lists them: what this machine has, best first, plain last."""
    library = ctypes.CDLL(os.environ["ASR_ASCEND_LIBRARY"])
    library.asr_ascend_isas.restype = ctypes.c_char_p
    names = library.asr_ascend_isas().decode().split(",")
    assert names[-1] == "plain"
    return ", ".join(names)


# Runs in a fresh interpreter whose `asr_ascend` is a copy of the sources, found along sys.argv[1:].
PROGRAM = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "Editable" not in repr(finder)
                    and "ScikitBuild" not in repr(finder)]
sys.path[:0] = sys.argv[1:]
import torch
from asr_ascend.losses import available_backends, rnnt_loss
batch = (torch.zeros(3, 4), torch.zeros(1, 0, dtype=torch.int64), torch.tensor([3]),
         torch.tensor([0]))
print(available_backends())
print(f"{rnnt_loss(*batch, backend='reference').item():.4f}")
try:
    print(f"{rnnt_loss(*batch).item():.4f}")
except RuntimeError as error:
    print(error)
"""


def run_in_tree(*folders):
    environment = {name: value for name, value in os.environ.items() if "ASR_ASCEND" not in name}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, folders)],
        env=environment,
        cwd=folders[-1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def make_package(folder, *, checkout):
    """The sources without the library, in a checkout or as if installed."""
    shutil.copytree(
        PACKAGE / "losses",
        folder / "asr_ascend" / "losses",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    shutil.copy(PACKAGE / "__init__.py", folder / "asr_ascend")
    (folder / "asr_ascend" / "system").mkdir()
    for name in ("__init__.py", "starting.py"):
        shutil.copy(PACKAGE / "system" / name, folder / "asr_ascend" / "system")
    if checkout:
        (folder / "pyproject.toml").touch()


def make_installation(folder, *, library=None, editable=False):
    """What pip leaves of asr-ascend in site-packages, without the Python sources."""
    metadata = folder / "asr_ascend-0.1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: asr-ascend\nVersion: 0.1.0\n")
    if editable:
        (metadata / "direct_url.json").write_text('{"url": "", "dir_info": {"editable": true}}')
    if library is not None:
        (folder / "asr_ascend" / "lib").mkdir(parents=True)
        shutil.copy(library, folder / "asr_ascend" / "lib" / LIBRARY_NAME)


@pytest.fixture
def folders(tmp_path):
    return tmp_path / "tree", tmp_path / "site"


@pytest.mark.parametrize("checkout", [True, False])
def test_not_built(folders, checkout):
    tree, site = folders
    make_package(tree, checkout=checkout)
    make_installation(site)
    command = (
        f"`pip install -e .` in {tree}"
        if checkout
        else "`pip install .` in a checkout of asr_ascend"
    )
    assert run_in_tree(tree, site) == [
        "('reference',)",
        f"{ONE_PATH_COST:.4f}",
        f"the CPU library of asr_ascend is not built: {command} builds it; {SLOW_WAY}",
    ]


def test_source_tree_hides_a_plain_installation(folders, library_copy):
    tree, site = folders
    make_package(tree, checkout=True)
    make_installation(site, library=library_copy)
    assert run_in_tree(tree, site) == [
        "('reference',)",
        f"{ONE_PATH_COST:.4f}",
        f"{tree}/asr_ascend hides the installed asr_ascend but holds no CPU library: "
        f"run `pip install -e .` in {tree}, or Python from another folder; {SLOW_WAY}",
    ]


def test_editable_installation(folders, library_copy):
    """The library lies in site-packages, the sources in the checkout."""
    tree, site = folders
    make_package(tree, checkout=True)
    make_installation(site, library=library_copy, editable=True)
    used = ["('cpu', 'reference')", f"{ONE_PATH_COST:.4f}", f"{ONE_PATH_COST:.4f}"]
    assert run_in_tree(tree, site) == used


def test_plain_installation(folders, library_copy):
    _, site = folders
    make_package(site, checkout=False)
    (site / "asr_ascend" / "lib").mkdir()
    shutil.copy(library_copy, site / "asr_ascend" / "lib" / LIBRARY_NAME)
    used = ["('cpu', 'reference')", f"{ONE_PATH_COST:.4f}", f"{ONE_PATH_COST:.4f}"]
    assert run_in_tree(site) == used
