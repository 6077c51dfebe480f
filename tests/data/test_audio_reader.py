"""All of what odd audio files hold, and a sentence on what they lack."""

import re
import warnings

import numpy as np
import pytest
import soundfile
import torch

from asr_ascend.data.audio import (
    AudioError,
    AudioReader,
    SampleRateError,
    StreamResampler,
    load_audio,
    read_audio,
    resample,
)
from asr_ascend.data.audio_files.finding import audio_endings, find_audio
from asr_ascend.data.audio_files.layout import recognise
from asr_ascend.data.importing.inspection import inspect_audio
from tests.support.odd_audio import (
    RATE_HZ,
    encoded,
    mp3_without_header,
    with_field,
    with_hole,
    write,
)
from tests.support.speech_like import babble, lay, write_wav

UNSEEKABLE = [
    ("wav", "WAV", "GSM610"),
    ("w64", "W64", "GSM610"),
    ("aiff", "AIFF", "GSM610"),
    ("aiff", "AIFF", "DWVW_16"),  # says that it can seek
    ("wav", "WAV", "G721_32"),
    ("wav", "WAV", "NMS_ADPCM_16"),
    ("au", "AU", "G721_32"),
    ("au", "AU", "G723_24"),
    ("au", "AU", "G723_40"),
]
SEEKABLE = [
    ("wav", "WAV", "IMA_ADPCM"),
    ("wav", "WAV", "MS_ADPCM"),
    ("wav", "WAV", "ULAW"),
    ("ogg", "OGG", "VORBIS"),
    ("opus", "OGG", "OPUS"),
    ("mp3", "MP3", "MPEG_LAYER_III"),
    ("caf", "CAF", "ALAC_16"),
    ("sph", "NIST", "PCM_16"),
    ("voc", "VOC", "PCM_16"),
]


@pytest.mark.parametrize(("suffix", "form", "subtype"), UNSEEKABLE + SEEKABLE)
def test_every_codec_is_read_whole_and_in_spans(tmp_path, suffix, form, subtype):
    wave = babble(2, 8000)
    path = tmp_path / f"x.{suffix}"
    soundfile.write(path, wave, 8000, format=form, subtype=subtype)
    recording = read_audio(path, 8000)
    assert (recording.warnings, recording.lost) == ((), False)
    assert 16000 <= len(recording.waveform) <= 16000 + 505  # whole blocks of a codec
    heard = torch.from_numpy(wave).float()
    found = torch.nn.functional.cosine_similarity(recording.waveform[:16000], heard, dim=0)
    assert found > 0.9
    span = read_audio(path, 8000, 0.5, 0.25)
    assert (span.warnings, span.lost) == ((), False)
    if subtype not in ("OPUS", "MPEG_LAYER_III"):  # which settle down after a seek
        assert torch.equal(span.waveform, recording.waveform[4000:6000])
    assert len(span.waveform) == 2000
    with AudioReader(path) as reader:
        blocks = list(reader.blocks(700))
    assert {len(block) for block in blocks[:-1]} == {700}
    assert np.array_equal(np.concatenate(blocks)[:, 0], recording.waveform.numpy())
    facts = inspect_audio(path, None, None)
    assert facts.seconds == len(recording.waveform) / 8000
    assert not [fault for fault in facts.faults if fault[0] != "clipped"]


def seconds_of(path):
    recording = read_audio(path)
    return len(recording.waveform) / RATE_HZ, list(recording.warnings), recording.lost


@pytest.mark.parametrize(
    ("form", "subtype"),
    [
        ("WAV", "PCM_16"),
        ("FLAC", "PCM_16"),
        ("OGG", "VORBIS"),
        ("OGG", "OPUS"),
        ("MP3", "MPEG_LAYER_III"),
    ],
)
def test_joined_files_are_read_to_the_end_of_the_last(tmp_path, form, subtype):
    one = encoded(1.0, form, subtype)
    path = write(tmp_path / "x", one + one + one)
    assert seconds_of(path) == (3.0, [], False)
    whole = read_audio(path).waveform
    assert torch.equal(whole[:16000], whole[16000:32000])
    assert len(load_audio(path, RATE_HZ, 1.5, 1.0)) == 16000
    with pytest.raises(AudioError, match=r"it ends at 3 s, before the offset of 4 s$"):
        load_audio(path, RATE_HZ, 4.0, 1.0)
    assert inspect_audio(path, None, 3.0).faults == ()


def test_joined_files_that_do_not_go_together_are_refused(tmp_path):
    write_wav(tmp_path / "a.wav", 1, 8000)
    joined = encoded(1.0) + (tmp_path / "a.wav").read_bytes()
    path = write(tmp_path / "x.wav", joined)
    reason = "it is joined of recordings at 16000 Hz with 1 channels and at 8000 Hz with 1"
    with pytest.raises(AudioError, match=f"{re.escape(reason)}$"):
        load_audio(path)


