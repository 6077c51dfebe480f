"""The wheel and the sdist: what is in them, and that they work away from the checkout."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support import compiler_cache, compiling

ROOT = Path(__file__).parents[2]


def run(*command: str, cwd: Path, **environment: str) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith("ASR_ASCEND")}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**env, **environment},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """sdist, and the wheel built from that sdist, as `python -m build` makes them."""
    out = tmp_path_factory.mktemp("dist")
    cache = [sys.executable, compiler_cache.__file__, str(compiling.FOLDER / "wheel")]
    run(
        *(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), "."),
        cwd=ROOT,
        CMAKE_CXX_COMPILER_LAUNCHER=";".join(cache),
    )
    return out


def wheel_of(dist: Path) -> Path:
    (wheel,) = dist.glob("*.whl")
    return wheel


def test_the_wheel_fits_every_python_and_holds_library_and_configs(dist):
    wheel = wheel_of(dist)
    assert wheel.name.startswith("asr_ascend-0.1.0-py3-none-linux_")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "asr_ascend/__init__.py",
        "asr_ascend/py.typed",
        "asr_ascend/lib/libasr_ascend_cpu.so",
        "asr_ascend/conf/train.yaml",
        "asr_ascend/conf/experiment/demo.yaml",
    } <= names
    assert not [
        n for n in names if not n.startswith(("asr_ascend/", "asr_ascend-0.1.0.dist-info/"))
    ]


def test_the_sdist_holds_what_a_build_needs_and_nothing_made_here(dist):
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {n.split("/", 1)[1] for n in archive.getnames() if "/" in n}
    assert {"LICENSE", "pyproject.toml", "kernels/CMakeLists.txt", "conf/train.yaml"} <= names
    assert not [n for n in names if n.startswith((".venv", "outputs", "data/", "build/"))]


def test_the_library_needs_no_torch_and_no_openmp_runtime(dist, tmp_path):
    zipfile.ZipFile(wheel_of(dist)).extractall(tmp_path)
    needed = run("readelf", "-d", "asr_ascend/lib/libasr_ascend_cpu.so", cwd=tmp_path)
    libraries = [line.split("[")[1].rstrip("]") for line in needed.splitlines() if "NEEDED" in line]
    allowed = ("libc.", "libm.", "libstdc++.", "libgcc_s.", "libpthread.", "ld-linux")
    assert libraries and all(name.startswith(allowed) for name in libraries), libraries


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, put in a folder of its own; its dependencies stay this environment's."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    run(*pip, "--target", str(target), str(wheel_of(dist)), cwd=target)
    return target


def in_wheel(installed: Path, program: str, cwd: Path) -> str:
    first = f"import sys; sys.path.insert(0, {str(installed)!r}); sys.meta_path[:] = " + (
        "[f for f in sys.meta_path if 'ScikitBuild' not in type(f).__name__]\n"
    )
    return run(sys.executable, "-c", first + program, cwd=cwd)


def test_the_installed_wheel_computes_the_loss_from_any_folder(installed, tmp_path):
    program = """
import torch, asr_ascend
from asr_ascend.losses import available_backends, rnnt_loss
lengths = torch.tensor([4, 6]), torch.tensor([2, 1])
loss = rnnt_loss(torch.zeros(24, 8), torch.tensor([[2, 3], [1, 0]]), *lengths)
print(asr_ascend.__file__)
print(available_backends(), f"{loss.item():.5f}")
"""
    file, result = in_wheel(installed, program, tmp_path).splitlines()
    assert Path(file) == installed / "asr_ascend" / "__init__.py"
    assert result == "('cpu', 'reference') 11.46920"


def test_configs_compose_from_the_installed_wheel(installed, tmp_path):
    program = """
from asr_ascend.config import composing
print(composing.conf_dir())
import sys
sys.argv = ["train", "--cfg", "job", "experiment=demo", "loss.blank=3"]
import runpy
runpy.run_module("asr_ascend.train", run_name="__main__")
"""
    folder, *printed = in_wheel(installed, program, tmp_path).splitlines()
    assert Path(folder) == installed / "asr_ascend" / "conf"
    assert "  blank: 3" in printed
