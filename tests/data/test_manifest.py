"""Manifests: what is read, every problem by line, writing in one step."""

import json

import pytest

from asr_ascend.data import manifest
from asr_ascend.data.manifest import ManifestError, Utterance, load_manifest, write_manifest


@pytest.fixture
def folder(tmp_path):
    for name in ("a.wav", "b.wav"):
        (tmp_path / name).write_bytes(b"")
    return tmp_path


def write_lines(folder, *records):
    path = folder / "m.jsonl"
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_values_relative_paths_and_defaults(folder):
    path = write_lines(
        folder,
        {"id": "1", "audio_filepath": "a.wav", "text": "二号", "duration": 1, "other": []},
        "",
        {
            "id": "2",
            "audio_filepath": str(folder / "b.wav"),
            "text": "油温",
            "duration": 0.5,
            "speaker": "m1",
            "token_start_ms": [0, 250.5],
        },
        {"id": "3", "audio_filepath": "a.wav", "text": "", "duration": 0, "speaker": None},
        {"id": "4", "audio_filepath": "a.wav", "text": "x", "duration": 2.5, "offset": 1},
        {"id": "5", "audio_filepath": "a.wav", "text": "x", "duration": 1, "offset": None},
    )
    assert load_manifest(path) == [
        Utterance("1", folder / "a.wav", "二号", 1.0),
        Utterance("2", folder / "b.wav", "油温", 0.5, "m1", (0.0, 250.5)),
        Utterance("3", folder / "a.wav", "", 0.0),
        Utterance("4", folder / "a.wav", "x", 2.5, offset=1.0),
        Utterance("5", folder / "a.wav", "x", 1.0),
    ]


def test_every_problem_is_listed_by_line(folder):
    good = {"id": "1", "audio_filepath": "a.wav", "text": "二号", "duration": 1.0}
    path = write_lines(
        folder,
        good,
        "{nonsense",
        "[1]",
        {"text": 3, "duration": "1"},
        {**good, "audio_filepath": "no.wav", "duration": -1},
        {**good, "id": "6", "duration": float("nan"), "token_start_ms": [0]},
        {**good, "id": "7", "token_start_ms": [5, 0], "speaker": 4},
        {**good, "id": "8", "token_start_ms": "x", "duration": True},
        {**good, "id": ""},
        {**good, "id": "10", "offset": -0.5},
        {**good, "id": "11", "offset": "0"},
    )
    with pytest.raises(ManifestError) as caught:
        load_manifest(path)
    assert caught.value.problems == [
        "line 2: it is not JSON (Expecting property name enclosed in double quotes at column 2)",
        "line 3: it must be a JSON object, but is a list",
        "line 4: `id` is missing",
        "line 4: `audio_filepath` is missing",
        "line 4: `text` must be a string, but is a number",
        "line 4: `duration` must be a number of seconds, but is a string",
        "line 5: `duration` must be finite and not negative, but is -1",
        "line 5: `audio_filepath` 'no.wav' is not a file",
        "line 5: `id` '1' is already used on line 1",
        "line 6: `duration` must be finite and not negative, but is nan",
        "line 6: `token_start_ms` must have one time per character of `text` (2), but has 1",
        "line 7: `speaker` must be a string, but is a number",
        "line 7: `token_start_ms` must be finite, not negative and in order",
        "line 8: `duration` must be a number of seconds, but is a boolean",
        "line 8: `token_start_ms` must be a list of numbers",
        "line 9: `id` must not be empty",
        "line 10: `offset` must be finite and not negative, but is -0.5",
        "line 11: `offset` must be a number of seconds, but is a string",
    ]
    assert str(caught.value).startswith(f"{path} has 18 problems:\n  line 2: it is not JSON")


def test_missing_and_empty_manifests(folder):
    with pytest.raises(ManifestError) as caught:
        load_manifest(folder / "none.jsonl")
    assert str(caught.value) == (
        f"{folder / 'none.jsonl'} has 1 problem:\n  it cannot be read: No such file or directory"
    )
    with pytest.raises(ManifestError) as caught:
        load_manifest(write_lines(folder, ""))
    assert caught.value.problems == ["it holds no utterance"]


def test_write_then_load(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "c.wav"
    elsewhere.write_bytes(b"")
    utterances = [
        Utterance("1", folder / "a.wav", "二号", 1.25, "m1", (0.0, 10.5)),
        Utterance("2", elsewhere, "go", 2.0, offset=0.75),
    ]
    write_manifest(folder / "out.jsonl", utterances)
    assert load_manifest(folder / "out.jsonl") == utterances
    first, second = (folder / "out.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(first)["audio_filepath"] == "a.wav"
    assert "二号" in first
    assert json.loads(second) == {
        "id": "2",
        "audio_filepath": str(elsewhere),
        "text": "go",
        "duration": 2.0,
        "offset": 0.75,
    }


def test_a_failed_write_leaves_the_old_manifest(folder, monkeypatch):
    path = folder / "out.jsonl"
    write_manifest(path, [Utterance("1", folder / "a.wav", "x", 1.0)])
    before = path.read_bytes()

    def fail(utterance, base):
        raise RuntimeError("full")

    monkeypatch.setattr(manifest, "_record", fail)
    with pytest.raises(RuntimeError, match=r"^full$"):
        write_manifest(path, [Utterance("2", folder / "b.wav", "y", 1.0)])
    assert path.read_bytes() == before
    assert sorted(item.name for item in folder.iterdir()) == ["a.wav", "b.wav", "out.jsonl"]