def test_an_mp3_of_variable_bit_rate_without_its_header_is_read_whole(tmp_path):
    path = write(tmp_path / "x.mp3", mp3_without_header(20))
    with soundfile.SoundFile(path) as file:
        assert file.frames < 0.9 * 20 * RATE_HZ or file.frames > 1.1 * 20 * RATE_HZ
    seconds, told, lost = seconds_of(path)
    assert 20.0 <= seconds < 20.2  # and what the encoder put around
    assert (told, lost) == ([], False)


def test_damage_within_an_mp3_is_stepped_over_and_told(tmp_path):
    whole = encoded(20.0, "MP3", "MPEG_LAYER_III")
    seconds, told, lost = seconds_of(write(tmp_path / "x.mp3", with_hole(whole, 0.5, 3000)))
    assert 17 < seconds < 20
    assert len(told) == 1
    assert re.fullmatch(r"\d+ of its bytes belong to no frame", told[0])
    assert lost
    kinds = [kind for kind, _ in inspect_audio(tmp_path / "x.mp3", None, None).faults]
    assert kinds[0] == "truncated"


@pytest.mark.parametrize(
    ("form", "subtype", "least"), [("FLAC", "PCM_16", 4.0), ("OGG", "VORBIS", 5.0)]
)
def test_damage_elsewhere_is_told(tmp_path, form, subtype, least):
    whole = encoded(10.0, form, subtype)
    seconds, told, lost = seconds_of(write(tmp_path / "x", with_hole(whole, 0.5, 3000)))
    assert least < seconds < 10
    assert len(told) == 1
    assert lost


