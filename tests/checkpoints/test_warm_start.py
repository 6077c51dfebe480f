"""Starting from another run's weights: what is kept, what is new, what doesn't fit."""

import re

import pytest
import torch

from asr_ascend.checkpoints import checkpoint
from asr_ascend.checkpoints.checkpoint import AtomicCheckpointIO, load_model
from asr_ascend.checkpoints.warm_start import VOCABULARY_ROWS, WarmStart
from asr_ascend.config.model_options import ModelOptions
from asr_ascend.config.rules import ConfigError
from asr_ascend.config.train_options import TrainOptions
from asr_ascend.data.tokenizer import Tokenizer
from asr_ascend.models import build_transducer
from tests.checkpoints.test_checkpoint_files import MODEL
from tests.support.tiny_runs import BLANK_LAST, TINY, run, write_corpus

TEXTS = ["甲乙丙", "丙 甲"]


def new_run(mode="strict", **changes):
    config = {"model": dict(MODEL), "data": {}, "loss": {}, "init_vocabulary": mode}
    for key, value in changes.items():
        group, _, name = key.partition("_")
        config[group][name] = value
    return TrainOptions.read(config, saved=True)


@pytest.fixture(params=[0, -1])
def start(request, tmp_path):
    """A checkpoint with pieces <unk>, 甲, 丙, 乙, ▁ and blank first or last."""
    torch.manual_seed(0)
    tokenizer = Tokenizer.train(TEXTS, blank=request.param)
    model = build_transducer(tokenizer.vocab_size, tokenizer.blank, ModelOptions.read(MODEL))
    model.set_cmvn(torch.full((80,), 3.0), torch.full((80,), 2.0))
    config = new_run(loss_blank=request.param).plain()
    contents = {
        "global_step": 7,
        "state_dict": {f"model.{key}": value for key, value in model.state_dict().items()},
        checkpoint.KEY: checkpoint.describe(tokenizer, config),
    }
    AtomicCheckpointIO().save_checkpoint(contents, tmp_path / "base.ckpt")
    return WarmStart.read(tmp_path / "base.ckpt")


def loaded(start, tokenizer):
    model = build_transducer(tokenizer.vocab_size, tokenizer.blank, ModelOptions.read(MODEL))
    start.load_into(model, tokenizer)
    return model.state_dict()


def assert_rows_go_by_piece(start, tokenizer, state):
    """Shared pieces have the checkpoint's rows, new ones the mean of the kept labels'."""
    old, new = start.tokenizer.pieces, tokenizer.pieces
    labels = [old.index(p) for p in new if p in old and p not in ("<blk>", "<unk>")]
    for name in set(VOCABULARY_ROWS) & start.weights.keys():
        for index, piece in enumerate(new):
            source = start.weights[name]
            expected = source[old.index(piece)] if piece in old else source[labels].mean(0)
            torch.testing.assert_close(state[name][index], expected, rtol=0, atol=1e-7)


def test_the_same_vocabulary_takes_all_weights_over(start):
    config = new_run(loss_blank=start.tokenizer.blank)
    tokenizer = start.make_tokenizer(config, ["甲甲"])
    assert tokenizer is start.tokenizer
    assert start.notes == []
    state = loaded(start, tokenizer)
    assert state.keys() == start.weights.keys()
    for name, value in state.items():
        assert torch.equal(value, start.weights[name]), name
    assert start.cmvn.mean.tolist() == [3.0] * 80
    assert start.cmvn.std.tolist() == [2.0] * 80


