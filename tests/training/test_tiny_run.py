"""A whole training from the command line: files, output, reuse, errors; blank is the last id."""

import csv
import json

import pytest
import torch

from asr_ascend.checkpoints.checkpoint import load_model, read_checkpoint
from asr_ascend.losses.backends import cpu_library
from tests.support.tiny_runs import BLANK_LAST, TINY, run


def test_the_run_learns_its_utterances_by_heart_with_blank_last(tiny_run):
    rows = list(csv.DictReader((tiny_run.checkpoint.parents[1] / "metrics.csv").open()))
    steps = [row for row in rows if row["loss"]]
    cers = [(int(row["step"]), float(row["valid_cer"])) for row in rows if row["valid_cer"]]
    assert [int(row["step"]) for row in steps] == list(range(1, 261))
    assert [step for step, _ in cers] == [130, 260]
    assert cers[-1] == (260, 0.0)
    # CTC alone for 40% of the steps.
    assert [row["rnnt_loss"] == "" for row in steps] == [True] * 104 + [False] * 156
    trained = load_model(tiny_run.checkpoint)
    assert trained.model.blank == trained.tokenizer.blank == trained.tokenizer.vocab_size - 1 == 6


def test_the_run_folder_holds_what_it_should(tiny_run):
    folder = tiny_run.checkpoint.parents[1]
    names = {path.name for path in folder.iterdir()}
    assert names == {"checkpoints", "config.json", "metrics.csv", "run.json", "tb"}
    assert any(path.name.startswith("events.out.tfevents") for path in (folder / "tb").iterdir())
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config == read_checkpoint(tiny_run.checkpoint)["asr_ascend"]["config"]
    assert config["loss"]["blank"] == -1
    run_record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    assert (run_record["finished"], run_record["steps"]) == (True, 260)


def test_the_best_k_are_kept_by_validation_cer(tiny_run):
    names = sorted(path.name for path in tiny_run.checkpoint.parent.iterdir())
    assert names == ["average.ckpt", "best-step000260-cer0.00.ckpt", "last.ckpt"]
    _, best, last = (torch.load(tiny_run.checkpoint.parent / n, weights_only=True) for n in names)
    assert best["global_step"] == last["global_step"] == 260


def test_progress_goes_to_stderr_and_says_what_a_user_wants(tiny_run):
    assert tiny_run.stdout == ""
    lines = tiny_run.stderr.splitlines()
    assert lines[0].startswith("Training: 8 utterances (0.00 h) in ")
    assert "step 260/260  streaming CER on the validation set 0.00%" in lines
    assert lines[-1].endswith(": outputs/smoke/checkpoints/last.ckpt")
    assert len(lines) <= 12, tiny_run.stderr  # nothing of Lightning's tips


def test_a_finished_run_is_kept_unless_config_changes_or_force_says_so(tiny_run):
    same = (*TINY, *BLANK_LAST, "data.train_manifest=corpus/tones.jsonl")
    before = tiny_run.checkpoint.stat().st_mtime_ns
    again = run("train", *same, folder=tiny_run.folder)
    assert again.returncode == 0
    assert again.stderr == (
        "outputs/smoke holds this very run, finished; force=true trains again.\n"
    )
    assert tiny_run.checkpoint.stat().st_mtime_ns == before
    elsewhere = ("output_dir=other", "trainer.max_steps=2")
    for more in (("seed=2",), ("force=true",)):
        done = run("train", *same, *elsewhere, *more, folder=tiny_run.folder)
        assert done.returncode == 0, done.stderr
        assert "2 steps in" in done.stderr


