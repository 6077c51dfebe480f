"""What a training does with what is in its folder already."""

import json

import pytest

from asr_ascend.checkpoints.checkpoint import read_checkpoint
from asr_ascend.config.composing import compose_config, made_by
from asr_ascend.training.run_folder import RunFolder
from tests.support.tiny_runs import TINY, run, write_corpus

BASE = "outputs/base/checkpoints/last.ckpt"
SETTINGS = (
    *TINY,
    "name=base",
    "data.train_manifest=corpus/tones.jsonl",
    "trainer.max_steps=2",
    "trainer.progress_bar=false",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run of two steps."""
    folder = tmp_path_factory.mktemp("folder")
    write_corpus(folder / "corpus")
    assert run("train", *SETTINGS, folder=folder).returncode == 0
    return folder


def test_the_same_run_is_not_repeated(folder):
    done = run("train", *SETTINGS, folder=folder)
    assert (done.returncode, done.stderr) == (
        0,
        "outputs/base holds this very run, finished; force=true trains again.\n",
    )


@pytest.mark.parametrize("key", ["init_from", "distillation.teacher"])
def test_a_run_does_not_take_away_the_checkpoint_that_it_starts_from(folder, key):
    before = (folder / BASE).read_bytes()
    done = run("train", *SETTINGS, f"{key}={BASE}", "loss.joiner=packed", folder=folder)
    assert (done.returncode, done.stderr) == (
        2,
        f"Error: `{key}` must lie outside outputs/base, whose checkpoints this run replaces, but "
        f"is {BASE}; name=... gives the run a folder of its own.\n",
    )
    assert (folder / BASE).read_bytes() == before


def decide(folder, monkeypatch, *overrides):
    """Where a run of `overrides` starts, and what it says."""
    monkeypatch.chdir(folder)
    said: list[str] = []
    run_folder = RunFolder(compose_config("train", [*SETTINGS, *overrides]), "digest")
    return run_folder.resume_from(said.append), said


def with_record(folder, tmp_path, record):
    """A folder whose run.json is `record`, with the checkpoint of the finished run."""
    checkpoints = tmp_path / "outputs" / "base" / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / "last.ckpt").write_bytes((folder / BASE).read_bytes())
    (checkpoints.parent / "run.json").write_text(json.dumps(record), encoding="utf-8")
    return tmp_path


AFRESH = "outputs/base holds a run of another config or sources: training starts afresh."
REPLACED = "outputs/base holds {}, finished, which this one replaces; name=... keeps both."


@pytest.mark.parametrize(
    ("record", "overrides", "start", "said"),
    [
        (("digest", False), ["resume=true"], BASE, f"Going on from step 2 of {BASE}."),
        (
            ("digest", False),
            [],
            None,
            "outputs/base holds an unfinished run, which starts again; resume=true goes on with "
            "it.",
        ),
        (("other", False), ["resume=true"], None, AFRESH),
        (("digest", True), ["force=true"], None, REPLACED.format("this very run")),
        (("other", True), [], None, REPLACED.format("a run of another config or sources")),
        (
            ("other", True),
            ["resume=true"],
            None,
            REPLACED.format("a run of another config or sources"),
        ),
    ],
)
def test_what_becomes_of_the_old_run_is_said(
    folder, tmp_path, monkeypatch, record, overrides, start, said
):
    fingerprint, finished = record
    place = with_record(folder, tmp_path, {"fingerprint": fingerprint, "finished": finished})
    assert decide(place, monkeypatch, *overrides) == (start, [said])
    # Nothing is written yet: another rank decides the same.
    assert decide(place, monkeypatch, *overrides) == (start, [said])


def test_a_fresh_run_takes_the_old_ones_checkpoints_away(folder, tmp_path):
    place = with_record(folder, tmp_path, {"fingerprint": "other", "finished": False})
    write_corpus(place / "corpus")
    (place / "outputs/base/checkpoints/best-step000001-cer50.00.ckpt").write_bytes(b"old")
    assert run("train", *SETTINGS, "seed=2", folder=place).returncode == 0
    names = sorted(path.name for path in (place / BASE).parent.iterdir())
    assert names == ["last.ckpt"]
    assert read_checkpoint(place / BASE)["asr_ascend"]["config"]["seed"] == 2
    record = json.loads((place / "outputs/base/run.json").read_text(encoding="utf-8"))
    assert (record["finished"], record["steps"]) == (True, 2)
    assert record["fingerprint"] != "other"


def test_a_missing_base_says_what_makes_it(tmp_path):
    done = run("train", "experiment=substation_finetune", folder=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "Error: `init_from` must be a checkpoint, but outputs/base/checkpoints/last.ckpt is not "
        "a file. It is made by: python -m asr_ascend.train experiment=substation_base\n",
    )


def test_a_missing_teacher_says_what_makes_it(tmp_path):
    done = run("train", "experiment=distillation", folder=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "Error: `distillation.teacher` must be a checkpoint, but "
        "outputs/demo/checkpoints/last.ckpt is not a file. It is made by: python -m "
        "asr_ascend.train experiment=demo\n",
    )


def test_a_missing_checkpoint_of_a_command_says_what_makes_it(tmp_path):
    path = "outputs/finetune/checkpoints/average.ckpt"
    done = run("evaluate", f"checkpoint={path}", folder=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        f"Error: The checkpoint {path} is not a file. It is made by: python -m asr_ascend.train "
        "experiment=substation_finetune\n",
    )


@pytest.mark.parametrize("path", ["base/checkpoints/last.ckpt", "outputs/mine/checkpoints/a.ckpt"])
def test_other_paths_are_not_explained(path):
    assert made_by(path) == ""


def test_a_folder_that_is_a_file_is_one_sentence(folder):
    done = run("train", *SETTINGS, "output_dir=corpus/tones.jsonl", folder=folder)
    assert (done.returncode, done.stderr) == (
        2,
        "Error: `output_dir` must be a folder, but corpus/tones.jsonl is a file.\n",
    )


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        (
            "loss.backend=npu",
            "`loss.backend` must be null or one of those usable here (cpu, reference), but is "
            "'npu'.",
        ),
        (
            "trainer.devices=many",
            "`trainer` must be something that Lightning can run here, but it says: `devices` "
            "selected with `CPUAccelerator` should be an int > 0.",
        ),
    ],
)
def test_what_only_this_machine_refuses_is_one_sentence(folder, override, sentence):
    done = run("train", *SETTINGS, "output_dir=refused", override, folder=folder)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f"Error: {sentence}")
    assert not (folder / "refused" / "run.json").exists()


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        (
            "model.encoder_dim=64",
            f"`model.encoder_dim` must be 48, as in {BASE}, to go on with it, but is 64; init_from "
            "starts a new run from its weights.",
        ),
        (
            "trainer.freeze=[encoder]",
            f"`trainer.freeze` must be null, as in {BASE}, to go on with it, but is ['encoder']; "
            "init_from starts a new run from its weights.",
        ),
        (
            "trainer.max_steps=2",
            f"`trainer.max_steps` must be above 2, the step of {BASE}, but is 2.",
        ),
    ],
)
def test_what_cannot_go_on_from_a_checkpoint_is_one_sentence(folder, override, sentence):
    resumed = ("output_dir=resumed", f"ckpt_path={BASE}", "trainer.max_steps=4")
    done = run("train", *SETTINGS, *resumed, override, folder=folder)
    assert (done.returncode, done.stderr) == (2, f"Error: {sentence}\n")