def test_unknown_characters_are_an_error_that_lists_them(start):
    texts = ["甲丁", "丁丁戊", "乙"]
    message = (
        f"{start.path} doesn't fit this run:\n"
        "  its vocabulary of 6 pieces lacks characters of the training texts (and of how many): "
        "'丁' (2), '戊' (1)\n"
        "init_vocabulary=extend adds a piece for each of them, skip leaves those utterances out, "
        "train makes a new vocabulary."
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        start.make_tokenizer(new_run(loss_blank=start.tokenizer.blank), texts)


def test_skip_keeps_the_tokenizer_and_lists_what_it_lacks(start):
    config = new_run("skip", loss_blank=start.tokenizer.blank)
    assert start.make_tokenizer(config, ["甲丁"]) is start.tokenizer
    assert start.notes == [
        f"{start.path}: its vocabulary of 6 pieces lacks characters of the training texts (and of "
        "how many): '丁' (1)"
    ]


def test_extend_adds_pieces_after_the_old_ones(start):
    config = new_run("extend", loss_blank=start.tokenizer.blank)
    tokenizer = start.make_tokenizer(config, ["甲丁 x"])
    assert tokenizer.pieces == [*start.tokenizer.pieces, "丁", "x"]
    assert tokenizer.blank == start.tokenizer.blank
    assert tokenizer.decode(tokenizer.encode("x丁 甲")) == "x丁 甲"
    assert start.notes == [
        f"6 of 8 pieces, <blk> (id {tokenizer.blank}) among them, keep their weights",
        "New pieces (2): '丁', 'x'",
    ]
    assert_rows_go_by_piece(start, tokenizer, loaded(start, tokenizer))


def test_train_makes_a_new_vocabulary_whose_shared_pieces_keep_their_weights(start):
    config = new_run("train", loss_blank=start.tokenizer.blank)
    tokenizer = start.make_tokenizer(config, ["丁戊己丁", "丁甲丙戊"])
    assert sorted(tokenizer.pieces) == sorted(["<blk>", "<unk>", *"甲丙丁戊己"])
    assert tokenizer.blank == start.tokenizer.blank
    assert start.notes[0].startswith("4 of 7 pieces, <blk>")
    assert sorted(start.notes[1].partition(": ")[2].split(", ")) == ["'丁'", "'己'", "'戊'"]
    assert sorted(start.notes[2].partition(": ")[2].split(", ")) == ["'▁'", "'乙'"]
    assert_rows_go_by_piece(start, tokenizer, loaded(start, tokenizer))


def test_without_a_shared_label_new_pieces_stay_as_the_model_was_built(start):
    config = new_run("train", loss_blank=start.tokenizer.blank)
    tokenizer = start.make_tokenizer(config, ["丁戊己庚"])
    torch.manual_seed(5)
    built = build_transducer(
        tokenizer.vocab_size, tokenizer.blank, ModelOptions.read(MODEL)
    ).state_dict()
    torch.manual_seed(5)
    state = loaded(start, tokenizer)
    fresh = [tokenizer.pieces.index(piece) for piece in "丁戊己庚"]
    for name in set(VOCABULARY_ROWS) & start.weights.keys():
        assert torch.equal(state[name][fresh], built[name][fresh])
        new, old = tokenizer.blank, start.tokenizer.blank
        assert torch.equal(state[name][new], start.weights[name][old])


def test_blank_that_can_not_keep_its_id_is_one_sentence(start):
    if start.tokenizer.blank == 0:
        assert start.make_tokenizer(new_run("train"), ["甲"]).blank == 0
        return
    message = (
        "Blank must keep its id, 5, but the new vocabulary has 3 pieces; init_vocabulary=extend "
        "keeps the old ones too."
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        start.make_tokenizer(new_run("train", loss_blank=-1), ["甲"])


@pytest.mark.parametrize("mode", ["strict", "skip", "extend", "train"])
def test_every_setting_that_differs_is_listed(start, mode):
    sizes = {"model_num_layers": 6, "model_num_heads": 4, "model_dropout": 0.5}
    others = {"model_predictor": "lstm", "data_sample_rate_hz": 8000, "loss_blank": 2}
    config = new_run(mode, **sizes, **others)
    message = (
        f"{start.path} doesn't fit this run:\n"
        "  `model.predictor` is lstm here, stateless in the checkpoint\n"
        "  `model.num_layers` is 6 here, 1 in the checkpoint\n"
        "  `model.num_heads` is 4 here, 2 in the checkpoint\n"
        "  `model.predictor_context` is absent here, 2 in the checkpoint\n"
        "  `model.predictor_layers` is 1 here, absent in the checkpoint\n"
        "  `data.sample_rate_hz` is 8000 here, 16000 in the checkpoint\n"
        f"  `loss.blank` is 2 here, {start.tokenizer.blank} in the checkpoint"
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        start.make_tokenizer(config, ["甲"])


def test_a_checkpoint_that_names_no_encoder_has_a_conformer(start):
    named = new_run(loss_blank=start.tokenizer.blank, model_encoder="conformer")
    assert start.make_tokenizer(named, ["甲"]) is start.tokenizer
    message = (
        f"{start.path} doesn't fit this run:\n"
        "  `model.encoder` is emformer here, conformer in the checkpoint\n"
        "  `model.conv_kernel` is absent here, 3 in the checkpoint\n"
        "  `model.max_relative_position` is absent here, 4 in the checkpoint\n"
        "  `model.segment_frames` is 8 here, absent in the checkpoint\n"
        "  `model.left_segments` is 4 here, absent in the checkpoint\n"
        "  `model.right_context_frames` is 4 here, absent in the checkpoint\n"
        "  `model.memory_segments` is 4 here, absent in the checkpoint"
    )
    other = new_run(loss_blank=start.tokenizer.blank, model_encoder="emformer")
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        start.make_tokenizer(other, ["甲"])


def test_a_run_starts_where_the_other_ended(tiny_run, tmp_path):
    """A rate of almost nothing: after two steps the model still knows all that it did."""
    manifest = f"data.train_manifest={tiny_run.manifest}"
    settings = (*TINY, *BLANK_LAST, manifest, "trainer.max_steps=2", "trainer.val_every_steps=2")
    settings += ("optimizer.lr=1e-9", "loss.ctc_first=0", "optimizer.layer_decay=0.9")
    done = run("train", *settings, f"init_from={tiny_run.checkpoint}", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "step 2/2  streaming CER on the validation set 0.00%" in done.stderr.splitlines()
    after = load_model(tmp_path / "outputs" / "smoke" / "checkpoints" / "last.ckpt")
    before = load_model(tiny_run.checkpoint)
    assert after.options.loss.blank == after.tokenizer.blank == 6
    for name, value in after.model.state_dict().items():
        torch.testing.assert_close(value, before.model.state_dict()[name], rtol=0, atol=1e-7)


def test_a_run_with_new_characters_from_the_command_line(tiny_run, tmp_path):
    manifest = write_corpus(tmp_path / "corpus", ("甲己", "乙丙"))
    settings = (*TINY, f"data.train_manifest={manifest}", "trainer.max_steps=2", "loss.blank=-1")
    settings += ("loss.ctc_first=0", f"init_from={tiny_run.checkpoint}")
    strict = run("train", *settings, folder=tmp_path)
    assert strict.returncode == 2
    assert strict.stderr.splitlines()[1] == (
        "  its vocabulary of 7 pieces lacks characters of the training texts (and of how many): "
        "'己' (1)"
    )
    done = run("train", *settings, "init_vocabulary=extend", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("Starts from"))
    assert lines[start : start + 3] == [
        f"Starts from the weights in {tiny_run.checkpoint}",
        "7 of 8 pieces, <blk> (id 6) among them, keep their weights",
        "New pieces (1): '己'",
    ]
    trained = load_model(tmp_path / "outputs" / "smoke" / "checkpoints" / "last.ckpt")
    assert trained.tokenizer.pieces[-2:] == ["<blk>", "己"]
    assert trained.model.blank == 6
    other = "init_vocabulary=skip", "name=skipping"
    skipping = run("train", *settings, *other, folder=tmp_path)
    assert skipping.returncode == 0, skipping.stderr
    assert "Skipped of train: 1 (1 character unknown to the tokenizer)" in skipping.stderr
