"""Python, its packages, the CPU library and the losses, with one of them broken."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from asr_ascend.doctor import cpu_side, python_side
from asr_ascend.doctor.lines import Line
from asr_ascend.doctor.probing import Outcome
from tests.support.atlas_a2 import FOREIGN_LIBRARY, OTHER_PROCESSOR, AtlasA2
from tests.support.made_up_machine import needs_tools, write

pytestmark = needs_tools
FINE = {
    "torch": Outcome({"version": "2.13.0+cpu", "abi": True}),
    "torchaudio": Outcome({"version": "2.11.0"}),
    **{f"package:{name}": Outcome({"version": "1"}) for name in python_side.TRAINING},
    "cpu_library": Outcome(
        {"path": "/lib.so", "abi": 4, "isa": "avx512", "isas": ["avx512", "avx2", "plain"]}
    ),
}
REQUIREMENTS = {
    "torch": "torch>=2.9",
    "lightning": "lightning!=2.6.2,!=2.6.3,>=2.6",
    "hydra-core": "hydra-core>=1.3.2",
    "sentencepiece": "sentencepiece>=0.2.1",
    "soundfile": "soundfile>=0.12.1",
}
VERSIONS = {
    "torch": "2.13.0+cpu",
    "torchaudio": "2.11.0",
    "lightning": "2.6.6",
    "hydra-core": "1.3.8",
    "sentencepiece": "0.2.3",
    "soundfile": "0.14.0",
}


def install(site: Path, name: str, version: str, source: str | None = None) -> None:
    """Metadata as pip leaves it."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    write(folder / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if source is not None:
        text = f'{{"url": "file://{source}", "dir_info": {{"editable": true}}}}'
        write(folder / "direct_url.json", text)


@pytest.fixture
def site(atlas: AtlasA2, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Python's path: a made-up site-packages alone."""
    folder = atlas.folder / "site-packages"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder)])
    monkeypatch.setattr(python_side, "requirement", lambda name: REQUIREMENTS.get(name, name))
    for name, version in VERSIONS.items():
        install(folder, name, version)
    return folder


def lines(atlas: AtlasA2, subject: str, **changes: Outcome) -> list[list[str | None]]:
    outcomes = {**FINE, **{name.replace("__", ":"): value for name, value in changes.items()}}
    found = python_side.lines(atlas.machine(), outcomes)
    return [atlas.said(line) for line in found if line.subject == subject]


# Packages


def test_all_is_right(atlas: AtlasA2, site: Path) -> None:
    install(site, "asr-ascend", "0.1.0", source=str(atlas.kernels.parent))
    found = python_side.lines(atlas.machine(), FINE)
    assert [line.subject for line in found] == [
        *("Python", "asr_ascend", "torch", "torchaudio", "recipe")
    ]
    assert [atlas.said(line) for line in found[1:]] == [
        ["ok", "0.1.0, editable install of /m/repository", None],
        ["ok", "2.13.0+cpu, C++11 ABI 1", None],
        ["ok", "2.11.0", None],
        ["ok", "lightning 2.6.6, hydra-core 1.3.8, sentencepiece 0.2.3, soundfile 0.14.0", None],
    ]


