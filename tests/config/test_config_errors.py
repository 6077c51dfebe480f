"""Every wrong key or value gets one sentence; the whole sentence is expected."""

import shlex
import subprocess
from pathlib import Path

import pytest

from asr_ascend.config.composing import compose_config, conf_dir
from asr_ascend.config.paths import quote_paths
from asr_ascend.config.rules import ConfigError
from tests.support.tiny_runs import command, run

LOSS_KEYS = (
    "alignment_frames, am_only_scale, backend, band, blank, clamp, ctc_first, ctc_weight, "
    "delay_penalty, dtype, fastemit_lambda, fused_log_softmax, joiner, lm_only_scale, "
    "normalize_by, reduction, reuse_logits, simple_loss_scale, simple_warmup_steps, "
    "symbols_per_frame"
)
TRAIN_CASES = {
    "experiment=dmo": "`experiment` has no option 'dmo'; it has demo, distillation, smoke, "
    "substation_base, substation_finetune.",
    "loss=ctc": "`loss` has no option 'ctc'; it has rnnt.",
    "loss.clmap=1": f"Unknown key `loss.clmap`; `loss` has {LOSS_KEYS}. Did you mean loss.clamp=1?",
    "+loss.clmap=1": f"Unknown key `loss.clmap`; `loss` has {LOSS_KEYS}. "
    "Did you mean loss.clamp=1?",
    "~loss.clamp": "`loss.clamp` must be given, but is missing.",
    "colour=red": "Unknown key `colour`; the train config has ckpt_path, data, distillation, "
    "experiment, force, init_from, init_vocabulary, loss, model, name, optimizer, output_dir, "
    "resume, seed, trainer.",
    "loss.clamp=abc": "`loss.clamp` must be a number, but is 'abc'.",
    "loss.clamp=inf": "`loss.clamp` must be a number, but is inf.",
    "loss.fastemit_lambda=-1": "`loss.fastemit_lambda` must be a number of at least 0, but is -1.",
    "loss.blank=1.5": "`loss.blank` must be an integer, but is 1.5.",
    "loss.reduction=none": "`loss.reduction` must be one of sum, mean in training, which needs a "
    "single number to minimise, but is 'none'.",
    "loss.reduction=avg": "`loss.reduction` must be one of sum, mean, but is 'avg'.",
    "loss.dtype=nonsense": "`loss.dtype` must be one of float32, float16, bfloat16, float64, but "
    "is 'nonsense'.",
    "loss.fused_log_softmax=1": "`loss.fused_log_softmax` must be true or false, but is 1.",
    "optimizer.lr=0": "`optimizer.lr` must be a number above 0, but is 0.",
    "optimizer.betas=[0.9]": "`optimizer.betas` must be a list of 2 values, each a number of "
    "at least 0 and below 1, but is [0.9].",
    "optimizer.betas=[0.9,1.0]": "`optimizer.betas` must be a list of 2 values, each a number of "
    "at least 0 and below 1, but is [0.9, 1.0].",
    "trainer.max_epochs=1.5": "`trainer.max_epochs` must be an integer of at least 1, or -1 for no "
    "limit, but is 1.5.",
    "trainer.max_steps=0": "`trainer.max_steps` must be an integer of at least 1, or -1 for no "
    "limit, but is 0.",
    "trainer.precision=bf16": "`trainer.precision` must be one of 32-true, 16-mixed, bf16-mixed, "
    "64-true, 16-true, bf16-true, but is 'bf16'.",
    "trainer.num_threads=100000": "`trainer.num_threads` must be an integer in [1, 1024] or null, "
    "but is 100000.",
    "loss.backend=gpu": "`loss.backend` must be one of cpu, npu, reference or null, but is 'gpu'.",
    "data.sample_rate_hz=22050": "`data.sample_rate_hz` must be a multiple of 100 in "
    "[8000, 384000], but is 22050.",
    "data.num_mel_bins=40": "`data.num_mel_bins` must be `model.num_mel_bins` (80), but is 40.",
    "+data.spec_augment.num_bands=1": "Unknown key `data.spec_augment.num_bands`; "
    "`data.spec_augment` has fill, max_freq_bins, max_time_fraction, max_time_frames, "
    "num_freq_masks, num_time_masks.",
    "data.spec_augment.num_freq_masks=x": "`data.spec_augment.num_freq_masks` must be an integer "
    "of at least 0, but is 'x'.",
    "loss=3": "`loss` must be one of its options, rnnt, but is 3.",
    "model=null": "`model` must be one of its options, conformer_lstm, conformer_small, emformer, "
    "but is null.",
    "=3": "'=3' is not an override of the form key=value.",
    "trainer.max_steps=-1": "One of `trainer.max_steps` and `trainer.max_epochs` must be set, "
    "but both are -1.",
    "trainer.chunk_frames=[]": "`trainer.chunk_frames` must be a list of values, each an integer "
    "of at least 0, but is [].",
    "seed=null": "`seed` must be an integer of at least 0, but is null.",
    "model.predictor=gru": "`model.predictor` must be one of stateless, lstm, but is 'gru'.",
    "loss.clamp=[": "'loss.clamp=[' is not an override of the form key=value. A value with quotes, "
    "brackets, braces or = is written 'loss.clamp=\"[\"'.",
    "loss.clamp=1,2": "'loss.clamp=1,2' holds several values, which need --multirun or [...].",
    "data.spec_augment={a: 1}": "`data.spec_augment` holds keys of its own: set them one by one, "
    "as data.spec_augment.name=value.",
    "trainer={a: 1}": "`trainer` is a group: choose one of its options, or set its keys as "
    "trainer.name=value.",
    "loss.fused_log_softmax=false": "`loss.joiner` must be packed where `loss.fused_log_softmax` "
    "is false, but is 'fused'.",
    "distillation.teacher=a.ckpt": "`loss.joiner` must be packed where `distillation.teacher` is "
    "given, since a fused joiner has no logits to compare, but is 'fused'.",
    "distillation.weight=-1": "`distillation.weight` must be a number of at least 0, but is -1.",
    "distillation.wait=1": "Unknown key `distillation.wait`; `distillation` has block_bytes, "
    "teacher, weight.",
    "model=emformer": "`trainer.chunk_frames` must be [8] (model.segment_frames) where "
    "`model.encoder` is emformer, but is [0, 0, 25, 16, 8].",
    "loss.joiner=lazy": "`loss.joiner` must be one of fused, packed, but is 'lazy'.",
    "init_vocabulary=new": "`init_vocabulary` must be one of strict, skip, extend, train, but is "
    "'new'.",
    "data.replay_share=1": "`data.replay_share` must be a number above 0 and below 1, but is 1.",
    "optimizer.layer_decay=1.5": "`optimizer.layer_decay` must be a number above 0 and at most "
    "1 or null, but is 1.5.",
    "optimizer.lr_factors={encoder: 0}": "`optimizer.lr_factors` must be names of modules, each "
    "with a number above 0 or null, but is {'encoder': 0}.",
    "trainer.freeze=encoder": "`trainer.freeze` must be a list of values, each a non-empty string "
    "or null, but is 'encoder'.",
    "trainer.average_top_k=4": "`trainer.average_top_k` must be at most `trainer.save_top_k` (3), "
    "but is 4.",
    "trainer.early_stop_patience=0": "`trainer.early_stop_patience` must be an integer of at least "
    "1 or null, but is 0.",
}


