"""Other encodings, odd names, full disks and lost readers: what is done is never lost."""

import errno
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from asr_ascend.checkpoints import average
from asr_ascend.checkpoints.checkpoint import AtomicCheckpointIO
from tests.support.tiny_runs import TEXTS, TINY, command, run, write_corpus

ODD = os.fsdecode("主变".encode("gb18030"))  # as an archive from another system names it


def transcribe(tiny_run, *arguments, **options):
    return run(
        "transcribe", f"checkpoint={tiny_run.checkpoint}", *arguments, folder=Path.cwd(), **options
    )


def evaluate(tiny_run, *arguments, **options):
    settings = ("snr_db=[clean]", "num_threads=1", "full_context=false", "progress_bar=false")
    checkpoint = f"checkpoint={tiny_run.checkpoint}"
    return run("evaluate", checkpoint, *settings, *arguments, folder=Path.cwd(), **options)


@pytest.fixture
def recordings(tiny_run, tmp_path):
    """Three recordings; the one in the middle has a name that is not UTF-8."""
    folder = tmp_path / "recordings"
    folder.mkdir()
    try:
        for number, name in enumerate(("a", ODD, "\uffff")):
            shutil.copy(tiny_run.manifest.parent / f"{number}.wav", folder / f"{name}.wav")
    except OSError:
        pytest.skip("this file system has UTF-8 names only")
    return folder


@pytest.fixture
def full_disk(monkeypatch):
    """Makes files of some endings impossible to write."""

    def fill(*endings):
        write_bytes = Path.write_bytes

        def full(path, content):
            if any(f"{ending}." in f"{path.name}." for ending in endings):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write_bytes(path, content)

        monkeypatch.setattr(Path, "write_bytes", full)

    return fill


@pytest.mark.parametrize(
    ("encoding", "text"),
    [("gbk", TEXTS[0]), ("latin-1", TEXTS[0].encode("ascii", "backslashreplace").decode())],
)
def test_a_transcript_in_another_encoding(tiny_run, encoding, text):
    wav = f"wav={tiny_run.manifest.parent / '0.wav'}"
    done = transcribe(tiny_run, wav, "times=true", encoding=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n")[0] == text
    done = transcribe(tiny_run, wav, "format=json", encoding=encoding)
    assert json.loads(done.stdout)["text"] == TEXTS[0]


def test_names_that_are_not_utf8_lose_nothing(tiny_run, recordings, tmp_path):
    pictures = tmp_path / "pictures"
    done = transcribe(tiny_run, f"wav={recordings}", f"plot_dir={pictures}")
    assert (done.returncode, done.stderr) == (0, "")
    names = sorted(recordings.iterdir())
    escaped = [str(name).encode("utf-8", "backslashreplace").decode() for name in names]
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == escaped
    assert sorted(line.split("\t")[1] for line in done.stdout.splitlines()) == sorted(TEXTS[:3])
    assert len(list(pictures.iterdir())) == 3
    done = transcribe(tiny_run, f"wav={recordings}", "format=json")
    read = [json.loads(line)["audio_filepath"] for line in done.stdout.splitlines()]
    assert read == [str(name) for name in names]


def test_an_evaluation_in_another_encoding_writes_its_report(tiny_run, tmp_path):
    odd = tmp_path / ODD
    shutil.copytree(tiny_run.manifest.parent, odd)
    manifest = f"manifest={odd.joinpath('tones.jsonl').rename(odd / f'{ODD}.jsonl')}"
    out = tmp_path / "out"
    done = evaluate(tiny_run, manifest, f"out_dir={out}", encoding="latin-1")
    assert (done.returncode, done.stderr) == (0, "")
    summary = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert summary["cer"][0]["set"] == ODD
    assert "example.png" in summary["pictures"]
    assert "\\udcd6" in done.stdout  # the set's name, escaped
    assert (out / "report.md").read_text(encoding="utf-8").startswith("# Evaluation")
    refused = evaluate(tiny_run, manifest, f"out_dir={odd / 'out'}")
    told = str(odd / "out").encode("utf-8", "backslashreplace").decode()
    assert (refused.returncode, refused.stderr) == (
        2,
        f"Error: `out_dir` must be a folder, but the name of {told} is not UTF-8, which "
        "TensorBoard needs.\n",
    )


@pytest.mark.parametrize("name", ["report.json", "example.png", "example.wav", "report.md"])
def test_a_full_disk_takes_no_evaluation_away(tiny_run, tmp_path, full_disk, name):
    full_disk(name)
    done = evaluate(tiny_run, f"manifest={tiny_run.manifest}", f"out_dir={tmp_path}")
    sentence = f"Error: {tmp_path / name}: No space left on device.\n"
    assert (done.returncode, done.stderr) == (2, sentence)
    assert done.stdout.startswith("CER in % by SNR in dB (8 utterances, greedy)\n")
    assert not (tmp_path / name).exists()
    assert (tmp_path / "utterances.jsonl").is_file()


def test_a_full_disk_takes_no_transcript_away(tiny_run, recordings, tmp_path, full_disk):
    full_disk("a.png")
    pictures = tmp_path / "pictures"
    done = transcribe(tiny_run, f"wav={recordings}", f"plot_dir={pictures}")
    sentence = f"Error: {pictures / 'a.png'}: No space left on device.\n"
    assert (done.returncode, done.stderr) == (1, sentence)
    assert len(done.stdout.splitlines()) == 3
    assert len(list(pictures.iterdir())) == 2


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc")
@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("evaluate", ("checkpoint=none.ckpt", "out_dir=/proc/new")),
        ("transcribe", ("checkpoint=none.ckpt", "wav=none.wav", "plot_dir=/proc/new")),
        ("train", ("data.train_manifest=none.jsonl", "output_dir=/proc/new")),
    ],
)
def test_a_folder_that_takes_no_files_is_found_before_anything_is_loaded(
    tmp_path, module, arguments
):
    done = run(module, *arguments, folder=tmp_path)
    key = arguments[-1].split("=")[0]
    sentence = f"Error: `{key}` must be a folder, but nothing can be written to /proc: "
    assert done.returncode == 2
    assert done.stderr.startswith(sentence)
    assert len(done.stderr.splitlines()) == 1