def test_an_old_or_new_python(atlas: AtlasA2, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/python")
    for version, said in (
        ("3.9.1", ["wrong", "3.9.1 at /python; 3.10 or later is needed", None]),
        (
            "3.15.0",
            [
                "warning",
                "3.15.0 at /python; the package is tested with 3.10, 3.11, 3.12 and 3.13",
                None,
            ],
        ),
    ):
        monkeypatch.setattr(python_side.platform, "python_version", lambda version=version: version)
        assert lines(atlas, "Python") == [said]


def test_a_source_tree_that_was_never_installed(atlas: AtlasA2, site: Path) -> None:
    write(atlas.kernels / "build.sh", "")
    assert lines(atlas, "asr_ascend") == [
        [
            "warning",
            "Python takes it from /m/repository/asr_ascend, where it was never installed by pip",
            "pip install -e /m/repository",
        ]
    ]


def test_a_checkout_that_hides_the_install(atlas: AtlasA2, site: Path) -> None:
    install(site, "asr-ascend", "0.1.0")
    assert lines(atlas, "asr_ascend") == [
        [
            "warning",
            "Python takes it from /m/repository/asr_ascend, which hides the install in "
            "/m/site-packages",
            "pip install -e /m/repository",
        ]
    ]


def test_two_installs(atlas: AtlasA2, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = atlas.folder / "user-site"
    install(other, "asr-ascend", "0.0.9", source="/elsewhere")
    install(other, "torch", "2.9.0")
    install(site, "asr-ascend", "0.1.0")
    monkeypatch.setattr(sys, "path", [str(other), str(site)])
    assert lines(atlas, "asr_ascend") == [
        [
            "warning",
            "2 installs are on Python's path (/elsewhere and /m/site-packages); Python takes "
            "/m/repository/asr_ascend",
            "pip uninstall asr-ascend",
        ]
    ]
    assert lines(atlas, "torch")[1] == [
        "warning",
        "it is installed 2 times: 2.9.0 in /m/user-site and 2.13.0+cpu in /m/site-packages; "
        "Python takes the first",
        "pip uninstall torch",
    ]


def test_torch(atlas: AtlasA2, site: Path) -> None:
    broken = Outcome(None, "OSError: libtorch_cpu.so: cannot open shared object file")
    assert lines(atlas, "torch", torch=broken) == [
        [
            "wrong",
            "it can't be imported: OSError: libtorch_cpu.so: cannot open shared object file",
            "pip install --force-reinstall 'torch>=2.9'",
        ]
    ]
    old = Outcome({"version": "2.8.0", "abi": True})
    assert lines(atlas, "torch", torch=old) == [
        ["wrong", "it must be at least 2.9, but is 2.8.0", "pip install 'torch>=2.9'"]
    ]
    (site / "torch-2.13.0+cpu.dist-info" / "METADATA").unlink()
    (site / "torch-2.13.0+cpu.dist-info").rmdir()
    assert lines(atlas, "torch", torch=broken) == [
        ["missing", "it is not installed", "pip install 'torch>=2.9'"]
    ]


def test_torchaudio_beside_another_torch(atlas: AtlasA2, site: Path) -> None:
    reason = "libc10_cuda.so: cannot open shared object file: No such file or directory"
    assert lines(atlas, "torchaudio", torchaudio=Outcome(None, reason)) == [
        [
            "wrong",
            f"2.11.0 can't be used: {reason}; it was built for CUDA, torch 2.13.0+cpu was not; "
            "the loss needs no torchaudio",
            "pip install --force-reinstall torch torchaudio",
        ]
    ]


def test_the_recipe(atlas: AtlasA2, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Outcome(None, "AttributeError: module 'lightning' has no attribute 'pytorch'")
    assert lines(atlas, "recipe", **{"package:lightning.pytorch": broken}) == [
        [
            "wrong",
            "lightning 2.6.6 can't be imported: AttributeError: module 'lightning' has no "
            "attribute 'pytorch'",
            "pip install --force-reinstall 'lightning!=2.6.2,!=2.6.3,>=2.6'",
        ]
    ]
    monkeypatch.setitem(VERSIONS, "hydra-core", "none")
    versions = {**VERSIONS, "hydra-core": None, "soundfile": None}
    monkeypatch.setattr(python_side, "version_of", versions.get)
    gone = Outcome(None, "ModuleNotFoundError: No module named 'x'")
    assert lines(atlas, "recipe", package__hydra=gone, package__soundfile=gone) == [
        [
            "missing",
            "hydra-core and soundfile are not installed; the loss needs none of it",
            "pip install 'hydra-core>=1.3.2' 'soundfile>=0.12.1'",
        ]
    ]


def test_the_malicious_lightning(atlas: AtlasA2, site: Path, monkeypatch) -> None:
    """GHSA-w37p-236h-pfx3: it stole credentials."""
    monkeypatch.setattr(python_side, "version_of", {**VERSIONS, "lightning": "2.6.2"}.get)
    assert lines(atlas, "recipe")[0][:2] == [
        "wrong",
        "lightning must be not 2.6.2, but is 2.6.2",
    ]


def test_metadata_that_is_damaged(atlas: AtlasA2, site: Path) -> None:
    install(site, "asr-ascend", "0.1.0", source=str(atlas.kernels.parent))
    (site / "asr_ascend-0.1.0.dist-info" / "direct_url.json").write_text("{")
    assert lines(atlas, "asr_ascend")[0][0] == "warning"
    (site / "torch-2.13.0+cpu.dist-info" / "METADATA").write_bytes(b"\xff\xfe\x00")
    assert lines(atlas, "torch")[0][0] == "ok"


# The CPU library


def said(atlas: AtlasA2, outcome: Outcome, **variables: str) -> list[list[str | None]]:
    found = cpu_side.lines(atlas.machine(**variables), {"cpu_library": outcome})
    return [atlas.said(line) for line in found]


@pytest.fixture
def library(atlas: AtlasA2, site: Path) -> Path:
    path = atlas.kernels.parent / "asr_ascend" / "lib" / "libasr_ascend_cpu.so"
    atlas.library("int library;", path)
    return path


def test_the_library_and_its_instruction_set(atlas: AtlasA2, library: Path) -> None:
    fine = FINE["cpu_library"]
    assert said(atlas, fine) == [
        ["ok", "/lib.so, ABI version 4", None],
        ["ok", "avx512, the widest that this processor runs (of avx512, avx2 and plain)", None],
    ]
    narrow = Outcome({**(fine.values or {}), "isa": "avx2"})
    assert said(atlas, narrow, ASR_ASCEND_ISA="avx2")[1] == [
        "warning",
        "avx2, since `ASR_ASCEND_ISA` asks for it; avx512 is faster",
        "unset ASR_ASCEND_ISA",
    ]
    plain = Outcome({**(fine.values or {}), "isa": "plain", "isas": ["plain"]})
    assert said(atlas, plain)[1] == [
        "warning",
        "plain, since this processor has no wider one that the library was built for",
        None,
    ]
    reason = "`ASR_ASCEND_ISA` must be one of avx2, plain here, but is sse"
    assert said(atlas, Outcome(None, reason), ASR_ASCEND_ISA="sse") == [
        ["ok", "/m/repository/asr_ascend/lib/libasr_ascend_cpu.so", None],
        ["wrong", reason, "unset ASR_ASCEND_ISA"],
    ]


def test_a_library_that_cannot_be_used(atlas: AtlasA2, library: Path) -> None:
    path, mend = "/m/repository/asr_ascend/lib/libasr_ascend_cpu.so", "pip install -e /m/repository"
    reason = "the CPU library must have ABI version 4, but has 3"
    assert said(atlas, Outcome(None, reason)) == [
        ["wrong", reason, mend],
        ["missing", "the CPU library can't say", None],
    ]
    assert said(atlas, FINE["cpu_library"], ASR_ASCEND_LIBRARY="/none")[0] == [
        "wrong",
        "`ASR_ASCEND_LIBRARY` names /none, which is no file",
        "unset ASR_ASCEND_LIBRARY",
    ]
    library.write_bytes(FOREIGN_LIBRARY)
    machine = atlas.machine()
    assert said(atlas, Outcome(None, "wrong ELF class"))[0] == [
        "wrong",
        f"{path} is made for {OTHER_PROCESSOR}, but this machine is {machine.processor}",
        mend,
    ]
    library.unlink()
    assert said(atlas, Outcome(None, "it is not built"))[0] == ["missing", "it is not built", mend]


# The losses


def losses(outcomes: dict[str, Outcome], stand_in: bool = False, **absent: str) -> list[Line]:
    backends = {name: absent.get(name) for name in ("reference", "cpu", "npu")}
    return cpu_side.losses(outcomes, backends, stand_in)


def test_losses() -> None:
    right = {"wrong": [], "dtypes": ["float32", "float16"]}
    wrong = "float32: the cost of sample 0 is 3, but must be 4"
    outcomes = {
        "loss:reference": Outcome({"wrong": [], "dtypes": ["float64"]}),
        "loss:cpu": Outcome({**right, "wrong": [wrong]}),
        "loss:npu": Outcome(right),
    }
    assert [(line.subject, line.status, line.found, line.mend) for line in losses(outcomes)] == [
        ("loss on reference", "ok", "right in float64, by a closed form", None),
        (
            "loss on cpu",
            "wrong",
            f"it differs from the reference in float64: {wrong}",
            "please report it, with the output of --json",
        ),
        ("loss on npu", "ok", "right in float32 and float16, by the reference in float64", None),
    ]
    assert losses(outcomes, stand_in=True)[2].found == (
        "right in float32 and float16, by the reference in float64 (over the stand-in for CANN, "
        "no chip)"
    )
    crashed = {**outcomes, "loss:npu": Outcome(None, "the process was ended by SIGSEGV")}
    assert losses(crashed)[2].found == "it can't be run: the process was ended by SIGSEGV"
    assert losses(crashed, npu="torch_npu can't be used")[2] == Line(
        "loss on npu", "missing", "it was not run: torch_npu can't be used", None, ("npu",)
    )
