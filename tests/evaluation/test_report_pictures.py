"""Pictures of a report, in its folder, in its Markdown and in TensorBoard."""

import json

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from asr_ascend.checkpoints.checkpoint import load_model
from asr_ascend.config.data_options import DataOptions
from asr_ascend.config.loss_options import LossOptions
from asr_ascend.config.train_options import TrainerOptions, TrainOptions
from asr_ascend.data.audio import load_audio
from asr_ascend.data.manifest import load_manifest
from asr_ascend.evaluation import example
from asr_ascend.evaluation.pictures import (
    draw_example,
    draw_training,
    log_to_tensorboard,
    training_caption,
)
from tests.support.tiny_runs import TEXTS, run

PICTURES = ("training.png", "example.png", "example_alignment.png")
HEAD = "step,epoch,loss,rnnt_loss,ctc_loss,lr,grad_norm,chunk_frames,utterances,tokens,valid_cer\n"


@pytest.fixture(scope="module")
def folder(tiny_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    arguments = (f"checkpoint={tiny_run.checkpoint}", f"manifest={tiny_run.manifest}")
    settings = ("snr_db=[clean,40]", "progress_bar=false", "num_threads=1", f"out_dir={folder}")
    for _ in range(2):  # the second takes the first one's place
        done = run("evaluate", *arguments, *settings, folder=folder)
        assert done.returncode == 0, done.stderr
    return folder


def test_the_report_shows_the_training_and_an_example(folder):
    text = (folder / "report.md").read_text(encoding="utf-8")
    for name in PICTURES:
        assert f"]({name})" in text
        assert imread(folder / name).shape[0] > 200
    assert f"said: {TEXTS[0]}" in text
    captions = json.loads((folder / "report.json").read_text(encoding="utf-8"))["pictures"]
    assert tuple(captions) == PICTURES


def test_tensorboard_has_the_same(folder):
    (events,) = (folder / "tb" / "evaluation").iterdir()
    held = EventAccumulator(str(events)).Reload()
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    scalars = {tag: held.Scalars(tag) for tag in held.Tags()["scalars"]}
    assert {tag: (values[0].step, values[0].value) for tag, values in scalars.items()} == {
        f"cer/tones/{row['context'].replace(' ', '_')}/{row['snr_db']}": (
            260,
            pytest.approx(row["cer"]),
        )
        for row in report["cer"]
    }
    assert sorted(held.Tags()["images"]) == [
        "cer_by_snr",
        "example",
        "example_alignment",
        "training",
    ]
    (text,) = held.Tensors("report/text_summary")
    assert text.tensor_proto.string_val[0].decode() == (folder / "report.md").read_text("utf-8")


def test_a_run_without_steps_has_no_curves(tmp_path):
    metrics, picture = tmp_path / "metrics.csv", tmp_path / "training.png"
    assert not draw_training(metrics, picture)
    metrics.write_text(HEAD)
    assert not draw_training(metrics, picture)
    assert not picture.exists()
    metrics.write_text(HEAD + "1,0,2.0,,2.0,0.1,1.0,8,4,9,\n")
    assert draw_training(metrics, picture)


def test_noise_shows_in_the_spectrogram(tmp_path):
    time = torch.arange(16000) / 16000
    speech = torch.where(time > 0.5, (2 * np.pi * 1000 * time).sin(), torch.zeros(()))
    hum = (2 * np.pi * 6000 * time).sin()
    quiet, noisy = tmp_path / "quiet.png", tmp_path / "noisy.png"
    draw_example(quiet, speech, speech, 5.0, 16000)
    draw_example(noisy, speech, speech + hum, 5.0, 16000)
    changed = np.abs(imread(quiet) - imread(noisy))[..., :3].sum(-1) > 0.5
    rows = np.flatnonzero(changed[:, changed.shape[1] // 4])  # while nobody speaks
    assert rows.min() > changed.shape[0] // 2  # below, where the noisy one is


def test_old_events_go(tmp_path):
    old = tmp_path / "events.out.tfevents.1.old"
    old.touch()
    log_to_tensorboard(tmp_path, {"step": 3, "cer": []}, [], "# nothing")
    assert not old.exists()


def test_the_curves_caption_says_where_they_jump_and_what_was_validated():
    assert training_caption(TrainOptions()) == (
        "Losses are nats per utterance, drawn as means over 1% of the steps. The first 20% of the "
        "steps train CTC alone. Noise rises over the first 4 epochs and SpecAugment follows, so "
        "the losses rise, too. The validation set is at 5 dB, decoded in chunks of 320 ms."
    )
    plain = TrainOptions(
        data=DataOptions(noise_probability=0.0, spec_augment=None, valid_snr_db=None),
        trainer=TrainerOptions(val_chunk_ms="full"),
        loss=LossOptions(ctc_first=0.0, normalize_by="tokens"),
    )
    assert training_caption(plain) == (
        "Losses are nats per token, drawn as means over 1% of the steps. The validation set is "
        "clean, decoded with full context."
    )


def test_a_baseline_is_in_tensorboard_too(tmp_path):
    row = {"set": "a", "context": "streaming", "snr_db": "5"}
    summary = {"step": 3, "cer": [{**row, "cer": 0.25}], "baseline": {"cer": [{**row, "cer": 0.5}]}}
    log_to_tensorboard(tmp_path, summary, [], "# nothing")
    held = EventAccumulator(str(tmp_path)).Reload()
    assert {tag: held.Scalars(tag)[0].value for tag in held.Tags()["scalars"]} == {
        "cer/a/streaming/5": 0.25,
        "cer_before/a/streaming/5": 0.5,
    }


def test_tokens_are_numbered_in_the_caption_where_no_font_has_them(tiny_run, tmp_path, monkeypatch):
    monkeypatch.setattr(example, "token_labels", lambda labels: ["1", "2", "3"][: len(labels)])
    trained = load_model(tiny_run.checkpoint)
    utterance = load_manifest(tiny_run.manifest)[0]
    speech = load_audio(utterance.audio_path)
    captions = example.write_example(trained, utterance, speech, speech, (None, None), tmp_path)
    assert captions == {
        "example.png": f"One utterance at 5 dB ([example.wav](example.wav)), said: {TEXTS[0]}",
        "example_alignment.png": f"Heard: {TEXTS[0]}. Dark is where the model's alignments of it "
        "go, the line is the likeliest, dots are when the stream gave the tokens. Tokens are "
        "numbered, for want of a font with their characters: 1 甲, 2 乙, 3 丙.",
    }
    silence = torch.zeros(8000)
    captions = example.write_example(
        trained, utterance, speech[:8000], silence, (None, None), tmp_path
    )
    assert captions["example.png"].endswith(f"said: {TEXTS[0]}. Heard: nothing.")
    assert not (tmp_path / "example_alignment.png").exists()
