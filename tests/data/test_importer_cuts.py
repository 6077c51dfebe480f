"""Cuts of lhotse: spans refer to files, whatever else a cut is gets rendered."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from asr_ascend.data.importing.command import main
from asr_ascend.data.importing.cuts import read_cuts
from asr_ascend.data.importing.source import Entry, SourceError
from asr_ascend.data.manifest import load_manifest
from tests.support.speech_like import babble, write_wav

lhotse = pytest.importorskip("lhotse", reason="needs pip install 'asr-ascend[lhotse]'")


def supervised(cut, text, start=0.0, **custom):
    from lhotse import SupervisionSegment

    segment = SupervisionSegment(
        id=f"{cut.id}-{start:g}",
        recording_id=cut.recording.id,
        start=start,
        duration=cut.duration - start,
        text=text,
        speaker="ann",
        custom=custom or None,
    )
    cut.supervisions.append(segment)
    return cut


def cut_of(path, name, start=0.0, duration=None, channel=0):
    from lhotse import MonoCut, Recording

    recording = Recording.from_file(path)
    length = recording.duration - start if duration is None else duration
    return MonoCut(name, start, length, channel, supervisions=[], recording=recording)


@pytest.fixture
def cuts(tmp_path):
    """A whole file, a span, a channel of two, a mix, a transformed one, two supervisions."""
    whole = write_wav(tmp_path / "whole.wav", 2.0)
    two = tmp_path / "two.wav"
    stereo = np.stack([babble(2.0, seed=1), babble(2.0, seed=2)], 1)
    soundfile.write(two, stereo, 16000, subtype="FLOAT")
    listed = [
        supervised(cut_of(whole, "whole"), "二号", english="second"),
        supervised(cut_of(whole, "span", 0.5, 1.25), "主变", english="transformer"),
        supervised(cut_of(two, "right", 0.5, 1.0, channel=1), "油温"),
        supervised(cut_of(whole, "mix", 0, 1.0), "过高").mix(
            cut_of(two, "n", 0, 1.0), snr=10, preserve_id="left"
        ),
        supervised(cut_of(whole, "fast"), "上报").perturb_speed(1.25, affix_id=False),
        supervised(supervised(cut_of(whole, "both"), "one"), "two", start=1.0),
    ]
    path = tmp_path / "cuts_train.jsonl.gz"
    lhotse.CutSet.from_cuts(listed).to_file(path)
    return path


def test_spans_and_texts(cuts, tmp_path):
    (found,) = (sets := read_cuts(cuts, tmp_path / "audio")).values()
    assert list(sets) == ["cuts_train"]
    assert found.problems == []
    whole, span, *_, both = found.entries
    audio, name = tmp_path / "whole.wav", cuts.name
    assert whole == Entry("whole", audio, "二号", f"{name} cut 1", "ann", None, 2.0)
    assert span == Entry("span", audio, "主变", f"{name} cut 2", "ann", 0.5, 1.25)
    assert (both.text, both.render) == ("one two", None)
    assert [entry.render is not None for entry in found.entries[2:5]] == [True, True, True]
    assert not (tmp_path / "audio").exists()
    (english,) = read_cuts(cuts, tmp_path / "audio", text_field="english").values()
    texts = [entry.text for entry in english.entries]
    assert texts == ["second", "transformer", "", "", "", ""]


def test_what_is_rendered_is_what_lhotse_plays(cuts, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["lhotse", str(cuts), "--out", str(out), "--name", "train"]) == 0
    capsys.readouterr()
    utterances = {u.id: u for u in load_manifest(out / "train.jsonl")}
    cut_set = {cut.id: cut for cut in lhotse.CutSet.from_file(cuts)}
    assert utterances.keys() == cut_set.keys()
    rendered = [u for u in utterances.values() if u.audio_path.parent == out / "audio"]
    assert len(rendered) == 3
    for utterance in rendered:
        samples, rate_hz = soundfile.read(utterance.audio_path, dtype="float32")
        expected = cut_set[utterance.id].load_audio()[0]
        np.testing.assert_array_equal(samples, expected)
        assert (rate_hz, utterance.duration) == (16000, len(expected) / 16000)
    right, _ = soundfile.read(utterances["right"].audio_path)
    np.testing.assert_allclose(right, babble(2.0, seed=2)[8000:24000], atol=1e-7)
    assert utterances["fast"].duration == 1.6
    # The same again renders nothing anew.
    before = {path: path.stat().st_mtime_ns for path in (out / "audio").iterdir()}
    assert main(["lhotse", str(cuts), "--out", str(out), "--name", "train"]) == 0
    assert {path: path.stat().st_mtime_ns for path in (out / "audio").iterdir()} == before


def test_a_recording_that_is_gone(cuts, tmp_path, capsys):
    (tmp_path / "two.wav").unlink()
    # No manifest can hold what isn't there, so that keeping is dropping here.
    for fix in ("drop", "keep"):
        assert main(["lhotse", str(cuts), "--out", str(tmp_path / "out"), "--fix", fix]) == 0
        kept = [u.id for u in load_manifest(tmp_path / "out/cuts_train.jsonl")]
        assert kept == ["whole", "span", "fast", "both"]
    told = capsys.readouterr().out
    assert re.search(r"right \(.*\.wav\): it can't be rendered: Reading audio from .* failed", told)
    assert "cuts_train: left out 2 that no manifest can hold (missing (2))" in told


def test_a_full_disk_is_no_fault_of_the_recordings(cuts, tmp_path, capsys, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    out = tmp_path / "out"
    arguments = ["lhotse", str(cuts), "--out", str(out), "--fix", "drop"]
    monkeypatch.setattr(Path, "write_bytes", full)
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert re.fullmatch(rf"Error: {out}/audio/.*\.wav: No space left on device\.\n", told)
    assert not list(out.glob("*.json*")) and not list((out / "audio").iterdir())
    monkeypatch.undo()
    assert main(arguments) == 0
    assert len(load_manifest(out / "cuts_train.jsonl")) == 6


def test_relative_paths(tmp_path, monkeypatch):
    write_wav(tmp_path / "corpus/wav/a.wav")
    monkeypatch.chdir(tmp_path / "corpus")
    cut = supervised(cut_of("wav/a.wav", "a"), "x")
    (tmp_path / "corpus/data").mkdir()
    lhotse.CutSet.from_cuts([cut]).to_file("data/cuts.jsonl")
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "corpus/data/cuts.jsonl"
    (found,) = read_cuts(source, tmp_path / "audio").values()
    assert found.entries[0].audio_path == tmp_path / "corpus/wav/a.wav"


def test_sources_that_are_refused(cuts, tmp_path, monkeypatch):
    from lhotse import AudioSource

    rendered = tmp_path / "audio"
    with pytest.raises(SourceError) as caught:
        read_cuts(cuts, rendered, text_field="french")
    assert str(caught.value) == f"{cuts} has no `french`: its supervisions have english, text."
    missing = tmp_path / "no.jsonl"
    with pytest.raises(SourceError, match=f"^{re.escape(str(missing))} is not a file\\.$"):
        read_cuts(missing, rendered)
    recordings = tmp_path / "recordings.jsonl"
    cut = cut_of(tmp_path / "whole.wav", "a")
    lhotse.RecordingSet.from_recordings([cut.recording]).to_file(recordings)
    with pytest.raises(SourceError, match="holds no cuts"):
        read_cuts(recordings, rendered)
    cut.recording.sources[0] = AudioSource("command", [0], "cat /c/a.wav |")
    lhotse.CutSet.from_cuts([cut]).to_file(tmp_path / "commands.jsonl")
    with pytest.raises(SourceError) as caught:
        read_cuts(tmp_path / "commands.jsonl", rendered)
    assert str(caught.value) == (
        f"{tmp_path / 'commands.jsonl'}: cut 'a' has a command as its recording (cat /c/a.wav |), "
        "and commands are not run; write the recordings to files first."
    )
    monkeypatch.setitem(sys.modules, "lhotse", None)
    with pytest.raises(SourceError) as caught:
        read_cuts(cuts, rendered)
    assert str(caught.value) == (
        "Reading cuts needs the package lhotse: pip install 'asr-ascend[lhotse]'"
    )