def test_blank_out_of_range_is_one_sentence(tiny_run, tmp_path):
    manifest = f"data.train_manifest={tiny_run.manifest}"
    done = run("train", *TINY, manifest, "loss.blank=7", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "Error: `blank` must be in [-7, 6], but is 7.\n"


def test_a_missing_manifest_says_how_the_corpus_is_made(tmp_path):
    done = run("train", "experiment=demo", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "Error: `data.train_manifest` must be a file, but data/demo/train.jsonl is not there. The "
        "embedded corpus is made by: python -m asr_ascend.data.synthesis --out data/demo\n"
    )


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        (
            "data/smoke/train.jsonl",
            "data/smoke/train.jsonl is not there. The embedded corpus is made by: python -m "
            "asr_ascend.data.synthesis --out data/smoke --train 20",
        ),
        ("data/mine/train.jsonl", "data/mine/train.jsonl is not there."),
        ("train.jsonl", "train.jsonl is not there."),
        (
            ".",
            ". is a folder. A manifest of the recordings in a folder is made by: python -m "
            "asr_ascend.data.importing folder . --out data/mine",
        ),
    ],
)
@pytest.mark.parametrize("key", ["train_manifest", "valid_manifest", "replay_manifest"])
def test_a_manifest_that_is_no_file_says_what_makes_one(tiny_run, tmp_path, key, path, problem):
    given = f"data.train_manifest={tiny_run.manifest}"
    done = run("train", *TINY, given, f"data.{key}={path}", folder=tmp_path)
    assert done.returncode == 2
    if key == "train_manifest":  # the validation set of this experiment is the training set
        assert done.stderr == f"Error: `data.{key}` must be a file, but {problem}\n"
    assert f"`data.{key}` must be a file, but {problem}" in done.stderr


def test_the_evaluation_says_so_too(tiny_run, tmp_path):
    given = (f"checkpoint={tiny_run.checkpoint}", "manifest=data/demo/commands.jsonl")
    done = run("evaluate", *given, folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "  it cannot be read: No such file or directory. The embedded corpus is made by: python -m "
        "asr_ascend.data.synthesis --out data/demo"
    )


def test_a_package_that_is_not_built_is_told_before_data_is_read(tiny_run, tmp_path, monkeypatch):
    def missing():
        raise RuntimeError("the CPU library of asr_ascend is not built")

    monkeypatch.setattr(cpu_library, "library", missing)
    manifest = f"data.train_manifest={tiny_run.manifest}"
    done = run("train", *TINY, manifest, folder=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "Error: `loss.backend` null needs the native loss, but the CPU library of asr_ascend is "
        "not built (loss.backend=reference).\n",
    )


def test_a_folder_that_can_not_be_made_is_told_before_data_is_read(tiny_run, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    manifest = f"data.train_manifest={tiny_run.manifest}"
    done = run("train", *TINY, manifest, "output_dir=file/run", folder=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        f"Error: `output_dir` must be a folder, but {tmp_path / 'file'} is a file.\n",
    )


def test_a_validation_set_with_unknown_characters_is_told(tiny_run, tmp_path):
    texts = tiny_run.manifest.read_text(encoding="utf-8").splitlines(keepends=True)
    known = [line for line in texts if "戊" not in line and "己" not in line]
    train = tiny_run.manifest.with_name("some.jsonl")
    train.write_text("".join(known), encoding="utf-8")
    sets = (f"data.train_manifest={train}", f"data.valid_manifest={tiny_run.manifest}")
    steps = ("trainer.max_steps=1", "trainer.progress_bar=false")
    done = run("train", *TINY, *sets, *steps, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    count = len(texts) - len(known)
    assert (
        f"Unknown in valid: {count} of 8 utterances have characters that the vocabulary lacks "
        "('戊'), so that the CER can't fall to 0"
    ) in done.stderr.splitlines()


def test_resuming_with_another_vocabulary_is_one_sentence(tiny_run, tmp_path):
    lines = tiny_run.manifest.read_text(encoding="utf-8").splitlines(keepends=True)
    fewer = tiny_run.manifest.with_name("fewer.jsonl")
    fewer.write_text("".join(line for line in lines if "戊" not in line), encoding="utf-8")
    arguments = (f"data.train_manifest={fewer}", f"ckpt_path={tiny_run.checkpoint}")
    done = run("train", *TINY, *arguments, "loss.blank=-1", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"Error: {tiny_run.checkpoint} has a vocabulary of 7 pieces that differs from the 6 of "
        "this training set, or blank stands elsewhere."
    )
