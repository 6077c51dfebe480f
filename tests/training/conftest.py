"""One trained tiny model for all tests that decode."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from tiny_runs import BLANK_LAST, TINY, run, write_corpus


@dataclass(frozen=True)
class TinyRun:
    """Where a tiny run lies, and what its training printed."""

    folder: Path
    manifest: Path
    checkpoint: Path
    stdout: str
    stderr: str


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory) -> TinyRun:
    """A model with blank last that has learnt eight tone utterances by heart."""
    folder = tmp_path_factory.mktemp("tiny")
    manifest = write_corpus(folder / "corpus")
    done = run("train", *TINY, *BLANK_LAST, "data.train_manifest=corpus/tones.jsonl", folder=folder)
    assert done.returncode == 0, done.stderr
    checkpoint = folder / "outputs" / "smoke" / "checkpoints" / "last.ckpt"
    return TinyRun(folder, manifest, checkpoint, done.stdout, done.stderr)
