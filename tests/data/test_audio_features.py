"""Audio of any rate and channel count; log-mel, streamed log-mel, CMVN."""

import math
import re

import numpy as np
import pytest
import soundfile
import torch
import torchaudio

from asr_ascend.data.audio import AudioError, load_audio, load_utterance
from asr_ascend.data.features import FeatureStatistics, FeatureStream, LogMel
from asr_ascend.data.manifest import Utterance


def tone(rate_hz, seconds=1.0, hz=440.0):
    return np.sin(2 * np.pi * hz * np.arange(round(seconds * rate_hz)) / rate_hz) * 0.5


@pytest.mark.parametrize("rate_hz", [8000, 16000, 44100, 48000])
@pytest.mark.parametrize(
    ("suffix", "subtype"), [("wav", "PCM_16"), ("wav", "FLOAT"), ("flac", "PCM_24")]
)
def test_any_rate_and_channels_give_the_same_tone(tmp_path, rate_hz, suffix, subtype):
    left = tone(rate_hz)
    path = tmp_path / f"x.{suffix}"
    # Channels 1.5 and 0.5 times the tone: their mean is the tone.
    soundfile.write(path, np.stack([1.5 * left, 0.5 * left], 1), rate_hz, subtype=subtype)
    waveform = load_audio(path)
    assert waveform.dtype == torch.float32
    assert waveform.shape == (16000,)
    expected = torch.from_numpy(tone(16000)).to(torch.float32)
    middle = slice(400, -400)  # the resampler's filter sees zeros beyond the ends
    torch.testing.assert_close(waveform[middle], expected[middle], atol=3e-3, rtol=0)


def test_pcm16_at_the_wanted_rate_is_exact(tmp_path):
    samples = np.array([0, 1, -1, 32767, -32768], dtype=np.int16)
    soundfile.write(tmp_path / "x.wav", samples, 16000)
    expected = torch.tensor([0, 1, -1, 32767, -32768]) / 32768
    assert torch.equal(load_audio(tmp_path / "x.wav"), expected)


def test_a_file_without_samples_is_empty_at_any_rate(tmp_path):
    soundfile.write(tmp_path / "x.wav", np.zeros((0, 2)), 44100)
    assert load_audio(tmp_path / "x.wav").shape == (0,)


@pytest.mark.parametrize(("suffix", "subtype"), [("wav", "PCM_24"), ("flac", "PCM_16")])
def test_a_span_of_a_long_recording(tmp_path, suffix, subtype):
    path = tmp_path / f"x.{suffix}"
    samples = np.random.default_rng(0).uniform(-0.5, 0.5, 16000)
    soundfile.write(path, samples, 16000, subtype=subtype)
    whole = load_audio(path)
    assert torch.equal(load_audio(path, 16000, 0.25, 0.5), whole[4000:12000])
    assert torch.equal(load_audio(path, 16000, 0.25), whole[4000:])
    assert torch.equal(load_audio(path, 16000, 0.0, 0.1), whole[:1600])
    assert torch.equal(load_audio(path, 16000, 0.75, 5.0), whole[12000:])
    assert load_audio(path, 16000, 1.0, 1.0).shape == (0,)
    assert load_audio(path, 8000, 0.25, 0.5).shape == (4000,)
    assert torch.equal(load_utterance(Utterance("1", path, "x", 0.5)), whole)
    spans = [Utterance(str(n), path, "x", 0.2, offset=0.2 * n) for n in range(5)]
    assert torch.equal(torch.cat([load_utterance(span) for span in spans]), whole)


def test_spans_that_tile_a_recording_share_no_sample(tmp_path):
    """Ends are rounded as starts are: an eleventh of a second is 4009.09 samples."""
    path = tmp_path / "x.wav"
    soundfile.write(path, np.random.default_rng(0).uniform(-0.5, 0.5, 44100), 44100)
    parts = [load_audio(path, 44100, n / 11, 1 / 11) for n in range(11)]
    assert torch.equal(torch.cat(parts), load_audio(path, 44100))


def test_audio_errors(tmp_path):
    text = tmp_path / "x.wav"
    text.write_text("not audio at all")
    soundfile.write(tmp_path / "nan.wav", np.array([0.0, np.nan]), 16000, subtype="FLOAT")
    cases = [
        (tmp_path / "none.wav", "there is no such file"),
        (text, "Format not recognised"),
        (tmp_path / "nan.wav", "it holds NaN or infinity"),
    ]
    for path, reason in cases:
        with pytest.raises(AudioError) as caught:
            load_audio(path)
        assert (caught.value.path, caught.value.reason) == (path, reason)
        assert str(caught.value) == f"{path} cannot be read as audio: {reason}"
    with pytest.raises(ValueError, match=r"^`sample_rate_hz` must be positive, but is 0\.$"):
        load_audio(text, 0)
    with pytest.raises(ValueError, match=r"^`offset` must not be negative, but is -1\.$"):
        load_audio(text, 16000, -1)
    soundfile.write(tmp_path / "short.wav", np.zeros(8000), 16000)
    with pytest.raises(AudioError) as caught:
        load_audio(tmp_path / "short.wav", 16000, 0.75, 1.0)
    assert caught.value.reason == "it ends at 0.5 s, before the offset of 0.75 s"


