"""Recordings that vanish while a training runs."""

from pathlib import Path

import pytest

from asr_ascend.checkpoints.checkpoint import read_checkpoint
from tests.support.tiny_runs import TINY, run, write_corpus

ROOT = str(Path(__file__).resolve().parents[2])
SETTINGS = (
    *TINY,
    "data.train_manifest=corpus/tones.jsonl",
    "data.cache_audio_bytes=0",
    "loss.ctc_first=0",
    "trainer.val_every_steps=1000",
    "trainer.checkpoint_every_steps=3",
    "trainer.max_steps=60",
)


def train_until(folder: Path, monkeypatch: pytest.MonkeyPatch, step: int, then) -> object:
    """Trains; after `step` steps calls `then`."""
    from asr_ascend.training.module import TransducerModule

    real = TransducerModule.training_step

    def watched(self, batch, index):
        if self.global_step == step:
            then()
        return real(self, batch, index)

    monkeypatch.setattr(TransducerModule, "training_step", watched)
    return run("train", *SETTINGS, folder=folder)


@pytest.mark.filterwarnings("ignore:Skipped utterance")
def test_recordings_that_vanish_end_a_training_in_a_sentence(tmp_path, monkeypatch):
    write_corpus(tmp_path / "corpus")

    def vanish() -> None:
        for path in (tmp_path / "corpus").iterdir():
            path.unlink()

    done = train_until(tmp_path, monkeypatch, 10, vanish)
    told = done.stderr.splitlines()[-1]
    assert done.returncode == 2
    assert told.startswith("Error: Training hears nothing any more: of steps 1")
    assert "Traceback" not in done.stderr
    assert read_checkpoint(tmp_path / "outputs/smoke/checkpoints/last.ckpt")["global_step"] < 18