def test_an_average_that_cannot_be_written(tiny_run, tmp_path, capsys, monkeypatch):
    checkpoint = str(tiny_run.checkpoint)
    assert average.main([checkpoint, "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"Error: --out must be a file, but {tmp_path} is a folder.\n"
    (tmp_path / "file").touch()
    assert average.main([checkpoint, "--out", str(tmp_path / "file" / "a.ckpt")]) == 2
    assert capsys.readouterr().err == (
        f"Error: --out must be a file in a folder, but {tmp_path / 'file'} is a file.\n"
    )

    def full(contents, stream):
        try:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            raise RuntimeError("[enforce fail at inline_container.cc:672]")  # noqa: B904

    monkeypatch.setattr("torch.save", full)
    assert average.main([checkpoint, "--out", str(tmp_path / "a.ckpt")]) == 2
    sentence = f"Error: {tmp_path / 'a.ckpt'}: No space left on device.\n"
    assert capsys.readouterr() == ("", sentence)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_checkpoint_on_a_full_disk_is_an_error_of_the_system(tmp_path):
    """torch.save hides it behind an error of its own."""
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with pytest.raises(OSError) as caught:
        AtomicCheckpointIO().save_checkpoint({"weights": list(range(100_000))}, Path("/dev/full"))
    assert caught.value.errno == errno.ENOSPC


def test_a_training_ends_in_a_sentence_where_the_disk_is_full(tmp_path, monkeypatch):
    write_corpus(tmp_path / "corpus")

    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("torch.save", full)
    arguments = ("data.train_manifest=corpus/tones.jsonl", "trainer.max_steps=2")
    done = run("train", *TINY, *arguments, folder=tmp_path)
    sentence = "Error: outputs/smoke/checkpoints/last.ckpt: No space left on device."
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, sentence)
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "outputs" / "smoke" / "checkpoints").iterdir()) == []


def test_the_reader_of_transcripts_may_go(tiny_run, tmp_path):
    for number in range(40):
        shutil.copy(tiny_run.manifest.parent / "0.wav", tmp_path / f"{number:02d}.wav")
    words = command("transcribe", f"checkpoint={tiny_run.checkpoint}", f"wav={tmp_path}")
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdout is not None
    assert process.stdout.readline() == f"{tmp_path / '00.wav'}\t{TEXTS[0]}\n"
    process.stdout.close()
    assert process.wait(timeout=300) == 141
    assert process.stderr is not None
    assert process.stderr.read() == ""
