"""Paths that a user wrote."""

import argparse
import os
import stat
from pathlib import Path

import pytest

from asr_ascend.system.paths import folder_fault, path_argument, user_path


def test_home_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_path("~/a") == tmp_path / "a"
    assert user_path("a/~") == Path("a/~")


def test_a_user_that_is_not_there():
    with pytest.raises(FileNotFoundError) as caught:
        user_path("~no-such-user/a")
    assert caught.value.filename == "~no-such-user/a"
    assert "the home folder of ~no-such-user isn't known" in caught.value.strerror
    assert user_path("./~no-such-user/a") == Path("~no-such-user/a")


def test_nobody_has_a_home(monkeypatch):
    def unknown(uid):
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    with pytest.raises(FileNotFoundError) as caught:
        user_path("~/a")
    assert caught.value.filename == "~/a"


def test_an_option_that_is_empty_is_no_path():
    with pytest.raises(argparse.ArgumentTypeError, match="must be a path, but is empty"):
        path_argument("")


def test_a_folder_that_can_be_written_to_has_no_fault(tmp_path):
    assert folder_fault(tmp_path) is None
    assert folder_fault(tmp_path / "new" / "newer") is None
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("gone")
    assert folder_fault(tmp_path / "file") == f"{tmp_path / 'file'} is a file"
    assert folder_fault(tmp_path / "file" / "new") == f"{tmp_path / 'file'} is a file"
    assert folder_fault(tmp_path / "link" / "new") == f"{tmp_path / 'link'} is a file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_of_others(tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    assert folder_fault(tmp_path / "new") == (
        f"nothing can be written to {tmp_path}: Permission denied"
    )


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc")
def test_a_file_system_that_takes_no_files():
    told = folder_fault(Path("/proc/new"))
    assert told is not None
    assert told.startswith("nothing can be written to /proc: ")
