"""What each importer reads from its layout, and the sentence where it can't."""

import os
import re

import pytest

from asr_ascend.data.importing.aishell import read_aishell
from asr_ascend.data.importing.folder import read_folder
from asr_ascend.data.importing.kaldi import read_kaldi
from asr_ascend.data.importing.source import Entry, Problem, SourceError, adjust_spaces
from tests.support.speech_like import lay


def refused(call, message):
    with pytest.raises(SourceError, match=f"^{re.escape(message)}$"):
        call()


# Folder


def test_folder_pairs_recordings_with_texts(tmp_path):
    root = lay(
        tmp_path / "rec",
        {
            "b.wav": None,
            "b.txt": "\ufeff二号主变\r\n油温过高\n",
            "ann/a.FLAC": None,
            "ann/a.txt": " spaced  text \n",
            "ann/a.en.txt": "translated",
            "c.wav": None,
            "notes.txt": "of no recording",
            ".hidden.wav": None,
        },
    )
    (found,) = (sets := read_folder(root)).values()
    assert list(sets) == ["rec"]
    assert found.entries == [
        Entry("b", root / "b.wav", "二号主变 油温过高", str(root / "b.txt")),
        Entry("ann/a", root / "ann/a.FLAC", "spaced  text", str(root / "ann/a.txt")),
    ]
    detail = "there is no c.txt beside it"
    assert found.problems == [Problem("no_transcript", "c", str(root / "c.wav"), detail)]
    english = read_folder(root, text_field="en.txt", speaker_from_folder=True)["rec"]
    assert [(e.text, e.speaker) for e in english.entries] == [("translated", "ann")]
    assert [p.id for p in english.problems] == ["b", "c"]


def test_file_names_in_another_encoding(tmp_path):
    lay(tmp_path, {"a.wav": None, "a.txt": "x"})
    foreign = os.fsencode(tmp_path) + "/主变.wav".encode("gb18030")
    (tmp_path / "a.wav").rename(os.fsdecode(foreign))
    lay(tmp_path, {"a.wav": None})
    (found,) = read_folder(tmp_path).values()
    assert [entry.id for entry in found.entries] == ["a"]
    name = "".join(f"\\udc{byte:x}" for byte in "主变".encode("gb18030"))
    detail = "its file name is not UTF-8; rename the file"
    assert found.problems == [Problem("bad_line", name, name, detail)]


def test_folder_in_another_encoding(tmp_path):
    lay(tmp_path, {"a.wav": None})
    (tmp_path / "a.txt").write_bytes("主变".encode("gb18030"))
    refused(
        lambda: read_folder(tmp_path),
        f"{tmp_path / 'a.txt'} is not utf-8 text; name its encoding, for example "
        "--encoding gb18030.",
    )
    (found,) = read_folder(tmp_path, encoding="gb18030").values()
    assert found.entries[0].text == "主变"
    refused(
        lambda: read_folder(tmp_path, encoding="klingon"),
        "`encoding` must be known to Python, but is 'klingon'.",
    )


def test_one_text_in_another_encoding_is_a_problem_of_its_recording(tmp_path):
    lay(tmp_path, {"a.wav": None, "a.txt": "二号", "b.wav": None})
    (tmp_path / "b.txt").write_bytes("主变".encode("gb18030"))
    (found,) = read_folder(tmp_path).values()
    assert [entry.id for entry in found.entries] == ["a"]
    detail = "it is not utf-8 text; name its encoding, for example --encoding gb18030"
    assert found.problems == [Problem("bad_line", "b", str(tmp_path / "b.txt"), detail)]


def test_links_are_followed_but_never_round(tmp_path):
    root = lay(tmp_path / "rec", {"sub/a.wav": None, "sub/a.txt": "二号"})
    lay(tmp_path / "other", {"b.wav": None, "b.txt": "三号"})
    (root / "sub/up").symlink_to(root)
    (root / "here").symlink_to(".")
    (root / "there").symlink_to(tmp_path / "other")
    (found,) = read_folder(root).values()
    assert [entry.id for entry in found.entries] == ["sub/a", "there/b"]


def test_a_folder_that_cannot_be_read_is_a_problem(tmp_path, monkeypatch):
    root = lay(tmp_path, {"a.wav": None, "a.txt": "二号", "shut/b.wav": None})
    scandir = os.scandir

    def refusing(path):
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    (found,) = read_folder(root).values()
    assert [entry.id for entry in found.entries] == ["a"]
    detail = "the folder can't be read: Permission denied"
    assert found.problems == [Problem("bad_line", "", str(root / "shut"), detail)]