@pytest.mark.parametrize("override", TRAIN_CASES)
def test_a_wrong_training_config_is_one_sentence(override):
    with pytest.raises(ConfigError) as caught:
        compose_config("train", ["experiment=demo", override])
    assert str(caught.value) == TRAIN_CASES[override]


EMFORMER = ("experiment=smoke", "model=emformer")
DISTILLATION = ("experiment=distillation",)
COMBINATIONS = {
    (*EMFORMER, "model.segment_frames=16", "trainer.chunk_frames=[16]"): "`trainer.val_chunk_ms` "
    "must be 640 (40 ms times model.segment_frames) where `model.encoder` is emformer, but is 320.",
    (*EMFORMER, "model.left_segments=2"): "`trainer.left_chunks` must be [2] (model.left_segments) "
    "where `model.encoder` is emformer, but is [4].",
    (*EMFORMER, "+model.conv_kernel=7"): "Unknown key `model.conv_kernel`; `model` has dropout, "
    "encoder, encoder_dim, feedforward_dim, joiner_dim, left_segments, memory_segments, num_heads, "
    "num_layers, num_mel_bins, predictor, predictor_context, predictor_dim, predictor_dropout, "
    "right_context_frames, segment_frames, subsampling_channels.",
    (*DISTILLATION, "loss.joiner=fused"): "`loss.joiner` must be packed where "
    "`distillation.teacher` is given, since a fused joiner has no logits to compare, but is "
    "'fused'.",
    (*DISTILLATION, "loss.clamp=1.0"): "`loss.clamp` must be at most 0 where "
    "`distillation.teacher` is given, since the RNN-T loss has no gradient of its own there, but "
    "is 1.0.",
}


