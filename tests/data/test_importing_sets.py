"""The import command: sets held out, names, and requests that are refused before any work."""

import json
import re
import subprocess
import sys

import pytest

from asr_ascend.data.importing import command as importing
from asr_ascend.data.importing.hold_out import hold_out
from asr_ascend.data.importing.problems import MEANINGS
from asr_ascend.data.manifest import Utterance, load_manifest, write_manifest


def run(*arguments):
    return importing.main([str(argument) for argument in arguments])


def test_held_out_sets(folder, tmp_path, capsys):
    source = folder(**{f"u{number}": f"第{number % 3}句" for number in range(24)})
    out = tmp_path / "out"
    options = [
        "folder",
        source,
        "--out",
        out,
        "--name",
        "train",
        "--hold-out",
        "valid=0.25,test=0.2",
    ]
    assert run(*options) == 0
    sets = {
        n: {u.id for u in load_manifest(out / f"{n}.jsonl")} for n in ("train", "valid", "test")
    }
    assert sum(map(len, sets.values())) == len(set.union(*sets.values())) == 24
    assert all(sets.values())
    report = json.loads((out / "train.report.json").read_text(encoding="utf-8"))
    assert report["written"] == {f"{name}.jsonl": len(ids) for name, ids in sets.items()}
    capsys.readouterr()
    assert run(*options, "--hold-out-by", "speaker") == 2
    error = "Error: Utterance 'u0' has no speaker to hold out by.\n"
    assert error in capsys.readouterr().err


def test_hold_out_shares_stay_and_keep_together(tmp_path):
    many = [Utterance(f"u{n}", tmp_path, f"t{n % 40}", 1.0, f"s{n % 7}") for n in range(4000)]
    sets = hold_out(many, {"valid": 0.1, "test": 0.05}, "train")
    shares = {name: len(chosen) / 4000 for name, chosen in sets.items()}
    assert shares == {
        "train": pytest.approx(0.85, abs=0.02),
        "valid": pytest.approx(0.1, abs=0.02),
        "test": pytest.approx(0.05, abs=0.02),
    }
    few = hold_out(many[::2], {"valid": 0.1, "test": 0.05}, "train")
    assert {name: set(chosen) for name, chosen in few.items()} == {
        name: set(chosen) & set(many[::2]) for name, chosen in sets.items()
    }
    for key in ("text", "speaker"):
        by_key = hold_out(many, {"valid": 0.4}, "train", key)
        values = {name: {getattr(u, key) for u in chosen} for name, chosen in by_key.items()}
        assert values["valid"] and values["train"]
        assert not values["valid"] & values["train"]


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"valid": 1.0}, "The share of 'valid' must be in (0, 1), but is 1."),
        ({"a": 0.5, "b": 0.5}, "The shares must be below 1 together, but are 1."),
        ({"train": 0.5}, "'train' is the set that gets the rest, and can't be held out as well."),
    ],
)
def test_shares_that_do_not_fit(shares, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        hold_out([], shares, "train")


def test_requests_that_do_not_fit_the_source(folder, tmp_path, capsys):
    source = folder(a="x", b="y")
    lists = tmp_path / "lists"
    lists.mkdir()
    for name in ("one", "two"):
        write_manifest(lists / f"{name}.jsonl", [Utterance("a", source / "a.wav", "x", 1.0)])
    out = ["--out", tmp_path / "out"]
    for arguments, message in [
        (["jsonl", lists, *out, "--name", "m"], "--name needs a source of one set, but there are "
         "one, two."),
        (["jsonl", lists, *out, "--hold-out", "v=0.1"], "--hold-out needs a source of one set, "
         "but there are one, two."),
        (["jsonl", lists, "--out", lists], f"{lists / 'one.jsonl'} is the source itself; choose "
         "another --out or --name."),
        (["jsonl", lists / "one.jsonl", "--out", lists], f"{lists / 'one.jsonl'} is the source "
         "itself; choose another --out or --name."),
        (["folder", source, *out, "--hold-out", "v=1.5"], "The share of 'v' must be in (0, 1), "
         "but is 1.5."),
        (["folder", source, *out, "--name", "a/b"], "A set's name must be that of a file, but is "
         "'a/b'."),
        (["folder", source, *out, "--hold-out", "../v=0.1"], "A set's name must be that of a file, "
         "but is '../v'."),
        (["folder", source, "--out", source / "a.txt"], "--out must be a folder, but "
         f"{source / 'a.txt'} is a file."),
        (["folder", source, *out, "--hold-out", "v=0.0001"], "`v` would get no utterance of 2 "
         "without problems."),
    ]:  # fmt: skip
        assert run(*arguments) == 2
        assert capsys.readouterr().err.endswith(f"Error: {message}\n")
        # All but the last are refused before any inspection.
        assert (tmp_path / "out").exists() == (arguments[-1] == "v=0.0001")
    assert not list((tmp_path / "out").glob("*.jsonl"))
    assert len(load_manifest(lists / "one.jsonl")) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ignore", "stero"], "argument --ignore: kinds are missing, unreadable, truncated, "),
        (["--hold-out", "valid"], "argument --hold-out: it must be NAME=SHARE, but is 'valid'"),
        (["--workers", "0"], "argument --workers: it must be a whole number above 0, but is '0'"),
    ],
)
def test_options_that_are_wrong(tmp_path, capsys, arguments, message):
    with pytest.raises(SystemExit) as caught:
        run("folder", tmp_path, "--out", tmp_path, *arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["folder", "aishell", "kaldi", "lhotse", "csv", "tsv", "jsonl"])
def test_help_tells_the_source_and_every_kind_of_problem(capsys, kind):
    with pytest.raises(SystemExit) as caught:
        run(kind, "--help")
    told = capsys.readouterr().out
    assert caught.value.code == 0
    assert "SOURCE is " in told
    assert all(name in told for name in MEANINGS)


def test_workers_start_without_torch():
    """Each of them imports the command's module, and torch would take seconds."""
    code = "import asr_ascend.data.importing, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