def test_log_mel_is_torchaudios_without_padding():
    # torchaudio centres its window of 400 in the 512 samples of the transform: shift by 56.
    waveform = torch.randn(8000, generator=torch.Generator().manual_seed(0)) * 0.1
    oracle = torchaudio.transforms.MelSpectrogram(
        16000, n_fft=512, win_length=400, hop_length=160, n_mels=80, f_min=20, f_max=7600,
        center=False,
    )  # fmt: skip
    expected = (oracle(waveform) + 1e-6).log().T
    found = LogMel()(waveform[56:])
    assert found.shape == (1 + (8000 - 56 - 400) // 160, 80)
    torch.testing.assert_close(found[: len(expected)], expected, atol=2e-4, rtol=1e-4)


def test_a_tone_peaks_in_its_band():
    features = LogMel()(torch.from_numpy(tone(16000, hz=1000.0)).to(torch.float32))
    mel = 2595 * math.log10(1 + 1000 / 700)
    low, high = (2595 * math.log10(1 + hz / 700) for hz in (20, 7600))
    band = (mel - low) / (high - low) * 81 - 1
    assert abs(float(features[10].argmax()) - band) <= 1
    assert torch.equal(LogMel()(torch.zeros(400)), torch.full((1, 80), 1e-6).log())


@pytest.mark.parametrize(("samples", "frames"), [(0, 0), (399, 0), (400, 1), (559, 1), (560, 2)])
def test_frame_counts(samples, frames):
    log_mel = LogMel()
    assert log_mel.num_frames(samples) == frames
    assert log_mel(torch.zeros(3, samples)).shape == (3, frames, 80)


@pytest.mark.parametrize("pieces", [[1] * 50, [7, 400, 161, 0, 3000], [160] * 40, [5000]])
def test_a_stream_equals_the_whole(pieces):
    waveform = torch.randn(sum(pieces), generator=torch.Generator().manual_seed(1))
    log_mel = LogMel()
    stream = FeatureStream(log_mel)
    for _ in range(2):  # finish() makes it ready for another
        parts = [stream.push(part) for part in waveform.split(pieces)]
        found = torch.cat([*parts, stream.finish()])
        torch.testing.assert_close(found, log_mel(waveform), atol=1e-4, rtol=1e-4)


def test_frames_do_not_look_ahead():
    waveform = torch.randn(4000, generator=torch.Generator().manual_seed(2))
    changed = waveform.clone()
    changed[2000:] = 0
    unchanged = 1 + (2000 - 400) // 160
    assert torch.equal(LogMel()(waveform)[:unchanged], LogMel()(changed)[:unchanged])


def test_cmvn_statistics_over_all_frames():
    first, second = torch.tensor([[1.0, 5.0]]), torch.tensor([[2.0, 5.0], [6.0, 5.0]])
    cmvn = FeatureStatistics.from_utterances([first, torch.zeros(0, 2), second])
    torch.testing.assert_close(cmvn.mean, torch.tensor([3.0, 5.0]))
    torch.testing.assert_close(cmvn.std, torch.tensor([math.sqrt(14 / 3), 1e-2]))
    assert cmvn.mean.dtype == cmvn.std.dtype == torch.float32


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: FeatureStatistics.from_utterances([]),
            "`features` must hold at least one frame, but hold none.",
        ),
        (
            lambda: FeatureStatistics(torch.zeros(2), torch.zeros(3)),
            "`mean` and `std` must be 1-D and of one length, but have shapes (2,) and (3,).",
        ),
        (
            lambda: FeatureStatistics(torch.zeros(2), torch.zeros(2)),
            "`std` must be positive, but its minimum is 0.",
        ),
        (lambda: LogMel(10), "`sample_rate_hz` must be at least 1000, but is 10."),
        (
            lambda: LogMel(high_hz=9000),
            "`low_hz` and `high_hz` must be in order within [0, 8000], but are 20 and 9000.",
        ),
        (
            lambda: FeatureStream(LogMel()).push(torch.zeros(1, 5)),
            "`samples` must be 1-D, but has shape (1, 5).",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call()