@pytest.mark.parametrize("overrides", COMBINATIONS, ids=" ".join)
def test_keys_that_contradict_each_other_are_one_sentence(overrides):
    with pytest.raises(ConfigError) as caught:
        compose_config("train", overrides)
    assert str(caught.value) == COMBINATIONS[overrides]


EVALUATE_CASES = {
    "decoder=viterbi": "`decoder` must be one of greedy, beam, but is 'viterbi'.",
    "chunk_ms=330": "`chunk_ms` must be a multiple of 40 of at least 40 or one of full, but is "
    "330.",
    "snr_db=[loud]": "`snr_db` must be a list of values, each a number in [-200, 200] or one of "
    "clean, but is ['loud'].",
    "snr_db=[1e9]": "`snr_db` must be a list of values, each a number in [-200, 200] or one of "
    "clean, but is [1000000000.0].",
    "checkpont=a": "Unknown key `checkpont`; the evaluate config has baseline, batch_seconds, "
    "beam_width, checkpoint, chunk_ms, decoder, full_context, left_chunks, manifest, "
    "max_utterances, noise_banks, noise_kinds, noise_seed, num_threads, out_dir, progress_bar, "
    "snr_db, unseen_noise_kinds, worst. Did you mean checkpoint=a?",
}


@pytest.mark.parametrize("override", EVALUATE_CASES)
def test_a_wrong_evaluation_config_is_one_sentence(override):
    with pytest.raises(ConfigError) as caught:
        compose_config("evaluate", ["checkpoint=a.ckpt", override])
    assert str(caught.value) == EVALUATE_CASES[override]


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("evaluate", "`checkpoint` must be given, but is missing."),
        ("transcribe", "`checkpoint` must be given, but is missing."),
    ],
)
def test_a_missing_mandatory_key_is_named(command, sentence):
    with pytest.raises(ConfigError) as caught:
        compose_config(command, [])
    assert str(caught.value) == sentence


def test_defaults_and_overrides_compose():
    config = compose_config("train", ["experiment=demo", "loss.blank=-1", "loss.dtype=bfloat16"])
    assert config.name == "demo"
    assert config.output_dir == "outputs/demo"
    assert config.loss.blank == -1
    assert config.loss.dtype == "bfloat16"
    assert config.loss.clamp == -1.0


def test_configs_are_those_of_the_checkout():
    assert conf_dir() == Path(__file__).resolve().parents[2] / "conf"


NAMES = (
    *("a b, c=(d)'s.wav", "[take 1].wav", "[x", "x]", "{a: 1}", "it's", "'quoted'", '"twice"'),
    *("back\\slash", "ends\\", "\\'", "\\\\'", "a\nb", "# no", "a:b", "é中.wav", "\udcff.wav"),
)


