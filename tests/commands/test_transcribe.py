"""Transcription of files, folders and standard input by a tiny model."""

import io
import json

import numpy as np
import pytest
import soundfile
import torch

from asr_ascend import recognizer
from asr_ascend.data.audio import StreamResampler, resample
from tests.support.odd_audio import with_field
from tests.support.tiny_runs import TEXTS, run, tone_utterance


def pcm(wave: np.ndarray) -> bytes:
    return (wave * 32767).astype("<i2").tobytes()


def transcribe(tiny_run, *arguments: str, stdin: bytes = b""):
    checkpoint = f"checkpoint={tiny_run.checkpoint}"
    return run(
        "transcribe", checkpoint, "num_threads=1", *arguments, folder=tiny_run.folder, stdin=stdin
    )


def test_a_file_gives_its_text(tiny_run):
    done = transcribe(tiny_run, "wav=corpus/3.wav")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{TEXTS[3]}\n"


def test_json_has_the_time_of_every_token(tiny_run):
    done = transcribe(tiny_run, "wav=corpus/0.wav", "format=json")
    record = json.loads(done.stdout)
    assert record["audio_filepath"] == "corpus/0.wav"
    assert record["text"] == TEXTS[0]
    assert record["duration"] == pytest.approx(1.2)
    assert [token["token"] for token in record["tokens"]] == list(TEXTS[0])
    for key in ("end_ms", "emitted_ms"):
        ends = [token[key] for token in record["tokens"]]
        assert ends == sorted(ends)
        for end, onset in zip(ends, (120, 480, 840), strict=True):
            assert onset < end < onset + 600
            assert (end - 85) % 40 == 0


def test_text_with_times_has_a_line_for_every_token(tiny_run):
    record = json.loads(transcribe(tiny_run, "wav=corpus/0.wav", "format=json").stdout)
    done = transcribe(tiny_run, "wav=corpus/0.wav", "times=true")
    seconds = [f"{token['end_ms'] / 1000:.3f}" for token in record["tokens"]]
    lines = [f"\t{time}\t{token}" for time, token in zip(seconds, TEXTS[0], strict=True)]
    assert done.stdout.splitlines() == [TEXTS[0], *lines]
    streamed = transcribe(tiny_run, "wav=-", "times=true", stdin=pcm(tone_utterance(TEXTS[4], 4)))
    assert streamed.stdout.splitlines()[0] == TEXTS[4]
    assert [line.split("\t")[2] for line in streamed.stdout.splitlines()[1:]] == list(TEXTS[4])


def test_a_folder_survives_an_unreadable_file(tiny_run, tmp_path):
    for number in (1, 2):
        wave = tone_utterance(TEXTS[number], seed=number)
        soundfile.write(tmp_path / f"{number}, ok.wav", wave, 16000)
    (tmp_path / "0.wav").write_bytes(b"not audio")
    (tmp_path / "notes.txt").write_text("not audio either")
    done = transcribe(tiny_run, f"wav={tmp_path}")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"{tmp_path}/1, ok.wav\t{TEXTS[1]}",
        f"{tmp_path}/2, ok.wav\t{TEXTS[2]}",
    ]
    errors = done.stderr.splitlines()
    assert len(errors) == 3
    assert errors[0] == "Left out 1 file that is not audio by the ending: .txt (1)."
    assert errors[1].startswith(f"Error: {tmp_path}/0.wav cannot be read as audio: ")
    assert errors[2] == "1 of 3 files could not be read."


def container(number: int, form: str, subtype: str | None = None, rate_hz: int = 16000) -> bytes:
    stream = io.BytesIO()
    wave = resample(torch.from_numpy(tone_utterance(TEXTS[number], number)), 16000, rate_hz)
    soundfile.write(stream, wave.numpy(), rate_hz, format=form, subtype=subtype)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("form", "subtype"),
    [
        ("WAV", "PCM_16"),
        ("WAV", "PCM_24"),
        ("WAV", "ULAW"),
        ("WAVEX", "FLOAT"),
        ("WAV", "MS_ADPCM"),
        ("MP3", None),
        ("FLAC", None),
        ("OGG", None),
        ("AU", None),
    ],
)
def test_standard_input_is_recognised_for_what_it_is(tiny_run, tmp_path, form, subtype):
    content = container(3, form, subtype, 48000)
    (tmp_path / "file").write_bytes(content)
    file = json.loads(transcribe(tiny_run, f"wav={tmp_path / 'file'}", "format=json").stdout)
    done = transcribe(tiny_run, "wav=-", "format=json", stdin=content)
    assert (done.returncode, done.stderr) == (0, "")
    record = json.loads(done.stdout)
    assert record["text"] == file["text"]
    if subtype not in ("ULAW", "MS_ADPCM"):  # the noise of which the tiny model has never heard
        assert record["text"] == TEXTS[3]
    assert record["duration"] == pytest.approx(file["duration"], abs=1e-3)


def test_a_wav_on_standard_input_whose_length_its_writer_could_not_know(tiny_run):
    for size in (0, 0x7FFFFFFF, 0xFFFFFFFF):
        content = with_field(container(3, "WAV", "PCM_16"), 40, size)
        done = transcribe(tiny_run, "wav=-", stdin=content)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{TEXTS[3]}\n", "")
    done = transcribe(tiny_run, "wav=-", stdin=container(3, "WAV", "PCM_16") + b"LIST" + bytes(400))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{TEXTS[3]}\n", "")


