"""Files that appear whole, whatever ends their writer."""

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from asr_ascend.system.atomic import replaced_file, write_json, write_json_lines, write_text


def full(*arguments):
    raise OSError(28, "No space left on device")


WRITERS = {
    "text": (lambda path: write_text(path, "a\n"), b"a\n"),
    "json": (lambda path: write_json(path, {"a": "é"}), '{\n "a": "é"\n}\n'.encode()),
    "lines": (lambda path: write_json_lines(path, [{"a": 1}, {}]), b'{"a": 1}\n{}\n'),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_is_written_whole(tmp_path, kind):
    write, expected = WRITERS[kind]
    path = tmp_path / "file"
    path.write_text("old")
    write(path)
    assert path.read_bytes() == expected
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("kind", WRITERS)
def test_a_failed_write_names_the_file_and_leaves_the_old_one(tmp_path, kind, monkeypatch):
    write, _ = WRITERS[kind]
    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError) as caught:
        write(path)
    assert (caught.value.errno, caught.value.filename) == (28, str(path))
    assert path.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("name", "error"),
    [("gone/file", FileNotFoundError), ("folder", IsADirectoryError)],
)
def test_a_place_that_takes_no_file_is_named(tmp_path, name, error):
    (tmp_path / "folder").mkdir()
    with pytest.raises(error) as caught:
        write_text(tmp_path / name, "a")
    assert caught.value.filename == str(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_an_error_about_another_file_keeps_its_name(tmp_path):
    with pytest.raises(FileNotFoundError) as caught, replaced_file(tmp_path / "file"):
        (tmp_path / "other").read_text()
    assert caught.value.filename == str(tmp_path / "other")


def test_the_longest_name_can_be_written(tmp_path):
    path = tmp_path / ("名" * 85)  # 255 bytes
    write_text(path, "a")
    assert path.read_text() == "a"


def test_a_name_that_is_no_utf8_comes_back_from_json(tmp_path):
    name = os.fsdecode(b"\xff\xe4.wav")
    write_json(tmp_path / "a.json", {"file": name})
    write_json_lines(tmp_path / "a.jsonl", [{"file": name}])
    for file in ("a.json", "a.jsonl"):
        assert json.loads((tmp_path / file).read_text(encoding="utf-8")) == {"file": name}


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write_text(pipe, "a")
    reader.join(10)
    assert read == ["a"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
