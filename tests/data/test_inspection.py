"""What is said of an audio file: each fault alone, spans, and no fault in sound files."""

import numpy as np
import pytest
import soundfile

from asr_ascend.data.importing.inspection import AudioFacts, inspect_audio
from tests.support.speech_like import babble, patch_wav, write_wav

CONTAINERS = [
    ("wav", "WAV", "PCM_16"),
    ("wav", "WAV", "PCM_24"),
    ("wav", "WAV", "FLOAT"),
    ("wav", "WAVEX", "PCM_16"),
    ("wav", "WAVEX", "FLOAT"),
    ("flac", "FLAC", "PCM_16"),
    ("flac", "FLAC", "PCM_24"),
    ("ogg", "OGG", "VORBIS"),
    ("opus", "OGG", "OPUS"),
]


def faults(path, offset=None, duration=None):
    return list(inspect_audio(path, offset, duration).faults)


@pytest.mark.parametrize("rate_hz", [8000, 16000, 44100, 48000])
@pytest.mark.parametrize(("suffix", "form", "subtype"), CONTAINERS)
def test_sound_files_have_no_fault(tmp_path, rate_hz, suffix, form, subtype):
    if subtype == "OPUS" and rate_hz == 44100:
        rate_hz = 24000  # Opus knows no 44.1 kHz
    path = write_wav(tmp_path / f"x.{suffix}", 1.5, rate_hz, format=form, subtype=subtype)
    found = inspect_audio(path, None, 1.5)
    assert found == AudioFacts(1.5, rate_hz, f"{form} {subtype}", ())


def test_missing_empty_and_foreign_files(tmp_path):
    (tmp_path / "empty.wav").write_bytes(b"")
    (tmp_path / "text.wav").write_text("not audio at all")
    soundfile.write(tmp_path / "nan.wav", [0.1, np.nan] * 800, 16000, subtype="FLOAT")
    assert faults(tmp_path / "none.wav") == [("missing", "there is no such file")]
    assert faults(tmp_path) == [("missing", "there is no such file")]
    assert faults(tmp_path / "empty.wav") == [("unreadable", "the file is empty")]
    assert faults(tmp_path / "text.wav") == [("unreadable", "Format not recognised")]
    assert faults(tmp_path / "nan.wav") == [("unreadable", "it holds NaN or infinity")]
    assert not inspect_audio(tmp_path / "text.wav", None, None).readable()


@pytest.mark.parametrize(
    ("suffix", "form", "subtype", "detail"),
    [
        ("wav", "WAV", "PCM_16", "its header states 3.00 s, but it has 2.00 s"),
        ("wav", "WAV", "PCM_24", "its header states 3.00 s, but it has 2.00 s"),
        ("wav", "WAVEX", "PCM_16", "its header states 3.00 s, but it has 2.00 s"),
        ("wav", "WAV", "FLOAT", "its header states 3.00 s, but it has 2.00 s"),
        ("flac", "FLAC", "PCM_16", None),
        ("ogg", "OGG", "VORBIS", "its last Ogg page is cut off"),
        ("opus", "OGG", "OPUS", "its last Ogg page is cut off"),
    ],
)
def test_truncated_files(tmp_path, suffix, form, subtype, detail):
    path = write_wav(tmp_path / f"x.{suffix}", 3, format=form, subtype=subtype)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    found = faults(path, None, 3.0)
    assert [kind for kind, _ in found] == ["truncated"]
    if detail is not None:
        assert found[0][1] == detail
    else:
        assert found[0][1] == "3.00 s are stated, but 1.78 s come (flac decoder lost sync)"


def test_a_size_that_a_pipe_could_not_know_is_no_fault(tmp_path):
    for value in (0xFFFFFFFF, 0x7FFFFFFF):
        path = write_wav(tmp_path / "x.wav")
        patch_wav(path, 40, value)
        assert faults(path) == []


def test_header_that_contradicts_itself(tmp_path):
    path = write_wav(tmp_path / "x.wav")
    patch_wav(path, 24, 8000)
    assert faults(path) == [
        (
            "sample_rate",
            "its header states 8000 Hz, but 32000 bytes a second, which is 16000 Hz",
        )
    ]
    # The same for a float file in the extensible format.
    path = write_wav(tmp_path / "y.wav", format="WAVEX", subtype="FLOAT")
    patch_wav(path, 24, 44100)
    assert faults(path)[0] == (
        "sample_rate",
        "its header states 44100 Hz, but 64000 bytes a second, which is 16000 Hz",
    )


@pytest.mark.parametrize("rate_hz", [16000, 44100, 48000])
def test_telephone_speech_at_a_higher_rate(tmp_path, rate_hz):
    wave = babble(2, rate_hz)
    spectrum = np.fft.rfft(wave)
    spectrum[np.fft.rfftfreq(len(wave), 1 / rate_hz) > 4000] = 0
    soundfile.write(tmp_path / "x.wav", np.fft.irfft(spectrum, len(wave)), rate_hz)
    detail = (
        f"it is sampled at {rate_hz} Hz, but holds nothing above 5200 Hz, as if recorded at a "
        "lower rate"
    )
    assert faults(tmp_path / "x.wav") == [("sample_rate", detail)]