@pytest.mark.parametrize("name", NAMES)
def test_file_names_need_no_quoting(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).touch()
    given = [f"wav={name}", "checkpoint=best-cer=1.ckpt"]
    config = compose_config("transcribe", quote_paths(given))
    assert (config.wav, config.checkpoint) == (name, "best-cer=1.ckpt")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("manifest=[a=1.jsonl, b (2).jsonl,it\\s]", ["a=1.jsonl", "b (2).jsonl", "it\\s"]),
        ("manifest=['a,b','c']", ["a,b", "c"]),
        ("manifest=[a'b].jsonl", "[a'b].jsonl"),
        ("manifest='a b'", "a b"),
        ("manifest=it's", "it's"),
        ("noise_banks=[a b,c=d]", ["a b", "c=d"]),
        ("out_dir=null", None),
        ("snr_db=[5]", [5]),
    ],
)
def test_lists_of_names_and_what_is_quoted_already(argument, value):
    config = compose_config("evaluate", [*quote_paths([argument]), "checkpoint=a"])
    found = getattr(config, argument.split("=")[0])
    assert (list(found) if isinstance(value, list) else found) == value


@pytest.mark.parametrize(
    ("argument", "written"),
    [
        ("name=a=b", "'name=\"a=b\"'"),
        ("name=[a]b", "'name=\"[a]b\"'"),
        ('name=a"b', "'name='\"'\"'a\"b'\"'\"''"),
    ],
)
def test_a_value_that_needs_quotes_is_told_how_to_write_them(argument, written):
    with pytest.raises(ConfigError) as caught:
        compose_config("train", [argument])
    assert str(caught.value) == (
        f"'{argument}' is not an override of the form key=value. A value with quotes, brackets, "
        f"braces or = is written {written}."
    )
    (unquoted,) = shlex.split(written)
    assert compose_config("train", [unquoted]).name == argument.partition("=")[2]


def test_home_folders_are_known(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    given = ["checkpoint=~/a.ckpt", "manifest=[~/b.jsonl,c~.jsonl]", "out_dir=~"]
    config = compose_config("evaluate", quote_paths(given))
    assert config.checkpoint == str(tmp_path / "a.ckpt")
    assert list(config.manifest) == [str(tmp_path / "b.jsonl"), "c~.jsonl"]
    assert config.out_dir == str(tmp_path)
    data = compose_config("train", quote_paths(["data.train_manifest=~/d.jsonl"])).data
    assert data.train_manifest == str(tmp_path / "d.jsonl")


def test_a_home_folder_that_is_not_known_is_named():
    with pytest.raises(FileNotFoundError) as caught:
        compose_config("transcribe", quote_paths(["wav=~no-such-user/a.wav", "checkpoint=a"]))
    assert caught.value.filename == "~no-such-user/a.wav"
    assert caught.value.strerror == (
        "the home folder of ~no-such-user isn't known; ./~no-such-user/a.wav is a file of this name"
    )


def test_the_command_exits_2_with_one_line_and_no_traceback(tmp_path):
    """In a process of its own, which may print nothing else."""
    arguments = command("train", "experiment=demo", "loss.reduction=none")
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=tmp_path, timeout=500)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"Error: {TRAIN_CASES['loss.reduction=none']}\n"
    assert list(tmp_path.iterdir()) == []


def test_help_shows_groups_keys_and_examples(tmp_path):
    done = run("train", "--help", "loss.reduction=mean", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 100
    for piece in (
        "\n  asr-ascend train experiment=demo resume=true\n",
        "\n  experiment=demo|distillation|smoke|substation_base|substation_finetune\n",
        "\nloss: The RNN-T loss and the auxiliary CTC loss.\n  loss.blank=0\n      Id of blank,",
        "\n  loss.reduction=mean\n      `sum`: divided by what `normalize_by` says, ",
        "\n  trainer.chunk_frames=[0,0,25,16,8]\n",
        "\n  data.spec_augment.max_freq_bins=15\n      Widest band, in mel bands. (an integer of ",
        "checkpoints/ (last.ckpt, ",
    ):
        assert piece in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_cfg_job_prints_the_config_and_trains_nothing(tmp_path):
    done = run("train", "experiment=demo", "loss.clamp=0.5", "--cfg", "job", folder=tmp_path)
    assert done.returncode == 0
    assert "\n  clamp: 0.5\n" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_is_checked_before_any_of_it_runs(tmp_path):
    done = run("train", "--multirun", "experiment=demo", "loss.reduction=sum,none", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"Error: {TRAIN_CASES['loss.reduction=none']}\n"
    assert list(tmp_path.iterdir()) == []
