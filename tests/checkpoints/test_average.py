"""The mean of several checkpoints: values, what it carries, errors, the command."""

import pytest
import torch

from asr_ascend.checkpoints import average, checkpoint
from asr_ascend.checkpoints.average import average_checkpoints, best_checkpoints
from asr_ascend.checkpoints.checkpoint import (
    AtomicCheckpointIO,
    CheckpointError,
    load_model,
    read_checkpoint,
)
from asr_ascend.config.model_options import ModelOptions
from asr_ascend.data.tokenizer import Tokenizer
from asr_ascend.models import build_transducer
from tests.checkpoints.test_checkpoint_files import MODEL
from tests.support.tiny_runs import TINY, run


def write(path, seed, step, texts="甲乙丙", model=MODEL, counter=0):
    """A checkpoint with random weights and an integer buffer beside them; its weights."""
    torch.manual_seed(seed)
    tokenizer = Tokenizer.train([texts], blank=0)
    transducer = build_transducer(tokenizer.vocab_size, 0, ModelOptions.read(model))
    transducer.set_cmvn(torch.full((80,), 3.0), torch.full((80,), 2.0))
    weights = {f"model.{key}": value for key, value in transducer.state_dict().items()}
    weights["counter"] = torch.tensor(counter)
    own = checkpoint.describe(tokenizer, {"model": model, "seed": seed})
    contents = {"epoch": 1, "global_step": step, "state_dict": weights, checkpoint.KEY: own}
    contents |= {
        "optimizer_states": [{"state": {}, "param_groups": []}],
        "lr_schedulers": [],
        "callbacks": {},
        "loops": {},
    }
    AtomicCheckpointIO().save_checkpoint(contents, path)
    return weights


@pytest.fixture
def three(tmp_path):
    folder = tmp_path / "run" / "checkpoints"
    cers = {"best-step000300-cer10.50.ckpt": 5, "best-step000200-cer9.10.ckpt": 6}
    cers["best-step000100-cer9.75.ckpt"] = 7
    weights = {
        name: write(folder / name, seed, step=100 * seed, counter=seed)
        for name, seed in cers.items()
    }
    return folder, weights


def test_the_mean_of_weights_and_the_rest_of_the_best(three):
    folder, weights = three
    paths = best_checkpoints(folder.parent)
    assert [path.name[-12:] for path in paths] == ["-cer9.10.ckpt"[-12:], "-cer9.75.ckpt"[-12:],
                                                    "cer10.50.ckpt"[-12:]]  # fmt: skip
    contents = average_checkpoints(paths)
    for name, value in contents["state_dict"].items():
        if name == "counter":
            assert value.item() == 6
            continue
        expected = torch.stack([w[name].double() for w in weights.values()]).mean(0)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, expected.float(), rtol=1e-7, atol=1e-9)
    assert contents["state_dict"]["model.feature_mean"].tolist() == [3.0] * 80
    assert contents["global_step"] == 600
    assert contents[checkpoint.KEY]["config"]["seed"] == 6
    assert contents[checkpoint.KEY]["averaged"] == [
        {"file": "best-step000200-cer9.10.ckpt", "step": 600},
        {"file": "best-step000100-cer9.75.ckpt", "step": 700},
        {"file": "best-step000300-cer10.50.ckpt", "step": 500},
    ]
    assert "optimizer_states" not in contents


def test_the_mean_of_one_is_itself_and_leaves_it_alone(three):
    folder, weights = three
    (best,) = best_checkpoints(folder, 1)
    contents = average_checkpoints([best])
    for name, value in weights[best.name].items():
        assert torch.equal(contents["state_dict"][name], value)


def test_the_command_writes_a_checkpoint_that_loads_as_any_other(three, capsys):
    folder, weights = three
    for value in weights.values():
        del value["counter"]
    assert average.main([str(folder.parent), "--best", "2"]) == 0
    names = "best-step000200-cer9.10.ckpt, best-step000100-cer9.75.ckpt"
    assert capsys.readouterr().out == f"{folder / 'average.ckpt'}: the mean of {names}\n"
    trained = load_model(folder / "average.ckpt")
    first, second = (weights[name] for name in names.split(", "))
    for name, value in trained.model.state_dict().items():
        both = (first[f"model.{name}"].double() + second[f"model.{name}"].double()) / 2
        torch.testing.assert_close(value, both.float(), rtol=1e-7, atol=1e-9)


def test_the_command_takes_files_and_another_place(three, tmp_path, capsys):
    folder, _ = three
    paths = sorted(map(str, folder.iterdir()))
    assert average.main([*paths, "--out", str(tmp_path / "mean.ckpt")]) == 0
    averaged = read_checkpoint(tmp_path / "mean.ckpt")[checkpoint.KEY]["averaged"]
    assert [entry["step"] for entry in averaged] == [700, 600, 500]
    assert "mean.ckpt: the mean of " in capsys.readouterr().out


def test_what_can_not_be_averaged_is_one_sentence(tmp_path, capsys):
    one, other, wider = (tmp_path / f"{name}.ckpt" for name in ("one", "other", "wider"))
    write(one, 0, 1)
    write(other, 0, 1, texts="甲乙丁")
    write(wider, 0, 1, model={**MODEL, "joiner_dim": 9})
    with pytest.raises(CheckpointError) as caught:
        average_checkpoints([one, other])
    assert str(caught.value) == f"{other} has another vocabulary than {one}."
    with pytest.raises(CheckpointError) as caught:
        average_checkpoints([one, wider])
    assert str(caught.value) == f"{wider} has another model than {one}."
    with pytest.raises(CheckpointError) as caught:
        average_checkpoints([])
    assert str(caught.value) == "There is no checkpoint to average."
    assert average.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"Error: {tmp_path} holds no best-*.ckpt.\n"


def test_a_run_ends_with_the_average_of_its_best(tiny_run):
    folder = tiny_run.checkpoint.parent
    contents = read_checkpoint(folder / "average.ckpt")
    assert contents[checkpoint.KEY]["averaged"] == [
        {"file": "best-step000260-cer0.00.ckpt", "step": 260}
    ]
    assert tiny_run.stderr.splitlines()[-2] == (
        "outputs/smoke/checkpoints/average.ckpt: the mean of the 1 best"
    )
    best = load_model(folder / "best-step000260-cer0.00.ckpt").model.state_dict()
    for name, value in load_model(folder / "average.ckpt").model.state_dict().items():
        assert torch.equal(value, best[name])


def test_an_average_can_not_be_resumed(tiny_run, tmp_path):
    path = tiny_run.checkpoint.parent / "average.ckpt"
    manifest = f"data.train_manifest={tiny_run.manifest}"
    done = run("train", *TINY, manifest, "loss.blank=-1", f"ckpt_path={path}", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        f"Error: {path} is an average without the optimiser's state, which can't be resumed; "
        "init_from starts a new run from it.\n"
    )