@pytest.mark.parametrize(("weaker_db", "kinds"), [(35, []), (41, ["sample_rate"])])
def test_weak_high_frequencies_are_no_telephone(tmp_path, weaker_db, kinds):
    """The bands compared differ by 7 dB as it is; the limit is at 45 dB."""
    spectrum = np.fft.rfft(babble(2))
    spectrum[np.fft.rfftfreq(32000, 1 / 16000) > 4000] *= 10 ** (-weaker_db / 20)
    soundfile.write(tmp_path / "x.wav", np.fft.irfft(spectrum, 32000), 16000, "FLOAT")
    assert [kind for kind, _ in faults(tmp_path / "x.wav")] == kinds


def test_channels(tmp_path):
    wave = babble()
    soundfile.write(tmp_path / "two.wav", np.stack([wave, wave / 2], 1), 16000)
    soundfile.write(tmp_path / "opposite.wav", np.stack([wave, -wave], 1), 16000, "FLOAT")
    assert faults(tmp_path / "two.wav") == [("stereo", "it has 2 channels")]
    assert faults(tmp_path / "opposite.wav") == [
        ("stereo", "it has 2 channels that cancel each other"),
        ("silent", "its loudest 20 ms are at -inf dBFS"),
    ]


def test_silence_is_judged_by_the_loudest_20_ms(tmp_path):
    soundfile.write(tmp_path / "none.wav", np.zeros(0), 16000)
    soundfile.write(tmp_path / "quiet.wav", np.full(16000, 10 ** (-70 / 20)), 16000, "FLOAT")
    brief = np.zeros(16000)
    brief[3200:3520] = 0.002
    soundfile.write(tmp_path / "brief.wav", brief, 16000)
    assert faults(tmp_path / "none.wav") == [("silent", "it holds no samples")]
    assert faults(tmp_path / "quiet.wav") == [("silent", "its loudest 20 ms are at -70 dBFS")]
    assert faults(tmp_path / "brief.wav") == []


def test_clipping_is_flat_at_full_scale(tmp_path):
    wave = babble(2)
    flat = wave.copy()
    flat[5000:5032], flat[9000:9032] = 1.0, -1.0
    soundfile.write(tmp_path / "flat.wav", flat, 16000)
    soundfile.write(tmp_path / "flac.flac", np.stack([flat, wave], 1), 16000)
    assert faults(tmp_path / "flat.wav") == [
        ("clipped", "0.2% of its samples are flat at full scale")
    ]
    assert faults(tmp_path / "flac.flac") == [
        ("stereo", "it has 2 channels"),
        ("clipped", "0.1% of its samples are flat at full scale"),
    ]
    # Too few, pairs of samples, flats elsewhere and peaks beyond full scale are no clipping.
    few, pairs = wave.copy(), wave.copy()
    few[5000:5020] = 1.0
    pairs[5000:8000:10], pairs[5001:8001:10] = 1.0, 1.0
    for name, sound in [("few", few), ("pairs", pairs), ("half", flat / 2), ("loud", 4 * wave)]:
        soundfile.write(tmp_path / f"{name}.wav", sound, 16000, "FLOAT")
        assert faults(tmp_path / f"{name}.wav") == []


def test_a_stated_duration(tmp_path):
    path = write_wav(tmp_path / "x.wav", 2.0)
    assert faults(path, None, 2.04) == []
    assert faults(path, None, 1.9) == [("duration", "1.9 s are stated, but the file has 2 s")]
    assert inspect_audio(path, None, 1.9).seconds == 2.0


def test_spans(tmp_path):
    path = write_wav(tmp_path / "x.wav", 2.0)
    assert inspect_audio(path, 0.5, 1.0) == AudioFacts(1.0, 16000, "WAV PCM_16", ())
    assert inspect_audio(path, 0.5, None).seconds == 1.5
    assert faults(path, 0.5, 1.52) == []
    beyond = inspect_audio(path, 1.5, 1.0)
    assert beyond.seconds == 0.5
    assert beyond.faults == (
        ("duration", "its span from 1.5 s to 2.5 s goes beyond the file's end at 2 s"),
    )
    assert faults(path, 3.0, 1.0) == [
        ("duration", "its span from 3 s to 4 s goes beyond the file's end at 2 s")
    ]
    # What is before the place where a file was cut off is as good as ever.
    path.write_bytes(path.read_bytes()[:32044])
    assert faults(path, 0.2, 0.5) == []
    assert faults(path, 0.5, 1.0) == [("truncated", "its header states 2.00 s, but it has 1.00 s")]


def test_only_the_span_is_judged(tmp_path):
    wave = babble(3)
    wave[:16000] = 0
    soundfile.write(tmp_path / "x.wav", wave, 16000)
    assert faults(tmp_path / "x.wav", 0.0, 1.0) == [
        ("silent", "its loudest 20 ms are at -inf dBFS")
    ]
    assert faults(tmp_path / "x.wav", 1.0, 1.0) == []


def test_long_files_are_read_in_pieces(tmp_path):
    """25 s is more than two of them: a fault in the last must be seen."""
    wave = babble(25, 8000)
    wave[-1] = np.nan
    soundfile.write(tmp_path / "x.wav", wave, 8000, subtype="FLOAT")
    assert faults(tmp_path / "x.wav") == [("unreadable", "it holds NaN or infinity")]
    soundfile.write(tmp_path / "x.wav", babble(25, 8000), 8000)
    assert inspect_audio(tmp_path / "x.wav", None, 25.0) == AudioFacts(25.0, 8000, "WAV PCM_16", ())
