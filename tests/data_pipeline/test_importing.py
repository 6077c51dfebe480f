"""The import command: problems listed, fixed and reported; sets; texts; tokenizers."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
from speech_like import babble, write_wav

from asr_ascend.data import importing
from asr_ascend.data.importers.hold_out import hold_out
from asr_ascend.data.manifest import Utterance, load_manifest, write_manifest
from asr_ascend.tokenizer import Tokenizer

RECORDINGS = Path("/usr/share/pocketsphinx/test/data")


def run(*arguments):
    return importing.main([str(argument) for argument in arguments])


@pytest.fixture
def folder(tmp_path):
    """Function (texts by name) -> a folder of a second of sound and a text each."""

    def make(**texts):
        for name, text in texts.items():
            write_wav(tmp_path / "rec" / f"{name}.wav")
            (tmp_path / "rec" / f"{name}.txt").write_text(text, encoding="utf-8")
        return tmp_path / "rec"

    return make


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
    assert f"warning: all: kept 7 with problems ({kinds})\n" in told.err
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
    assert "  empty_text: 5 (no text, or white space alone)\n" in told
    assert told.count("it has no text") == 2
    assert "    and 3 more, which the report lists\n" in told
    report = json.loads((tmp_path / "out/rec.report.json").read_text(encoding="utf-8"))
    assert len(report["problems"]) == 5
    assert run("folder", source, "--out", tmp_path / "out", "--show", 0) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "  empty_text: 5 (no text, or white space alone)"
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


@pytest.mark.skipif(
    not RECORDINGS.is_dir(), reason="Debian's pocketsphinx-testdata is not installed"
)
def test_ten_human_recordings(tmp_path):
    source = tmp_path / "human"
    source.mkdir()
    for listing in ("cards/cards.transcription", "librivox/transcription"):
        lines = (RECORDINGS / listing).read_text(encoding="utf-8")
        for text, name in re.findall(r"<s>\s*(.*?)\s*</s>\s*\((.*)\)", lines):
            wav = RECORDINGS / Path(listing).parent / f"{name}.wav"
            (source / wav.name).symlink_to(wav)
            (source / f"{name}.txt").write_text(text + "\n", encoding="utf-8")
    assert run("folder", source, "--out", tmp_path / "out") == 0
    found = load_manifest(tmp_path / "out/human.jsonl")
    assert len(found) == 10
    assert (found[0].text, found[0].duration) == ("ten of clubs", 1.095375)


def test_aishell_becomes_train_valid_and_test(tmp_path):
    root = tmp_path / "data_aishell"
    for part, name in [("train", "S0002W1"), ("dev", "S0724W1"), ("test", "S0764W1")]:
        write_wav(root / "wav" / part / name[:5] / f"{name}.wav")
    (root / "transcript").mkdir()
    lines = "S0002W1 而 对 楼市\nS0724W1 一\nS0764W1 二 三\n"
    (root / "transcript/aishell_transcript_v0.8.txt").write_text(lines, encoding="utf-8")
    assert run("aishell", tmp_path, "--out", tmp_path / "out") == 0
    sets = {name: load_manifest(tmp_path / f"out/{name}.jsonl") for name in ("train", "valid")}
    assert [(u.text, u.speaker) for u in sets["train"]] == [("而对楼市", "S0002")]
    assert [(u.text, u.speaker) for u in sets["valid"]] == [("一", "S0724")]
    assert run("aishell", tmp_path, "--out", tmp_path / "kept", "--spaces", "keep") == 0
    assert load_manifest(tmp_path / "kept/test.jsonl")[0].text == "二 三"


def test_tables_and_kaldi_directories_from_the_command_line(tmp_path):
    wav = write_wav(tmp_path / "wav/a.wav", 2.0)
    tables = {
        "m.csv": ("csv", "path,text,note\nwav/a.wav,go,say\n", []),
        "m.psv": ("csv", "wav/a.wav|go|say\n", ["--delimiter", "|", "--columns", "path,text,note"]),
        "m.tsv": ("tsv", "path\ttext\tnote\nwav/a.wav\tgo\tsay\n", []),
    }
    for name, (kind, content, options) in tables.items():
        (tmp_path / name).write_text(content)
        for field, expected in (("text", "go"), ("note", "say")):
            chosen = ["--out", tmp_path / kind, "--text-field", field, *options]
            assert run(kind, tmp_path / name, *chosen) == 0
            found = load_manifest(tmp_path / kind / "m.jsonl")
            assert found == [Utterance("wav/a", wav, expected, 2.0)]
    for name, content in {
        "wav.scp": "r wav/a.wav\n",
        "segments": "u1 r 0.5 1\nu2 r 1 -1\n",
        "text": "u1 go\nu2 on\n",
        "text.fr": "u1 va\nu2 y\n",
    }.items():
        (tmp_path / "kaldi").mkdir(exist_ok=True)
        (tmp_path / "kaldi" / name).write_text(content)
    options = ["--out", tmp_path / "out", "--audio-root", tmp_path, "--text-field", "text.fr"]
    assert run("kaldi", tmp_path / "kaldi", *options) == 0
    assert load_manifest(tmp_path / "out/kaldi.jsonl") == [
        Utterance("u1", wav, "va", 0.5, offset=0.5),
        Utterance("u2", wav, "y", 1.0, offset=1.0),
    ]


def test_times_stay_with_the_text_they_are_of(tmp_path):
    write_wav(tmp_path / "a.wav")
    times = (0.0, 250.0, 500.0)
    utterance = Utterance("a", tmp_path / "a.wav", "二 号", 1.0, None, times)
    write_manifest(tmp_path / "m.jsonl", [utterance])
    assert run("jsonl", tmp_path / "m.jsonl", "--out", tmp_path / "out") == 0
    assert load_manifest(tmp_path / "out/m.jsonl") == [utterance]
    options = ["--out", tmp_path / "out", "--spaces", "none"]
    assert run("jsonl", tmp_path / "m.jsonl", *options) == 0
    assert load_manifest(tmp_path / "out/m.jsonl")[0].token_start_ms is None


def test_the_tokenizer_of_a_checkpoint(folder, tmp_path, capsys):
    import torch

    from asr_ascend.checkpoint import KEY, describe

    tokenizer = Tokenizer.train(["二号 主变"], blank=0)
    torch.save({KEY: describe(tokenizer, {})}, tmp_path / "last.ckpt")
    source = folder(a="二号 主变", b="主编")
    options = ["folder", source, "--out", tmp_path / "out"]
    assert run(*options, "--tokenizer", tmp_path / "last.ckpt") == 1
    assert "b.txt): the tokenizer doesn't know '编'\n" in capsys.readouterr().out
    (tmp_path / "other.ckpt").write_bytes(b"x")
    for name, message in {
        "no.ckpt": f"The tokenizer {tmp_path / 'no.ckpt'} is not a file.",
        "other.ckpt": f"{tmp_path / 'other.ckpt'} is not a checkpoint of asr_ascend.",
        "rec/a.txt": f"{source / 'a.txt'} is neither a checkpoint (.ckpt) nor a sentencepiece "
        "model.",
    }.items():
        assert run(*options, "--tokenizer", tmp_path / name) == 2
        assert capsys.readouterr().err == f"error: {message}\n"


def test_held_out_sets(folder, tmp_path, capsys):
    source = folder(**{f"u{number}": f"第{number % 3}句" for number in range(24)})
    out = tmp_path / "out"
    options = [
        "folder",
        source,
        "--out",
        out,
        "--name",
        "train",
        "--hold-out",
        "valid=0.25,test=0.2",
    ]
    assert run(*options) == 0
    sets = {
        n: {u.id for u in load_manifest(out / f"{n}.jsonl")} for n in ("train", "valid", "test")
    }
    assert sum(map(len, sets.values())) == len(set.union(*sets.values())) == 24
    assert all(sets.values())
    report = json.loads((out / "train.report.json").read_text(encoding="utf-8"))
    assert report["written"] == {f"{name}.jsonl": len(ids) for name, ids in sets.items()}
    capsys.readouterr()
    assert run(*options, "--hold-out-by", "speaker") == 2
    error = "error: Utterance 'u0' has no speaker to hold out by.\n"
    assert error in capsys.readouterr().err


def test_hold_out_shares_stay_and_keep_together(tmp_path):
    many = [Utterance(f"u{n}", tmp_path, f"t{n % 40}", 1.0, f"s{n % 7}") for n in range(4000)]
    sets = hold_out(many, {"valid": 0.1, "test": 0.05}, "train")
    shares = {name: len(chosen) / 4000 for name, chosen in sets.items()}
    assert shares == {
        "train": pytest.approx(0.85, abs=0.02),
        "valid": pytest.approx(0.1, abs=0.02),
        "test": pytest.approx(0.05, abs=0.02),
    }
    few = hold_out(many[::2], {"valid": 0.1, "test": 0.05}, "train")
    assert {name: set(chosen) for name, chosen in few.items()} == {
        name: set(chosen) & set(many[::2]) for name, chosen in sets.items()
    }
    for key in ("text", "speaker"):
        by_key = hold_out(many, {"valid": 0.4}, "train", key)
        values = {name: {getattr(u, key) for u in chosen} for name, chosen in by_key.items()}
        assert values["valid"] and values["train"]
        assert not values["valid"] & values["train"]


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"valid": 1.0}, "The share of 'valid' must be in (0, 1), but is 1."),
        ({"a": 0.5, "b": 0.5}, "The shares must be below 1 together, but are 1."),
        ({"train": 0.5}, "'train' is the set that gets the rest, and can't be held out as well."),
    ],
)
def test_shares_that_do_not_fit(shares, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        hold_out([], shares, "train")


def test_requests_that_do_not_fit_the_source(folder, tmp_path, capsys):
    source = folder(a="x", b="y")
    lists = tmp_path / "lists"
    lists.mkdir()
    for name in ("one", "two"):
        write_manifest(lists / f"{name}.jsonl", [Utterance("a", source / "a.wav", "x", 1.0)])
    out = ["--out", tmp_path / "out"]
    for arguments, message in [
        (["jsonl", lists, *out, "--name", "m"], "--name needs a source of one set, but there are "
         "one, two."),
        (["jsonl", lists, *out, "--hold-out", "v=0.1"], "--hold-out needs a source of one set, "
         "but there are one, two."),
        (["jsonl", lists, "--out", lists], f"{lists / 'one.jsonl'} is the source itself; choose "
         "another --out or --name."),
        (["jsonl", lists / "one.jsonl", "--out", lists], f"{lists / 'one.jsonl'} is the source "
         "itself; choose another --out or --name."),
        (["folder", source, *out, "--hold-out", "v=0.0001"], "`v` would get no utterance of 2 "
         "without problems."),
    ]:  # fmt: skip
        assert run(*arguments) == 2
        assert capsys.readouterr().err.endswith(f"error: {message}\n")
    assert not list((tmp_path / "out").glob("*.jsonl"))
    assert len(load_manifest(lists / "one.jsonl")) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ignore", "stero"], "argument --ignore: kinds are missing, unreadable, truncated, "),
        (["--hold-out", "valid"], "argument --hold-out: it must be NAME=SHARE, but is 'valid'"),
        (["--workers", "0"], "argument --workers: it must be a whole number above 0, but is '0'"),
    ],
)
def test_options_that_are_wrong(tmp_path, capsys, arguments, message):
    with pytest.raises(SystemExit) as caught:
        run("folder", tmp_path, "--out", tmp_path, *arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["folder", "aishell", "kaldi", "lhotse", "csv", "tsv", "jsonl"])
def test_help_tells_the_source_and_every_kind_of_problem(capsys, kind):
    with pytest.raises(SystemExit) as caught:
        run(kind, "--help")
    told = capsys.readouterr().out
    assert caught.value.code == 0
    assert "SOURCE is " in told
    assert all(name in told for name in [*KINDS, "no_transcript", "sample_rate"])


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
    assert capsys.readouterr().err.endswith("error: [Errno 28] No space left on device\n")
    assert (tmp_path / "out/rec.jsonl").read_bytes() == before
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [".inspected", "rec.jsonl", "rec.report.json"]
    shutil.rmtree(tmp_path / "out")