def test_what_was_cut_off_is_told(tmp_path):
    for form in ("WAV", "WAVEX", "RF64", "AIFF", "AU", "CAF", "W64"):
        whole = encoded(2.0, form, "PCM_16")
        path = write(tmp_path / "x", whole[: len(whole) - 32000])
        seconds, told, lost = seconds_of(path)
        assert seconds == pytest.approx(1.0, abs=0.1), form  # CAF pads its header
        assert len(told) == 1, form
        assert re.fullmatch(r"its header states 2\.00 s, but it has [01]\.\d\d s", told[0]), form
        assert lost, form
        # What is before the place where a file was cut off is as good as ever.
        assert read_audio(path, RATE_HZ, 0.2, 0.5).warnings == (), form
    for form, words in (("OGG", "its last Ogg page is cut off"), ("MP3", "its header states ")):
        whole = encoded(4.0, form)
        seconds, told, lost = seconds_of(write(tmp_path / "x", whole[: len(whole) // 2]))
        assert 0.5 < seconds < 3, form
        assert [sentence.startswith(words) for sentence in told] == [True], form
        assert lost, form


def test_a_file_short_by_one_byte_is_told_in_samples(tmp_path):
    path = write(tmp_path / "x.wav", encoded(1.96)[:-1])
    sentence = "its header states 31360 samples, but it has 31359 samples"
    assert seconds_of(path) == (31359 / RATE_HZ, [sentence], True)
    assert ("truncated", sentence) in inspect_audio(path, None, None).faults


UNFINISHED = "its header states no sound, but 2.00 s follow; all of it is read"


@pytest.mark.parametrize(
    ("form", "place", "value", "told"),
    [
        ("WAV", 40, 0, UNFINISHED),
        ("AU", 8, 0, UNFINISHED),
        ("WAV", 40, 0xFFFFFFFF, None),
        ("WAV", 40, 0x7FFFFFFF, None),
        ("WAV", 40, 0x80000000, None),
        ("AU", 8, 0xFFFFFFFF, None),
        ("AU", 8, 0x7FFFFFFF, None),
        (
            "WAV",
            40,
            2_000_000_000,
            "its header states 2000000000 bytes, as a recorder writes before it knows, but 2.00 s "
            "are there; all of it is read",
        ),
    ],
)
def test_headers_that_a_recorder_did_not_finish(tmp_path, form, place, value, told):
    order = ">I" if form == "AU" else "<I"
    content = with_field(encoded(2.0, form, "PCM_16"), place, value, order)
    path = write(tmp_path / "x", content)
    assert seconds_of(path) == (2.0, [told] if told else [], False)
    expected = read_audio(write(tmp_path / "y", encoded(2.0, form, "PCM_16"))).waveform
    assert torch.equal(read_audio(path).waveform, expected)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load_audio(path)
    assert [str(warning.message) for warning in caught] == [f"{path}: {told}"] * bool(told)
    faults = inspect_audio(path, None, None).faults
    assert [fault for fault in faults if fault[0] == "truncated"] == (
        [("truncated", told)] if told else []
    )


def test_sound_that_no_header_counts_is_told(tmp_path):
    path = write(tmp_path / "x.wav", with_field(encoded(3.0), 40, 32000))
    sentence = "2.00 s follow on the sound that its header counts, and are not read"
    assert seconds_of(path) == (1.0, [sentence], True)
    # An empty recording with a comment behind, and chunks behind the sound, are sound.
    chunk = b"LIST" + (4).to_bytes(4, "little") + b"INFO"
    empty = with_field(encoded(1.0)[:44], 40, 0) + chunk
    assert seconds_of(write(tmp_path / "y.wav", empty)) == (0.0, [], False)
    assert seconds_of(write(tmp_path / "z.wav", encoded(1.0) + chunk)) == (1.0, [], False)


@pytest.mark.parametrize("rate_hz", [1, 7, 3999, 384001, 2_000_000_000])
def test_rates_that_no_recording_has_are_refused(tmp_path, rate_hz):
    path = write(tmp_path / "x.wav", with_field(encoded(1.0), 24, rate_hz))
    reason = f"its sampling rate must be in [4000, 384000] Hz, but is {rate_hz} Hz"
    with pytest.raises(SampleRateError) as caught:
        load_audio(path)
    assert caught.value.reason == reason
    facts = inspect_audio(path, None, None)
    assert facts.faults == (("sample_rate", reason),)
    assert facts.seconds == 0


@pytest.mark.parametrize("from_hz", [44101, 8001, 22254, 383999])
@pytest.mark.parametrize("to_hz", [16000, 8000])
def test_rates_without_a_common_divisor(from_hz, to_hz):
    """A tone stays what it is; in pieces as at once."""
    count = from_hz // 4
    wave = torch.sin(2 * torch.pi * 440 * torch.arange(count) / from_hz)
    out = resample(wave, from_hz, to_hz)
    assert len(out) == -(-count * to_hz // from_hz)
    expected = torch.sin(2 * torch.pi * 440 * torch.arange(len(out)) / to_hz)
    torch.testing.assert_close(out[100:-100], expected[100:-100], rtol=0, atol=3e-3)
    stream = StreamResampler(from_hz, to_hz)
    pieces = [stream.push(piece) for piece in wave.split(977)]
    joined = torch.cat([*pieces, stream.push(torch.zeros(0), final=True)])
    torch.testing.assert_close(joined, out, rtol=0, atol=1e-6)


@pytest.mark.parametrize("rates", [(44100, 16000), (8000, 16000), (48000, 16000), (16000, 11025)])
def test_taps_made_as_needed_are_torchaudios(monkeypatch, rates):
    wave = torch.randn(4000, generator=torch.Generator().manual_seed(0))
    expected = resample(wave, *rates)
    monkeypatch.setattr("asr_ascend.data.audio_files.resampling._MAX_TABLE", 0)
    torch.testing.assert_close(resample(wave, *rates), expected, rtol=0, atol=1e-4)


def test_endings_are_those_of_what_the_library_reads():
    endings = audio_endings()
    assert {".wav", ".flac", ".ogg", ".oga", ".mp3", ".aifc", ".au", ".w64", ".caf"} <= endings
    assert {".sph", ".snd", ".voc", ".rf64", ".wave", ".opus"} <= endings
    assert not {".raw", ".m4a", ".txt"} & endings


def test_find_audio_follows_links_and_counts_the_rest(tmp_path):
    root = lay(tmp_path / "rec", {"b.WAV": None, "sub/a.au": None, ".c.wav": None, "x.m4a": "m"})
    lay(tmp_path / "other", {"d.w64": None, "e.txt": "text", "f.m4a": "m"})
    (root / "there").symlink_to(tmp_path / "other")
    (root / "there2").symlink_to(root)
    found = find_audio(root)
    assert found.audio == [root / "b.WAV", root / "sub/a.au", root / "there/d.w64"]
    assert found.left_out() == (
        "Left out 3 files that are not audio by the ending: .m4a (2), .txt (1). Convert .m4a to "
        "wav or flac first, with ffmpeg for one."
    )


def test_kinds_are_recognised_by_their_first_bytes():
    for form, kind in (("WAV", "WAV"), ("RF64", "WAV"), ("FLAC", "FLAC"), ("OGG", "OGG")):
        assert recognise(encoded(0.1, form)[:16]) == kind
    for form in ("MP3", "AU", "AIFF", "W64", "CAF", "VOC", "NIST"):
        assert recognise(encoded(0.1, form)[:16]) == form
    draws = np.random.default_rng(0)
    for wave in (np.zeros(8), np.full(8, -1), draws.integers(-500, 500, 8)):
        assert recognise(wave.astype("<i2").tobytes()) is None
