"""The import command: problems listed, fixed and reported; manifests whole or not at all."""

import json

import numpy as np
import pytest
import soundfile

from asr_ascend.data.importing import command as importing
from asr_ascend.data.manifest import Utterance, load_manifest
from asr_ascend.data.tokenizer import Tokenizer
from tests.support.speech_like import babble, write_wav


def run(*arguments):
    return importing.main([str(argument) for argument in arguments])


@pytest.fixture
def flawed(tmp_path):
    """A JSONL list with one utterance for each kind of problem, and two sound ones."""
    root = tmp_path / "flawed"
    wave = babble()
    clipped = wave.copy()
    clipped[4000:4100] = 1.0
    for name in ("good", "late", "short", "empty", "odd"):
        write_wav(root / f"{name}.wav")
    write_wav(root / "cut.wav", 2.0)
    (root / "cut.wav").write_bytes((root / "cut.wav").read_bytes()[:48044])
    soundfile.write(root / "two.wav", np.stack([wave, wave], 1), 16000)
    soundfile.write(root / "mute.wav", 0 * wave, 16000)
    soundfile.write(root / "clip.wav", clipped, 16000)
    (root / "text.wav").write_text("not audio at all")
    lines = [
        {"id": "good", "audio": "good.wav", "text": "二号", "duration": 1.0, "speaker": "ann"},
        {"id": "gone", "audio": "gone.wav", "text": "二号"},
        {"id": "text", "audio": "text.wav", "text": "二号", "duration": 1.0},
        {"id": "cut", "audio": "cut.wav", "text": "二号", "duration": 2.0},
        {"id": "two", "audio": "two.wav", "text": "二号"},
        {"id": "mute", "audio": "mute.wav", "text": "二号"},
        {"id": "clip", "audio": "clip.wav", "text": "二号"},
        {"id": "short", "audio": "short.wav", "text": "二号", "duration": 3.25},
        {"id": "empty", "audio": "empty.wav", "text": " \u3000"},
        {"id": "odd", "audio": "odd.wav", "text": "二A号%A"},
        {"id": "good", "audio": "late.wav", "text": "二号"},
        {"id": "wordless", "audio": "good.wav"},
        {"id": "span", "audio": "good.wav", "text": "二号", "duration": 0.5, "offset": 0.25},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (root / "all.jsonl").write_text(text, encoding="utf-8")
    model = Tokenizer.train(["二号主变"]).state_dict()["model"].numpy().tobytes()
    (root / "tokens.model").write_bytes(model)
    return root


KINDS = {
    **{"bad_line": 1, "clipped": 1, "duplicate_id": 1, "duration": 1, "empty_text": 1},
    **{"missing": 1, "silent": 1, "stereo": 1, "truncated": 1, "unknown_character": 1},
    "unreadable": 1,
}


def test_every_problem_is_listed_and_nothing_written(flawed, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    options = ["jsonl", flawed / "all.jsonl", "--out", "out"]
    assert run(*options, "--tokenizer", flawed / "tokens.model") == 1
    told = capsys.readouterr().out
    assert told.startswith(
        "all: 12 utterances, 0.00 h, 4 different characters; 16000 Hz; WAV PCM_16\n"
    )
    for line in (
        "  bad_line: 1 (line or file name that can't be understood)",
        "    wordless (all.jsonl line 12): `text` is missing",
        "    gone (flawed/gone.wav): there is no such file",
        "    text (flawed/text.wav): Format not recognised",
        "    cut (flawed/cut.wav): its header states 2.00 s, but it has 1.50 s",
        "    two (flawed/two.wav): it has 2 channels",
        "    mute (flawed/mute.wav): its loudest 20 ms are at -inf dBFS",
        "    clip (flawed/clip.wav): 0.62% of its samples are flat at full scale",
        "    short (flawed/short.wav): 3.25 s are stated, but the file has 1 s",
        "    empty (all.jsonl line 9): it has no text",
        "    odd (all.jsonl line 10): the tokenizer doesn't know 'A', '%'",
        "    good (all.jsonl line 11): all.jsonl line 1 has the same id",
        "All 11 problems of all are in out/all.report.json.",
    ):
        assert line in told.splitlines()
    assert "No manifest written. The same command with --fix drop leaves out" in told
    assert sorted(path.name for path in out.iterdir()) == [".inspected", "all.report.json"]
    report = json.loads((out / "all.report.json").read_text(encoding="utf-8"))
    assert report["counts"] == KINDS
    assert (report["utterances"], report["with_problems"], report["left_out"]) == (12, 8, 3)
    assert (report["fix"], report["written"]) == (None, {})
    assert report["problems"][0] == {
        "kind": "unreadable",
        "id": "text",
        "where": str(flawed / "text.wav"),
        "detail": "Format not recognised",
        "action": "undecided",
    }


def test_drop_writes_the_sound_ones(flawed, tmp_path, capsys):
    out = tmp_path / "out"
    options = ["jsonl", flawed / "all.jsonl", "--out", out, "--fix", "drop"]
    assert run(*options, "--tokenizer", flawed / "tokens.model") == 0
    assert load_manifest(out / "all.jsonl") == [
        Utterance("good", flawed / "good.wav", "二号", 1.0, "ann"),
        Utterance("span", flawed / "good.wav", "二号", 0.5, offset=0.25),
    ]
    told = capsys.readouterr().out
    assert f"Wrote {out / 'all.jsonl'}: 2 utterances, 0.00 h, 2 different characters.\n" in told
    assert "  all: dropped 8 with problems\n" in told
    left_out = "bad_line (1), duplicate_id (1), missing (1)"
    assert f"  all: left out 3 that no manifest can hold ({left_out})\n" in told
    report = json.loads((out / "all.report.json").read_text(encoding="utf-8"))
    assert report["counts"] == KINDS
    assert report["written"] == {"all.jsonl": 2}
    actions = {problem["id"]: problem["action"] for problem in report["problems"]}
    assert actions["two"] == "dropped"
    assert actions["gone"] == actions["wordless"] == "left out"


def test_keep_writes_what_a_manifest_can_hold_and_warns(flawed, tmp_path, capsys):
    out = tmp_path / "out"
    assert run("jsonl", flawed / "all.jsonl", "--out", out, "--fix", "keep") == 0
    kept = {u.id: u for u in load_manifest(out / "all.jsonl")}
    names = ["good", "text", "cut", "two", "mute", "clip", "short", "empty", "odd", "span"]
    assert list(kept) == names
    # Durations are those measured: training would otherwise be wrong about its batches.
    assert [kept[n].duration for n in ("text", "cut", "short")] == [0.0, 1.5, 1.0]
    told = capsys.readouterr()
    listed = ["clipped", "duration", "empty_text", "silent", "stereo", "truncated", "unreadable"]
    kinds = ", ".join(f"{kind} (1)" for kind in listed)
    assert f"Warning: all: kept 7 with problems ({kinds})\n" in told.err
    assert "left out 3 that no manifest can hold" in told.out


def test_kinds_can_be_ignored(flawed, tmp_path, capsys):
    out = tmp_path / "out"
    options = ["jsonl", flawed / "all.jsonl", "--out", out, "--fix", "drop"]
    assert run(*options, "--ignore", "stereo,clipped,bad_line,duplicate_id") == 0
    kept = [u.id for u in load_manifest(out / "all.jsonl")]
    assert kept == ["good", "two", "clip", "odd", "span"]
    told = capsys.readouterr().out
    assert "stereo" not in told and "bad_line" not in told
    # A manifest with an id twice could not be loaded, ignored or not.
    assert "left out 2 that no manifest can hold (duplicate_id (1), missing (1))" in told


def test_long_listings_are_cut_short_on_the_screen_only(folder, tmp_path, capsys):
    source = folder(**{f"u{number}": "" for number in range(5)})
    assert run("folder", source, "--out", tmp_path / "out", "--show", 2) == 1
    told = capsys.readouterr().out
    assert "  empty_text: 5 (no text, or white space and marks that can't be seen)\n" in told
    assert told.count("it has no text") == 2
    assert "    and 3 more, which the report lists\n" in told
    report = json.loads((tmp_path / "out/rec.report.json").read_text(encoding="utf-8"))
    assert len(report["problems"]) == 5
    assert run("folder", source, "--out", tmp_path / "out", "--show", 0) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "  empty_text: 5 (no text, or white space and marks that can't be seen)"
    assert lines[2].startswith("All 5 problems of rec are in ")


def test_a_sound_source_needs_no_fix(folder, tmp_path, capsys):
    source = folder(a="二 号", b="go on")
    out = tmp_path / "deep" / "out"
    assert run("folder", source, "--out", out, "--name", "train", "--spaces", "han") == 0
    assert load_manifest(out / "train.jsonl") == [
        Utterance("a", source / "a.wav", "二号", 1.0),
        Utterance("b", source / "b.wav", "go on", 1.0),
    ]
    assert capsys.readouterr().out == (
        "train: 2 utterances, 0.00 h, 6 different characters; 16000 Hz; WAV PCM_16\n"
        f"Wrote {out / 'train.jsonl'}: 2 utterances, 0.00 h, 6 different characters.\n"
    )


def test_a_failed_write_leaves_the_old_manifest(folder, tmp_path, capsys, monkeypatch):
    source = folder(a="x")
    options = ["folder", source, "--out", tmp_path / "out"]
    assert run(*options) == 0
    before = (tmp_path / "out/rec.jsonl").read_bytes()
    folder(b="y")

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("asr_ascend.data.manifest._record", full)
    assert run(*options) == 2
    assert capsys.readouterr().err.endswith(
        f"Error: {tmp_path / 'out/rec.jsonl'}: No space left on device.\n"
    )
    assert (tmp_path / "out/rec.jsonl").read_bytes() == before
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [".inspected", "rec.jsonl", "rec.report.json"]