def test_folders_without_recordings_or_texts(tmp_path):
    refused(lambda: read_folder(tmp_path / "no"), f"{tmp_path / 'no'} is not a folder.")
    refused(
        lambda: read_folder(tmp_path),
        f"{tmp_path} holds no audio files.",
    )
    lay(tmp_path, {"a.m4a": "a", "b.M4A": "b", "c.docx": "c", "d.txt": "a text", "e": "e"})
    refused(
        lambda: read_folder(tmp_path),
        f"{tmp_path} holds no audio files. Left out 4 files that are not audio by the ending: "
        ".m4a (2), none (1), .docx (1). Convert .m4a to wav or flac first, with ffmpeg for one.",
    )
    lay(tmp_path, {"a.wav": None})
    refused(
        lambda: read_folder(tmp_path, text_field="lab"),
        f"{tmp_path} has no recording with a text: a.wav, for one, has no a.lab beside it.",
    )


# AISHELL-1


@pytest.fixture
def aishell(tmp_path):
    name = "BAC009S0{}W0{}"
    wavs = [("train", "002", "122"), ("train", "002", "123"), ("dev", "724", "121")]
    wavs += [("test", "764", "121"), ("test", "764", "122")]
    lines = [
        f"{name.format(s, w)} 而 对 楼市 {number}" for number, (_, s, w) in enumerate(wavs[:4])
    ]
    files = {"transcript/aishell_transcript_v0.8.txt": "\n".join(lines) + "\n"}
    for part, speaker, wav in wavs:
        files[f"wav/{part}/S0{speaker}/{name.format(speaker, wav)}.wav"] = None
    return lay(tmp_path / "data_aishell", files)


def test_aishell_sets_speakers_and_texts(aishell):
    sets = read_aishell(aishell)
    assert {name: [entry.id for entry in found.entries] for name, found in sets.items()} == {
        "train": ["BAC009S0002W0122", "BAC009S0002W0123"],
        "dev": ["BAC009S0724W0121"],
        "test": ["BAC009S0764W0121"],
    }
    assert sets["dev"].entries[0] == Entry(
        "BAC009S0724W0121",
        aishell / "wav/dev/S0724/BAC009S0724W0121.wav",
        "而 对 楼市 2",
        "aishell_transcript_v0.8.txt line 3",
        "S0724",
    )
    audio = aishell / "wav/test/S0764/BAC009S0764W0122.wav"
    detail = "aishell_transcript_v0.8.txt has no line for it"
    problem = Problem("no_transcript", "BAC009S0764W0122", str(audio), detail)
    assert sets["test"].problems == [problem]
    assert read_aishell(aishell.parent)["train"] == sets["train"]


def test_other_layouts_and_packed_archives(tmp_path):
    refused(
        lambda: read_aishell(tmp_path),
        f"{tmp_path} is not AISHELL-1: it has no transcript/aishell_transcript_v0.8.txt.",
    )
    lay(tmp_path, {"transcript/aishell_transcript_v0.8.txt": "a 一", "wav/S0002.tar.gz": "x"})
    refused(
        lambda: read_aishell(tmp_path),
        f"{tmp_path / 'wav'} holds no wav files in train, dev or test; S0002.tar.gz and its like "
        "must be unpacked first.",
    )


# Kaldi


def test_kaldi_without_segments(tmp_path):
    root = lay(
        tmp_path / "train",
        {
            "wav.scp": f"u2 {tmp_path}/b.wav\nu1 wav/a.wav \nu4 wav/d.wav\n",
            "text": "u1 二号 主变\nu2\tgo  on\nu3 no audio\nu5\n",
            "text.en": "u1 main transformer\n",
            "utt2spk": "u1 ann\nu2 bob\n",
            "wav/a.wav": None,
        },
    )
    (found,) = read_kaldi(root).values()
    assert found.entries == [
        Entry("u1", root / "wav/a.wav", "二号 主变", "text line 1", "ann"),
        Entry("u2", tmp_path / "b.wav", "go  on", "text line 2", "bob"),
    ]
    assert found.problems == [
        Problem("missing", "u3", "text line 3", "wav.scp has no line for it"),
        Problem("missing", "u5", "text line 4", "wav.scp has no line for it"),
        Problem("no_transcript", "u4", str(root / "wav/d.wav"), "text has no line for it"),
    ]
    (english,) = read_kaldi(root, text_field="text.en").values()
    assert [(e.id, e.text) for e in english.entries] == [("u1", "main transformer")]


