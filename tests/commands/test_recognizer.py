"""asr_ascend.load: files, samples and streams, and the page that shows them."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

import asr_ascend
from tests.support.tiny_runs import SAMPLE_RATE_HZ, TEXTS, tone_utterance

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"


@pytest.fixture(scope="module")
def recognizer(tiny_run):
    return asr_ascend.load(tiny_run.checkpoint)


@pytest.fixture
def samples():
    return tone_utterance(TEXTS[1])


def test_files_samples_and_streams_say_the_same(recognizer, samples, tmp_path):
    path = tmp_path / "a.wav"
    soundfile.write(path, samples, SAMPLE_RATE_HZ, subtype="FLOAT")
    heard = recognizer.transcribe(path)
    assert heard.text == TEXTS[1]
    assert heard.duration == len(samples) / SAMPLE_RATE_HZ
    assert "".join(token["token"] for token in heard.tokens) == heard.text
    assert recognizer.transcribe(samples, SAMPLE_RATE_HZ) == heard
    for size in (100, 1600, 7777):
        stream = recognizer.stream()
        pieces = [stream.accept(samples[i : i + size]) for i in range(0, len(samples), size)]
        partial = stream.text
        assert partial == "".join(pieces)
        assert stream.finish() == heard
        assert stream.finish() == heard and stream.text == heard.text


def test_other_rates_are_resampled(recognizer, samples):
    slow = np.repeat(samples, 2)
    assert recognizer.transcribe(slow, 2 * SAMPLE_RATE_HZ).duration == pytest.approx(
        len(samples) / SAMPLE_RATE_HZ
    )


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda r: r.transcribe(np.zeros(9, np.float32)),
            ValueError,
            "`sample_rate_hz` must be given with samples, but is None.",
        ),
        (
            lambda r: r.transcribe("a.wav", 16000),
            ValueError,
            "`sample_rate_hz` must be None for a file, which says its own, but is 16000.",
        ),
        (
            lambda r: r.transcribe(np.zeros(9, np.int16), 16000),
            TypeError,
            "`samples` must be floats in [-1, 1], but are int16.",
        ),
        (
            lambda r: r.transcribe(np.zeros((9, 2), np.float32), 16000),
            ValueError,
            "`samples` must be (n,), but have shape (9, 2).",
        ),
        (
            lambda r: r.transcribe(np.full(9, np.nan, np.float32), 16000),
            ValueError,
            "`samples` must be finite, but hold NaN or infinity.",
        ),
        (
            lambda r: r.stream(100),
            ValueError,
            "`sample_rate_hz` must be an int in [4000, 384000], but is 100.",
        ),
    ],
)
def test_errors(recognizer, call, error, message):
    with pytest.raises(error) as caught:
        call(recognizer)
    assert str(caught.value) == message


def test_nothing_is_heard_after_the_end(recognizer, samples):
    stream = recognizer.stream()
    stream.finish()
    with pytest.raises(ValueError) as caught:
        stream.accept(samples)
    assert str(caught.value) == "`accept` must come before `finish`, but the stream is finished."


def test_the_page_runs(tiny_run, samples, tmp_path, monkeypatch, capsys):
    (tmp_path / "last.ckpt").symlink_to(tiny_run.checkpoint)
    soundfile.write(tmp_path / "a.wav", samples, SAMPLE_RATE_HZ, subtype="FLOAT")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"{TEXTS[1]} {len(samples) / SAMPLE_RATE_HZ:.2f} s"
    assert printed[-1] == TEXTS[1]


def test_importing_the_package_imports_nothing_heavy():
    code = "import asr_ascend, sys; print('torch' in sys.modules, callable(asr_ascend.load))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == ["False", "True"]
