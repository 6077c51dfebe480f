"""What a training does with what is in its folder already."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from asr_ascend.checkpoints.checkpoint import read_checkpoint
from asr_ascend.config.composing import compose_config, made_by
from asr_ascend.config.keys import ConfigError
from asr_ascend.training.identity import RunIdentity
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
    run_folder = RunFolder(compose_config("train", [*SETTINGS, *overrides]))
    return run_folder.resume_from(said.append), said


def refusal(folder, monkeypatch, *overrides):
    with pytest.raises(ConfigError) as caught:
        decide(folder, monkeypatch, *overrides)
    return str(caught.value)


@pytest.fixture
def copy(folder, tmp_path):
    """A copy of the folder with the finished run."""
    shutil.copytree(folder, tmp_path / "copy")
    return tmp_path / "copy"


def change_record(folder, **changes):
    path = folder / "outputs/base/run.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**record, **changes}), encoding="utf-8")
    return record


WAYS = "name=... trains in a folder of its own, force=true replaces the old run."
FROM_IT = f"ckpt_path={BASE} goes on from it, {WAYS}"
FINISHED = "outputs/base holds another run, finished after 2 steps: "
MANY = ("max_batch_seconds", "max_lattice_bytes", "max_utterance_seconds", "noise_clip_seconds")
MANY += ("noise_clips",)


@pytest.mark.parametrize("resume", [[], ["resume=true"]])
@pytest.mark.parametrize(
    ("overrides", "differs"),
    [
        (["seed=2"], "`data.seed` is 2 here and 1 there; `seed` is 2 here and 1 there"),
        (["optimizer.lr=0.01"], "`optimizer.lr` is 0.01 here and 0.003 there"),
        (["trainer.max_steps=1"], "`trainer.max_steps` is 1 here and 2 there"),
        (["trainer.max_steps=9", "seed=2"], "`data.seed` is 2 here and 1 there; `seed` is 2 here"),
        (["loss.alignment_frames=null"], "`loss.alignment_frames` is null here and "),
        (
            [*(f"data.{key}=7" for key in MANY), "data.mains_hz=60"],
            "`data.mains_hz` is 60 here and 50 there; `data.max_batch_seconds` is 7 here and 4.0 "
            "there; `data.max_lattice_bytes` is 7 here and 268435456 there; "
            "`data.max_utterance_seconds` is 7 here and 20.0 there; `data.noise_clip_seconds` is 7 "
            "here and 8.0 there; 1 more key differs. ",
        ),
    ],
)
def test_another_run_is_not_replaced(folder, monkeypatch, resume, overrides, differs):
    said = refusal(folder, monkeypatch, *resume, *overrides)
    assert said.startswith(FINISHED + differs)
    assert said.endswith(f". {FROM_IT}")
    assert len(said) < 800


def test_a_refused_run_leaves_all_as_it_was(copy):
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    done = run("train", *SETTINGS, "seed=2", "resume=true", folder=copy)
    assert done.returncode == 2
    assert done.stderr.startswith(f"Error: {FINISHED}")
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_changed_contents_of_a_manifest_make_another_run(copy, monkeypatch):
    with (copy / "corpus/tones.jsonl").open("a", encoding="utf-8") as stream:
        stream.write("\n")
    assert refusal(copy, monkeypatch) == (
        f"{FINISHED}the contents of `data.train_manifest` have changed; the contents of "
        f"`data.valid_manifest` have changed. {FROM_IT}"
    )


def test_the_checkpoint_that_a_run_begins_from_makes_it_another(copy, monkeypatch):
    """Also where it is another file of the same name."""
    (copy / "a.ckpt").write_bytes((copy / BASE).read_bytes())
    (copy / "b.ckpt").write_bytes((copy / BASE).read_bytes())
    settings = (*SETTINGS, "name=more", "trainer.max_steps=3")
    assert run("train", *settings, "ckpt_path=a.ckpt", folder=copy).returncode == 0
    again = run("train", *settings, "ckpt_path=a.ckpt", folder=copy)
    assert again.stderr == "outputs/more holds this very run, finished; force=true trains again.\n"
    done = run("train", *settings, "ckpt_path=b.ckpt", folder=copy)
    assert (done.returncode, done.stderr) == (
        2,
        "Error: outputs/more holds another run, finished after 3 steps: `ckpt_path` is b.ckpt here "
        "and a.ckpt there. ckpt_path=outputs/more/checkpoints/last.ckpt goes on from it, "
        f"{WAYS}\n",
    )
    done = run("train", *settings, folder=copy)
    assert "`ckpt_path` is absent here and a.ckpt there" in done.stderr
    # Its own last checkpoint makes it no other run, and neither does the end of such a run.
    for _ in range(2):
        own = "ckpt_path=outputs/more/checkpoints/last.ckpt"
        done = run("train", *settings[:-1], "trainer.max_steps=4", own, folder=copy)
        assert done.returncode == 0, done.stderr
    assert done.stderr == "outputs/more holds this very run, finished; force=true trains again.\n"
    done = run("train", *settings[:-1], "trainer.max_steps=4", "ckpt_path=a.ckpt", folder=copy)
    assert done.stderr == "outputs/more holds this very run, finished; force=true trains again.\n"
    contents = (copy / "a.ckpt").read_bytes()
    (copy / "a.ckpt").write_bytes(contents + b"0")
    done = run("train", *settings[:-1], "trainer.max_steps=4", "ckpt_path=a.ckpt", folder=copy)
    assert "finished after 4 steps: the contents of `ckpt_path` have changed. " in done.stderr


@pytest.mark.parametrize("key", ["init_from", "distillation.teacher"])
def test_a_changed_base_or_teacher_makes_another_run(tmp_path, key):
    path = tmp_path / "a.ckpt"
    path.write_bytes(b"1")
    settings = [*SETTINGS, f"{key}={path}", "loss.joiner=packed", "loss.clamp=-1"]
    config = compose_config("train", settings).plain()
    first = RunIdentity.of(config, None)
    assert RunIdentity.from_record(json.loads(json.dumps(first.to_record()))) == first
    path.write_bytes(b"2")
    assert RunIdentity.of(config, None).differences(first) == [
        f"the contents of `{key}` have changed"
    ]


@pytest.mark.parametrize("resume", [[], ["resume=true"]])
def test_more_steps_alone_go_on_with_a_finished_run(folder, monkeypatch, resume):
    expected = (BASE, [f"Going on from step 2 of {BASE}."])
    assert decide(folder, monkeypatch, "trainer.max_steps=4", *resume) == expected


def test_what_changes_no_result_makes_no_other_run(folder, monkeypatch):
    monkeypatch.chdir(folder)
    more = ["data.num_workers=2", "data.cache_audio_bytes=0", "trainer.num_threads=2"]
    more += ["trainer.checkpoint_every_steps=7"]
    assert RunFolder(compose_config("train", [*SETTINGS, *more])).finished


def test_changed_sources_are_told_and_make_no_other_run(copy, monkeypatch):
    record = change_record(copy)
    change_record(copy, identity={**record["identity"], "sources": "other"})
    told = "The sources of asr_ascend have changed since the run in outputs/base began."
    done = run("train", *SETTINGS, folder=copy)
    assert done.stderr.splitlines() == [
        told,
        "outputs/base holds this very run, finished; force=true trains again.",
    ]
    start, said = decide(copy, monkeypatch, "trainer.max_steps=4", "resume=true")
    assert (start, said[0]) == (BASE, told)


def test_an_unfinished_run_goes_on_if_asked(copy, monkeypatch):
    change_record(copy, finished=False)
    settings = ["resume=true", "trainer.max_steps=4"]
    expected = (BASE, [f"Going on from step 2 of {BASE}."])
    assert decide(copy, monkeypatch, *settings) == expected
    # Nothing is written yet: another rank decides the same.
    assert decide(copy, monkeypatch, *settings) == expected
    assert refusal(copy, monkeypatch, "trainer.max_steps=4") == (
        f"outputs/base holds this very run, unfinished. resume=true goes on from it, {WAYS}"
    )


def test_a_run_without_a_checkpoint_is_no_loss(copy, monkeypatch):
    change_record(copy, finished=False)
    (copy / BASE).unlink()
    assert decide(copy, monkeypatch, "seed=2") == (None, [])
    assert decide(copy, monkeypatch, "resume=true") == (None, [])


def test_a_run_of_an_earlier_version_is_known_by_its_config(copy, monkeypatch):
    record = {"fingerprint": "0", "finished": True, "steps": 2}
    (copy / "outputs/base/run.json").write_text(json.dumps(record), encoding="utf-8")
    assert refusal(copy, monkeypatch, "optimizer.lr=0.01") == (
        f"{FINISHED}`optimizer.lr` is 0.01 here and 0.003 there. {FROM_IT}"
    )
    start, _ = decide(copy, monkeypatch, "trainer.max_steps=4")
    assert start == BASE


def test_an_earlier_checkpoint_does_not_take_later_steps_away(copy, monkeypatch):
    settings = ("trainer.max_steps=4", "trainer.val_every_steps=3", "loss.ctc_first=0")
    more = (f"ckpt_path={BASE}", "force=true")
    assert run("train", *SETTINGS, *settings, *more, folder=copy).returncode == 0
    (best,) = (copy / BASE).parent.glob("best-step000003-*.ckpt")
    path = best.relative_to(copy)
    settings = (f"ckpt_path={path}", "trainer.max_steps=6")
    assert refusal(copy, monkeypatch, *settings) == (
        f"`ckpt_path` must be the last checkpoint of outputs/base, of step 4, but {path} is of "
        "step 3; name=... goes on from it in a folder of its own, force=true takes the later steps "
        "away."
    )
    assert decide(copy, monkeypatch, *settings, "force=true") == (str(path), [])


def test_force_takes_the_old_runs_files_away(copy, monkeypatch):
    (copy / "outputs/base/checkpoints/best-step000001-cer50.00.ckpt").write_bytes(b"old")
    done = run("train", *SETTINGS, "seed=2", "force=true", folder=copy)
    assert done.returncode == 0
    told = "outputs/base holds another run, finished after 2 steps, which this one replaces."
    assert told in done.stderr.splitlines()
    names = sorted(path.name for path in (copy / BASE).parent.iterdir())
    assert names == ["last.ckpt"]
    assert read_checkpoint(copy / BASE)["asr_ascend"]["config"]["seed"] == 2
    record = json.loads((copy / "outputs/base/run.json").read_text(encoding="utf-8"))
    assert (record["finished"], record["steps"]) == (True, 2)
    assert record["identity"]["keys"]["seed"] == 2


def test_other_batches_in_the_middle_of_an_epoch_are_one_sentence(folder):
    more = ("output_dir=other", f"ckpt_path={BASE}", "trainer.max_steps=4")
    done = run("train", *SETTINGS, *more, "data.max_batch_seconds=3", folder=folder)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        f"Error: {BASE} was written in the middle of an epoch, and the batches of this one would "
        "be others: data, data.max_batch_seconds, data.max_lattice_bytes, seed and number of ranks "
        "must be those of the checkpoint; init_from starts a new run from its weights.",
    )
    assert "Traceback" not in done.stderr


def test_a_second_run_in_a_folder_is_refused(copy):
    """The lock of a process that is gone holds nobody up."""
    hold = "import sys; from pathlib import Path; from asr_ascend.system.locking import locked\n"
    hold += "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    root = str(Path(__file__).resolve().parents[2])
    first = subprocess.Popen(
        [sys.executable, "-c", hold, str(copy / "outputs/base/run.lock")],
        env={**os.environ, "PYTHONPATH": root},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert first.stdout.readline() == b"held\n"
    more = (*SETTINGS, "trainer.max_steps=3")
    done = run("train", *more, folder=copy)
    assert (done.returncode, done.stderr) == (
        2,
        "Error: `output_dir` must be a folder in which no other training runs, but one runs in "
        "outputs/base; name=... gives this run a folder of its own.\n",
    )
    first.kill()
    first.communicate()
    assert (copy / "outputs/base/run.lock").exists()
    done = run("train", *more, folder=copy)
    assert done.returncode == 0, done.stderr
    assert not (copy / "outputs/base/run.lock").exists()


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
