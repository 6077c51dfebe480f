"""The command in environments that are broken: it says what is wrong, and never crashes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from asr_ascend.doctor import command
from tests.support.atlas_a2 import AtlasA2, lines_of
from tests.support.made_up_machine import BARE_PYTHON, REPOSITORY, needs_tools, write


@pytest.fixture
def bare(atlas: AtlasA2) -> AtlasA2:
    """With the real sources of this package, and no torch but the made-up one."""
    atlas.take_package()
    return atlas


# Bad input


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--require", "gpu"], "Error: argument --require: invalid choice: 'gpu'"),
        (
            ["--timeout", "0"],
            "Error: argument --timeout: must be a number of seconds above 0, but is 0.",
        ),
        (["more"], "Error: unrecognized arguments: more."),
    ],
)
def test_wrong_options(options, sentence, capsys) -> None:
    with pytest.raises(SystemExit) as end:
        command.main(options)
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith(sentence)


def test_help_names_what_can_be_asked_for(capsys) -> None:
    with pytest.raises(SystemExit) as end:
        command.main(["--help"])
    assert end.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "cpu, npu, reference, torchaudio, training, build" in text
    assert "exit status: 0 if all that was asked for is right; 1 if not" in text


# Without torch


@needs_tools
def test_without_torch(bare: AtlasA2) -> None:
    shutil.rmtree(bare.site)
    done = bare.run()
    assert (done.returncode, done.stderr) == (0, "")
    assert lines_of(done.stdout, "torch") == [
        "torch missing it is not installed",
        "Mend: pip install 'torch>=2.9'"
        if "torch>=2.9" in done.stdout
        else "Mend: pip install 'torch'",
    ]
    for name in ("reference", "cpu"):
        assert lines_of(done.stdout, f"loss on {name}") == [
            f"loss on {name} missing it was not run: torch can't be imported"
        ]
    assert lines_of(done.stdout, "chip") == ["chip ok 910B3 (ascend910b)"]
    asked = bare.run("--require=cpu")
    assert asked.returncode == 1
    assert asked.stdout.splitlines()[-1] == (
        "Asked for: cpu. Not right: torch, CPU library, instruction set and loss on cpu."
    )


# torch_npu that can't be used, with a made-up torch


@needs_tools
def test_a_missing_libhccl(bare: AtlasA2) -> None:
    """torch fails with it, as the real one does: it imports torch_npu by itself."""
    (bare.cann / "lib64" / "libhccl.so").unlink()
    reason = "libhccl.so: cannot open shared object file: No such file or directory"
    write(bare.site / "torch_npu" / "__init__.py", f"raise ImportError({reason!r})")
    torch = bare.site / "torch" / "__init__.py"
    torch.write_text(
        torch.read_text() + 'if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") != "0":\n'
        '    raise RuntimeError("Failed to load the backend extension: torch_npu.")\n'
    )
    done = bare.run("--require=npu")
    assert (done.returncode, done.stderr) == (1, "")
    assert lines_of(done.stdout, "torch_npu") == [
        f"torch_npu wrong 2.13.0 can't be imported: ImportError: {reason}",
        "Mend: source /m/cann/set_env.sh",
    ]
    assert lines_of(done.stdout, "import torch") == [
        "import torch wrong even `import torch` fails in this Python, since torch imports "
        "torch_npu by itself",
        "Mend: export TORCH_DEVICE_BACKEND_AUTOLOAD=0",
    ]
    assert lines_of(done.stdout, "CANN libraries")[0] == (
        "CANN libraries missing libhccl.so is in no folder of LD_LIBRARY_PATH, so torch_npu can't "
        "be imported"
    )
    assert lines_of(done.stdout, "loss on npu") == [
        "loss on npu missing it was not run: torch_npu can't be used"
    ]


@needs_tools
def test_torch_npu_for_another_torch(bare: AtlasA2) -> None:
    done = bare.run(MADE_UP_TORCH="2.12.0+cpu")
    assert (done.returncode, done.stderr) == (1, "")  # no loss runs with the made-up torch
    assert lines_of(done.stdout, "torch_npu") == [
        "torch_npu wrong torch_npu 2.13.0 is made for torch 2.13.0, but torch is 2.12.0+cpu",
        "Mend: pip install torch-npu==2.12.0.post3",
    ]


@needs_tools
def test_half_an_environment_and_no_tools_at_all(bare: AtlasA2) -> None:
    done = bare.run(ASCEND_OPP_PATH="", LD_LIBRARY_PATH="", PATH="/nonexistent")
    assert (done.returncode, done.stderr) == (1, "")
    assert lines_of(done.stdout, "set_env") == [
        "set_env wrong half of it is set: `ASCEND_HOME_PATH` is /m/cann, `ASCEND_OPP_PATH` is not "
        "set",
        "Mend: source /m/cann/set_env.sh",
    ]
    assert lines_of(done.stdout, "C++ compiler")[0] == (
        "C++ compiler missing there is no g++ in PATH"
    )
    assert lines_of(done.stdout, "chip")[0] == (
        "chip warning npu-smi is not in PATH, so the chip is not known"
    )


@needs_tools
def test_a_folder_that_is_gone(bare: AtlasA2) -> None:
    """The folder in which the command was started."""
    folder = bare.folder / "gone"
    folder.mkdir()
    environment = {**bare.environment, "PYTHONPATH": f"{bare.kernels.parent}"}
    script = f'rmdir "{folder}" && exec "{BARE_PYTHON}" -m asr_ascend.doctor'
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        cwd=folder,
        env=environment | {"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert lines_of(done.stdout, "disk")[0].startswith("disk wrong ")


@needs_tools
def test_standard_output_on_a_full_disk(bare: AtlasA2) -> None:
    environment = {**bare.environment, "PYTHONPATH": f"{bare.kernels.parent}"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [str(BARE_PYTHON), "-m", "asr_ascend.doctor"],
            cwd=bare.folder,
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
        )
    assert done.returncode == 2
    assert done.stderr == "Error: Standard output takes no more: No space left on device.\n"


def test_a_check_that_fails_is_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from asr_ascend.doctor import build_side
    from asr_ascend.doctor.machine import Machine

    def fail(_: Machine) -> None:
        raise RuntimeError("nobody thought of it")

    monkeypatch.setattr(build_side, "compiler", fail)
    line = build_side.lines(Machine(), {}, for_npu=False)[0]
    assert (line.subject, line.status, line.found) == (
        "C++ compiler",
        "wrong",
        "the doctor can't look at it: RuntimeError: nobody thought of it",
    )


# The real installation of the tests


def test_this_installation_with_a_broken_lightning(tmp_path: Path) -> None:
    """The loss is looked at where the recipe's packages are broken."""
    for name in ("lightning", "hydra"):
        write(tmp_path / "broken" / name / "__init__.py", "raise RuntimeError('broken')")
    nothing = dict.fromkeys(("ASCEND_HOME_PATH", "ASCEND_OPP_PATH", "ASCEND_CUSTOM_OPP_PATH"), "")
    environment = {**os.environ, **nothing, "PYTHONPATH": f"{tmp_path}/broken:{REPOSITORY}"}
    requirements = ("--require=cpu", "--require=training")
    done = subprocess.run(
        [sys.executable, "-m", "asr_ascend", "doctor", "--json", *requirements],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["required"], found["right"]) == (["cpu", "training"], False)
    assert found["failing"] == ["recipe"]
    lines = {line["subject"]: line for section in found["sections"] for line in section["lines"]}
    assert lines["loss on cpu"]["found"] == (
        "right in float32, float64, float16 and bfloat16, by the reference in float64"
    )
    assert lines["loss on reference"]["found"] == "right in float64, by a closed form"
    assert "can't be imported: RuntimeError: broken" in lines["recipe"]["found"]
    assert [section["title"] for section in found["sections"]] == [
        *("Python", "CPU", "NPU", "Building from source", "This machine"),
        "The loss, forward and backward",
    ]
