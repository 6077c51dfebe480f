"""Pictures as files: whole, or not at all."""

import pytest

from asr_ascend.system.figures import picture


def draw(path):
    with picture(path, (2.0, 1.0), dpi=50) as figure:
        figure.add_subplot(title="油").plot([1, 2])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("SVG", b"<?xml")])
def test_a_picture_is_of_the_kind_that_its_name_says(tmp_path, suffix, start):
    draw(tmp_path / f"one.{suffix}")
    assert (tmp_path / f"one.{suffix}").read_bytes().startswith(start)


def test_a_failed_picture_leaves_the_old_one(tmp_path, monkeypatch):
    (tmp_path / "one.png").write_bytes(b"old")

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(OSError) as caught:
        draw(tmp_path / "one.png")
    assert caught.value.filename == str(tmp_path / "one.png")
    assert (tmp_path / "one.png").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["one.png"]