def test_kaldi_with_segments(tmp_path):
    lay(
        tmp_path / "s5",
        {
            "data/train/wav.scp": "r1 audio/r1.wav\n",
            "data/train/segments": "u1 r1 0.5 1.75\nu2 r1 2 -1\nu3 r1 3 2\nu4 r9 0 1\nu5 r1 x 1\n"
            "u1 r1 0 9\n",
            "data/train/text": "u1 a\nu2 b\nu3 c\nu4 d\nu5 e\n",
            "data/dev/wav.scp": "r1 audio/r1.wav\n",
            "data/dev/text": "r1 whole\n",
            "audio/r1.wav": None,
        },
    )
    sets = read_kaldi(tmp_path / "s5/data")
    audio = tmp_path / "s5/audio/r1.wav"
    assert list(sets) == ["dev", "train"]
    assert sets["dev"].entries == [Entry("r1", audio, "whole", "text line 1")]
    assert sets["train"].entries == [
        Entry("u1", audio, "a", "text line 1", None, 0.5, 1.25),
        Entry("u2", audio, "b", "text line 2", None, 2.0, None),
    ]
    assert [(p.kind, p.id, p.where, p.detail) for p in sets["train"].problems] == [
        ("bad_line", "u3", "segments line 3", "its span from 3 s to 2 s is not one"),
        (
            *("bad_line", "u5", "segments line 5"),
            "it must be an id, a recording, a start and an end in seconds",
        ),
        ("duplicate_id", "u1", "segments line 6", "line 1 has the same id"),
        ("missing", "u4", "segments line 4", "wav.scp has no recording 'r9'"),
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "sph2pipe -f wav /c/a.sph |",
            "a command (sph2pipe -f wav /c/a.sph |), and commands are not run; write the "
            "recordings to files first and name those in wav.scp.",
        ),
        (
            "wav.1.ark:17",
            "a place in an archive (wav.1.ark:17); write the recordings to files first (wav-copy "
            "does it) and name those in wav.scp.",
        ),
    ],
)
def test_kaldi_commands_and_archives_are_refused(tmp_path, value, message):
    lay(tmp_path, {"wav.scp": f"u0 a.wav\nu1 {value}\n", "text": "u0 a\nu1 b\n"})
    start = f"{tmp_path / 'wav.scp'} line 2: recording 'u1' is "
    refused(lambda: read_kaldi(tmp_path), start + message)


def test_kaldi_commands_that_only_decode_a_file_are_read_as_the_file(tmp_path):
    commands = {
        "u1": "flac -c -d -s wav/a.flac |",
        "u2": "/usr/bin/flac -cd wav/b-1.flac|",
        "u3": "cat wav/主变.wav |",
    }
    scp = "".join(f"{name} {command}\n" for name, command in commands.items())
    lay(tmp_path, {"wav.scp": scp, "text": "u1 a\nu2 b\nu3 c\n", "wav/a.flac": None})
    (found,) = read_kaldi(tmp_path).values()
    paths = [entry.audio_path.relative_to(tmp_path).as_posix() for entry in found.entries]
    assert paths == ["wav/a.flac", "wav/b-1.flac", "wav/主变.wav"]


@pytest.mark.parametrize(
    "command",
    [
        "flac -s wav/a.flac |",
        "flac -c -d |",
        "flac -c -d --skip=9 a.flac |",
        "cat a.wav b.wav |",
        "cat $HOME/a.wav |",
        "cat a.flac | flac -c -d -s - |",
        "|",
    ],
)
def test_kaldi_commands_that_do_more_are_refused(tmp_path, command):
    lay(tmp_path, {"wav.scp": f"u1 {command}\n", "text": "u1 a\n"})
    refused(
        lambda: read_kaldi(tmp_path),
        f"{tmp_path / 'wav.scp'} line 1: recording 'u1' is a command ({command}), and commands are "
        "not run; write the recordings to files first and name those in wav.scp.",
    )


def test_kaldi_folders_that_lack_something(tmp_path):
    refused(
        lambda: read_kaldi(tmp_path),
        f"{tmp_path} is not a Kaldi data directory: it has no wav.scp.",
    )
    lay(tmp_path, {"wav.scp": "u1 a.wav\n"})
    refused(lambda: read_kaldi(tmp_path), f"{tmp_path} is not complete: it has no file text.")


@pytest.mark.parametrize(
    ("spaces", "expected"),
    [
        ("keep", "而 对 楼市 A股 GDP is 3 ，了\u3000解"),
        ("han", "而对楼市A股GDP is 3，了解"),
        ("none", "而对楼市A股GDPis3，了解"),
    ],
)
def test_spaces(spaces, expected):
    assert adjust_spaces(" 而 对 楼市 A股 GDP is 3 ，了\u3000解\n", spaces) == expected
