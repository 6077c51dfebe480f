"""The Emformer through every command: training, checkpoint, evaluation, transcription."""

import csv
import json

import pytest
import torch

from asr_ascend.checkpoints.checkpoint import load_model
from asr_ascend.config.rules import ConfigError
from asr_ascend.decoding.metrics import character_errors
from asr_ascend.training.teacher import load_teacher
from tests.support.tiny_runs import TEXTS, TINY, run, write_corpus
from tests.training.test_smoke import final_cer

TINY_EMFORMER = (
    *(setting for setting in TINY if not setting.startswith("model.conv_kernel")),
    *("model=emformer", "model.segment_frames=4", "model.right_context_frames=2"),
    *("trainer.chunk_frames=[4]", "trainer.val_chunk_ms=160", "trainer.max_steps=300"),
    *("trainer.val_every_steps=150", "data.train_manifest=corpus/tones.jsonl"),
)
# Of the 28 characters: how a machine rounds decides one of them.
MOST_ERRORS = 2


@pytest.fixture(scope="module")
def tiny_emformer(tmp_path_factory):
    """A run that has learnt eight tone utterances nearly by heart, in segments of 160 ms."""
    folder = tmp_path_factory.mktemp("emformer")
    write_corpus(folder / "corpus")
    done = run("train", *TINY_EMFORMER, folder=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def checkpoint(tiny_emformer):
    return tiny_emformer / "outputs" / "smoke" / "checkpoints" / "last.ckpt"


def characters() -> int:
    return sum(map(len, TEXTS))


def test_it_learns_by_heart(tiny_emformer):
    assert final_cer(tiny_emformer) <= MOST_ERRORS / characters()


def test_the_checkpoint_rebuilds_it(checkpoint):
    trained = load_model(checkpoint)
    assert trained.options.model.encoder.kind == "emformer"
    assert trained.model.encoder.fixed_chunks == (4, 4)
    assert trained.model.encoder.look_ahead_frames == 2


def test_it_transcribes_as_a_stream(tiny_emformer, checkpoint):
    arguments = (f"checkpoint={checkpoint}", "chunk_ms=160", "format=json")
    done = run("transcribe", *arguments, "wav=corpus", folder=tiny_emformer)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    pairs = zip(TEXTS, (line["text"] for line in lines), strict=True)
    assert sum(character_errors(*pair).errors for pair in pairs) <= MOST_ERRORS
    assert all(len(line["tokens"]) == len(line["text"]) for line in lines)


def test_it_is_evaluated_without_full_context(tiny_emformer, checkpoint):
    arguments = (f"checkpoint={checkpoint}", "manifest=corpus/tones.jsonl", "chunk_ms=160")
    done = run("evaluate", *arguments, "snr_db=[clean]", "progress_bar=false", folder=tiny_emformer)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[2].split()[:-1] == ["tones", "streaming", "160", "ms"]
    assert float(lines[2].split()[-1]) <= 100 * MOST_ERRORS / characters()
    assert "full context" not in done.stdout
    report = json.loads((tiny_emformer / "outputs" / "smoke" / "report.json").read_text("utf-8"))
    assert {row["context"] for row in report["cer"]} == {"streaming"}


BUILT = "which the model's encoder was built with"
WRONG = {
    ("evaluate", "chunk_ms=320"): (
        f"`chunk_ms` and `left_chunks` must be 160 and 4, {BUILT}, but are 320 and 4."
    ),
    ("evaluate", "chunk_ms=full"): (
        f"`chunk_ms` and `left_chunks` must be 160 and 4, {BUILT}, but are full and 4."
    ),
    ("evaluate", "chunk_ms=160", "full_context=true"): (
        "`full_context` must be false or null, since the model's encoder was built with chunks of "
        "160 ms and has no full context, but is true."
    ),
    ("transcribe", "chunk_ms=160", "left_chunks=8"): (
        f"`chunk_ms` and `left_chunks` must be 160 and 4, {BUILT}, but are 160 and 8."
    ),
}


@pytest.mark.parametrize("wrong", WRONG, ids=" ".join)
def test_chunks_that_it_cannot_serve_are_one_sentence(tiny_emformer, checkpoint, wrong):
    name, *arguments = wrong
    source = "manifest=corpus/tones.jsonl" if name == "evaluate" else "wav=corpus/0.wav"
    done = run(name, f"checkpoint={checkpoint}", source, *arguments, folder=tiny_emformer)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"Error: {WRONG[wrong]}\n"


def test_it_teaches_no_student_of_full_context(checkpoint):
    tokenizer = load_model(checkpoint).tokenizer
    with pytest.raises(ConfigError) as caught:
        load_teacher(checkpoint, tokenizer, 80, 16000, 2**20)
    assert str(caught.value) == (
        f"`distillation.teacher` must have full context, but the encoder of {checkpoint} was built "
        "with chunks."
    )
    with pytest.raises(ConfigError) as caught:
        load_teacher(checkpoint, tokenizer, 40, 16000, 2**20)
    assert str(caught.value) == (
        "`distillation.teacher` must have the student's `model.num_mel_bins` (40), but "
        f"{checkpoint} has 80."
    )


def test_a_conformer_teaches_it(tiny_run, tmp_path):
    """Two encoders of one front end have the same frames, so either may learn from the other."""
    (tmp_path / "corpus").symlink_to(tiny_run.manifest.parent)
    arguments = (*TINY_EMFORMER, "loss.blank=-1", "loss.joiner=packed", "trainer.max_steps=20")
    teacher = f"distillation.teacher={tiny_run.checkpoint}"
    done = run("train", *arguments, teacher, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "outputs" / "smoke" / "metrics.csv").open(encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["loss"]]
    assert [row["distillation_loss"] != "" for row in rows] == [False] * 8 + [True] * 12
    assert all(torch.isfinite(torch.tensor(float(row["loss"]))) for row in rows)


@pytest.mark.slow
def test_twenty_synthetic_utterances_are_learnt_by_heart(tmp_path):
    """The smoke test with the Emformer in place of the Conformer."""
    pytest.importorskip("espeakng_loader", reason="needs pip install 'asr-ascend[demo]'")
    pytest.importorskip("pypinyin", reason="needs pip install 'asr-ascend[demo]'")
    from asr_ascend.data.synthesis.corpus import CorpusConfig, synthesise

    corpus = CorpusConfig(train=20, valid=0, commands=0, unseen=0)
    synthesise(tmp_path / "data" / "smoke", corpus)
    done = run("train", "experiment=smoke", "model=emformer", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert final_cer(tmp_path) <= 0.01
