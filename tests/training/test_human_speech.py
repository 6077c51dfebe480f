"""The smoke experiment on ten human recordings of Debian's pocketsphinx-testdata."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile

RECORDINGS = Path("/usr/share/pocketsphinx/test/data")
LISTINGS = ("cards/cards.transcription", "librivox/transcription")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not RECORDINGS.is_dir(), reason="Debian's pocketsphinx-testdata is not installed"
    ),
]


def write_manifest(path: Path) -> None:
    """One line for each `<s> text </s> (name)` of the two listings."""
    lines = []
    for listing in LISTINGS:
        for line in (RECORDINGS / listing).read_text(encoding="utf-8").splitlines():
            text, name = re.findall(r"<s>\s*(.*?)\s*</s>\s*\((.*)\)", line)[0]
            wav = RECORDINGS / Path(listing).parent / f"{name}.wav"
            keys = {"id": name, "audio_filepath": str(wav), "text": text}
            lines.append(json.dumps({**keys, "duration": soundfile.info(wav).duration}))
    assert len(lines) == 10
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_smoke_learns_ten_human_recordings_by_heart(tmp_path: Path) -> None:
    write_manifest(tmp_path / "human.jsonl")
    run = tmp_path / "run"
    overrides = [f"data.train_manifest={tmp_path / 'human.jsonl'}", f"output_dir={run}"]
    module = [sys.executable, "-m", "asr_ascend.train"]
    subprocess.run([*module, "experiment=smoke", *overrides], check=True)
    with (run / "metrics.csv").open(encoding="utf-8") as file:
        cer = [row["valid_cer"] for row in csv.DictReader(file) if row["valid_cer"]]
    assert float(cer[-1]) == 0.0

    checkpoint = run / "checkpoints" / "last.ckpt"
    wav = RECORDINGS / "cards" / "005.wav"
    transcribe = [sys.executable, "-m", "asr_ascend.transcribe", f"wav={wav}"]
    done = subprocess.run(
        [*transcribe, f"checkpoint={checkpoint}"], check=True, capture_output=True, text=True
    )
    assert "eight of spades four of clubs seven of hearts" in done.stdout
