"""A model of another rate and other mel bins is evaluated and transcribed as it was trained."""

import json

import pytest
import soundfile

from tests.support.tiny_runs import TEXTS, TINY, run, write_corpus

CHECKPOINT = "outputs/smoke/checkpoints/last.ckpt"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of 8 kHz and 40 bins that has learnt two tone utterances by heart."""
    folder = tmp_path_factory.mktemp("features")
    write_corpus(folder / "corpus", TEXTS[:2])
    settings = ("data.sample_rate_hz=8000", "model.num_mel_bins=40", "trainer.max_steps=190")
    settings += ("trainer.val_every_steps=190", "data.train_manifest=corpus/tones.jsonl")
    done = run("train", *TINY, *settings, folder=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_evaluation_hears_it(folder):
    done = run(
        *("evaluate", f"checkpoint={CHECKPOINT}", "manifest=corpus/tones.jsonl"),
        *("snr_db=[clean,20]", "progress_bar=false"),
        folder=folder,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((folder / "outputs" / "smoke" / "report.json").read_text("utf-8"))
    assert report["cer"][0]["snr_db"] == "clean"
    assert report["cer"][0]["cer"] == 0.0
    assert soundfile.info(folder / "outputs" / "smoke" / "example.wav").samplerate == 8000


def test_transcription_hears_it_from_files_and_pipes(folder):
    done = run("transcribe", f"checkpoint={CHECKPOINT}", "wav=corpus/0.wav", folder=folder)
    assert (done.returncode, done.stdout) == (0, f"{TEXTS[0]}\n")
    samples, _ = soundfile.read(folder / "corpus" / "0.wav", dtype="int16")
    done = run(
        *("transcribe", f"checkpoint={CHECKPOINT}", "wav=-", "sample_rate_hz=16000"),
        folder=folder,
        stdin=samples.tobytes(),
    )
    assert (done.returncode, done.stdout) == (0, f"{TEXTS[0]}\n")


def test_a_baseline_of_another_rate_is_one_sentence(folder, tiny_run):
    done = run(
        *("evaluate", f"checkpoint={CHECKPOINT}", "manifest=corpus/tones.jsonl"),
        f"baseline={tiny_run.checkpoint}",
        folder=folder,
    )
    assert (done.returncode, done.stderr) == (
        2,
        "Error: `baseline` must hear speech at the checkpoint's 8000 Hz, but "
        f"{tiny_run.checkpoint} hears it at 16000 Hz.\n",
    )


def test_a_folder_for_the_report_that_is_a_file_is_one_sentence(folder):
    done = run(
        *("evaluate", f"checkpoint={CHECKPOINT}", "manifest=corpus/tones.jsonl"),
        "out_dir=corpus/tones.jsonl",
        folder=folder,
    )
    assert (done.returncode, done.stderr) == (
        2,
        "Error: `out_dir` must be a folder, but corpus/tones.jsonl is a file.\n",
    )