def test_what_is_missing_is_said_and_gives_status_1(tiny_run, tmp_path):
    content = container(3, "WAV", "PCM_16")
    cut = content[: len(content) - 16000]
    (tmp_path / "cut.wav").write_bytes(cut)
    seconds = (len(content) - 44) / 32000
    sentence = f"its header states {seconds:.2f} s, but it has {seconds - 0.5:.2f} s."
    done = transcribe(tiny_run, f"wav={tmp_path / 'cut.wav'}")
    assert (done.returncode, done.stderr) == (1, f"Warning: {tmp_path}/cut.wav: {sentence}\n")
    assert TEXTS[3].startswith(done.stdout.strip())
    done = transcribe(tiny_run, "wav=-", stdin=cut)
    assert (done.returncode, done.stderr) == (1, f"Warning: standard input: {sentence}\n")
    done = transcribe(tiny_run, f"wav={tmp_path}")
    assert done.returncode == 1
    assert done.stderr.splitlines()[1] == "1 of 1 files could be read only in part."


def test_rates_on_standard_input_are_bounded(tiny_run):
    content = with_field(container(3, "WAV", "PCM_16"), 24, 7)
    done = transcribe(tiny_run, "wav=-", stdin=content)
    assert done.returncode == 2
    assert done.stderr == (
        "Error: standard input cannot be read as audio: its sampling rate must be in "
        "[4000, 384000] Hz, but is 7 Hz\n"
    )


def test_full_context_beyond_memory_is_refused_and_loses_no_other_file(
    tiny_run, tmp_path, monkeypatch
):
    soundfile.write(tmp_path / "a.wav", np.zeros(16000 * 60), 16000)
    soundfile.write(tmp_path / "b.wav", tone_utterance(TEXTS[2], seed=2), 16000)
    monkeypatch.setattr(recognizer, "available_bytes", lambda: 20_000_000)
    done = transcribe(tiny_run, f"wav={tmp_path}", "chunk_ms=full")
    assert done.returncode == 1
    assert done.stdout == f"{tmp_path}/b.wav\t{TEXTS[2]}\n"
    # 2 heads: 28 bytes for each pair of frames; 845 frames are the first to take more.
    assert done.stderr.splitlines() == [
        f"Error: {tmp_path}/a.wav: full context over 34 s or more takes 0.0 GB of memory, but 0.0 "
        "GB are free; choose chunks, chunk_ms=320 for one.",
        "1 of 2 files could not be read.",
    ]
    done = transcribe(tiny_run, f"wav={tmp_path / 'a.wav'}", "chunk_ms=full")
    assert done.returncode == 2
    assert transcribe(tiny_run, f"wav={tmp_path / 'a.wav'}").returncode == 0


def test_standard_input_is_decoded_as_a_stream(tiny_run):
    wave = tone_utterance(TEXTS[4], seed=4)
    done = transcribe(tiny_run, "wav=-", stdin=pcm(wave))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{TEXTS[4]}\n"


def test_standard_input_at_another_rate(tiny_run):
    wave = resample(torch.from_numpy(tone_utterance(TEXTS[5], seed=5)), 16000, 22050)
    arguments = ("wav=-", "sample_rate_hz=22050", "format=json")
    done = transcribe(tiny_run, *arguments, stdin=pcm(wave.numpy()))
    record = json.loads(done.stdout)
    assert (record["audio_filepath"], record["text"]) == ("-", TEXTS[5])
    assert record["duration"] == pytest.approx(len(wave) / 22050, abs=1e-3)


def test_silence_and_no_audio_at_all_give_empty_lines(tiny_run, tmp_path):
    soundfile.write(tmp_path / "none.wav", np.zeros(0), 16000)
    done = transcribe(tiny_run, f"wav={tmp_path / 'none.wav'}")
    assert (done.returncode, done.stdout) == (0, "\n")
    done = transcribe(tiny_run, "wav=-", stdin=b"")
    assert (done.returncode, done.stdout) == (0, "\n")


@pytest.mark.parametrize(
    ("arguments", "stdin", "sentence"),
    [
        (["wav=no.wav"], b"", "no.wav cannot be read as audio: there is no such file"),
        (["wav=outputs"], b"", "`wav` must be or hold audio files, but outputs holds none."),
        (["wav=-"], b"odd", "The samples on stdin must be 16 bits each, but end in half of one."),
    ],
)
def test_bad_input_exits_2_with_one_sentence(tiny_run, arguments, stdin, sentence):
    done = transcribe(tiny_run, *arguments, stdin=stdin)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"Error: {sentence}"


@pytest.mark.parametrize("from_hz", [8000, 11025, 22050, 44100, 48000, 16000])
def test_resampling_a_stream_equals_resampling_the_whole(from_hz):
    draws = torch.Generator().manual_seed(from_hz)
    wave = torch.randn(from_hz + 137, generator=draws)
    whole = resample(wave, from_hz, 16000)
    for block in (1, 100, 1777) if from_hz == 8000 else (999, from_hz // 10):
        stream = StreamResampler(from_hz, 16000)
        pieces = [stream.push(piece) for piece in wave.split(block)]
        pieces.append(stream.push(torch.zeros(0), final=True))
        joined = torch.cat(pieces)
        assert joined.shape == whole.shape
        torch.testing.assert_close(joined, whole, rtol=0, atol=1e-5)


def test_a_picture_of_every_alignment(tiny_run, tmp_path):
    soundfile.write(tmp_path / "none.wav", np.zeros(0), 16000)
    soundfile.write(tmp_path / "some.wav", tone_utterance(TEXTS[1], seed=1), 16000)
    done = transcribe(tiny_run, f"wav={tmp_path}", f"plot_dir={tmp_path / 'pictures'}")
    assert done.returncode == 0
    assert done.stderr == "No picture: none has no tokens to draw.\n"
    assert [path.name for path in (tmp_path / "pictures").iterdir()] == ["some.png"]
    assert (tmp_path / "pictures" / "some.png").read_bytes().startswith(b"\x89PNG")
