"""experiment=smoke, as CI and newcomers run it."""

import csv
import json
import os
import re
import time
from pathlib import Path

import pytest
import soundfile

from tests.support.tiny_runs import run

POCKETSPHINX = Path("/usr/share/pocketsphinx/test/data")


def final_cer(folder: Path) -> float:
    with (folder / "outputs" / "smoke" / "metrics.csv").open(encoding="utf-8") as stream:
        return [float(row["valid_cer"]) for row in csv.DictReader(stream) if row["valid_cer"]][-1]


def test_twenty_synthetic_utterances_are_learnt_by_heart_in_a_minute(tmp_path):
    pytest.importorskip("espeakng_loader", reason="needs pip install 'asr-ascend[demo]'")
    pytest.importorskip("pypinyin", reason="needs pip install 'asr-ascend[demo]'")
    from asr_ascend.data.synthesis.corpus import CorpusConfig, synthesise

    corpus = CorpusConfig(train=20, valid=0, commands=0, unseen=0)
    synthesise(tmp_path / "data" / "smoke", corpus)
    started = time.process_time()
    done = run("train", "experiment=smoke", folder=tmp_path)
    seconds = time.process_time() - started
    assert done.returncode == 0, done.stderr
    assert final_cer(tmp_path) == 0.0
    # CPU time of all threads, so that other work on the machine doesn't count.
    assert seconds / min(2, os.cpu_count() or 1) < 60, f"{seconds:.0f} s of CPU"


def write_english_manifest(path: Path) -> int:
    """The ten recordings with transcripts of Debian's pocketsphinx-testdata."""
    lines = []
    for listing in ("cards/cards.transcription", "librivox/transcription"):
        text = (POCKETSPHINX / listing).read_text(encoding="utf-8")
        for words, name in re.findall(r"<s> (.*?) +</s> \((.*?)\)", text):
            audio = (POCKETSPHINX / listing).with_name(f"{name}.wav")
            record = {
                "id": name,
                "audio_filepath": str(audio),
                "text": words,
                "duration": soundfile.info(audio).duration,
            }
            lines.append(json.dumps(record) + "\n")
    path.write_text("".join(lines), encoding="utf-8")
    return len(lines)


@pytest.mark.slow
def test_ten_english_recordings_are_learnt_by_heart(tmp_path):
    if not POCKETSPHINX.is_dir():
        pytest.skip("needs Debian's pocketsphinx-testdata")
    assert write_english_manifest(tmp_path / "english.jsonl") == 10
    done = run("train", "experiment=smoke", "data.train_manifest=english.jsonl", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert final_cer(tmp_path) == 0.0
