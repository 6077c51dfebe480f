"""The import command on each layout: texts, spans, times, and the tokenizer that must know them."""

import re
from pathlib import Path

import pytest

from asr_ascend.data.importing import command as importing
from asr_ascend.data.manifest import Utterance, load_manifest, write_manifest
from asr_ascend.data.tokenizer import Tokenizer
from tests.support.speech_like import write_wav

RECORDINGS = Path("/usr/share/pocketsphinx/test/data")


def run(*arguments):
    return importing.main([str(argument) for argument in arguments])


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

    from asr_ascend.checkpoints.checkpoint import KEY, describe

    tokenizer = Tokenizer.train(["二号 主变"], blank=0)
    contents = {KEY: describe(tokenizer, {}), "state_dict": {}, "global_step": 0}
    torch.save(contents, tmp_path / "last.ckpt")
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
        assert capsys.readouterr().err == f"Error: {message}\n"
