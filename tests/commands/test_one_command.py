"""`asr-ascend COMMAND`: every command by name, and what is answered to a wrong one."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from asr_ascend import __version__
from asr_ascend.__main__ import COMMANDS, main

ROOT = str(Path(__file__).resolve().parents[2])
SCRIPT = str(Path(sys.executable).with_name("asr-ascend"))


def test_help_lists_every_command(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    names = ["train", "evaluate", "transcribe", "compare", "average"]
    names += ["import", "noise", "rooms", "synthesize", "plugins", "doctor"]
    assert re.findall(r"^  (\w+) {2,}\w", text, re.MULTILINE) == names
    assert main([]) == 2


def test_the_version_names_torch_and_the_kernel(capsys):
    import torch

    assert main(["--version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"asr-ascend {__version__}", f"torch {torch.__version__}"]
    assert re.fullmatch(r"CPU kernel: ABI \d+, instruction set (\w+) \(of .*\b\1\b.*\)", lines[2])
    assert lines[3] == "backends of the loss here: cpu, reference"


@pytest.mark.parametrize(
    ("typed", "advice"),
    [
        ("trian", " Did you mean asr-ascend train?"),
        ("--transcribe", " Did you mean asr-ascend transcribe?"),
        ("42", ""),
    ],
)
def test_an_unknown_command_is_one_sentence(typed, advice, capsys):
    assert main([typed]) == 2
    assert capsys.readouterr().err == (
        f"Error: There is no command '{typed}'; there are train, evaluate, transcribe, compare, "
        f"average, import, noise, rooms, synthesize, plugins, doctor.{advice}\n"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_answers_to_help(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        raise SystemExit(main([name, "--help"]))
    assert not stopped.value.code
    assert len(capsys.readouterr().out) > 200


def test_a_command_gets_what_follows_its_name(monkeypatch):
    seen = []
    module = importlib.import_module("asr_ascend.checkpoints.average")
    monkeypatch.setattr(module, "main", lambda arguments: seen.append(arguments) or 0)
    monkeypatch.setattr(importlib.import_module("asr_ascend.average"), "main", module.main)
    monkeypatch.setattr(sys, "argv", ["asr-ascend", "average", "outputs/demo", "--best", "2"])
    assert main() == 0
    assert seen == [["outputs/demo", "--best", "2"]]


def test_keys_reach_a_command_that_reads_a_config(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["transcribe", "--checkpoint", "x.ckpt"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err == (
        "Error: There is no flag --checkpoint: keys are written as key=value. Write "
        "checkpoint=x.ckpt\n"
    )


@pytest.mark.parametrize(("arguments", "status"), [(["--help"], 0), (["trian"], 2)])
def test_the_installed_script_is_the_module(arguments, status):
    env = {**os.environ, "PYTHONPATH": ROOT}
    script, module = (
        subprocess.run([*typed, *arguments], env=env, capture_output=True, text=True, timeout=60)
        for typed in ([SCRIPT], [sys.executable, "-m", "asr_ascend"])
    )
    assert script.returncode == module.returncode == status
    assert (script.stdout, script.stderr) == (module.stdout, module.stderr)
    if status == 0:
        assert script.stdout.startswith("usage: ")
    else:
        assert script.stderr.endswith("Did you mean asr-ascend train?\n")
