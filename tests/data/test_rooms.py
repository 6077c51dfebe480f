"""Room responses: aligned, of equal power, seeded, and what training hears of them."""

import hashlib
import re
import sys

import pytest
import torch

from asr_ascend.data.clip_folder import NoiseError, read_index, write_clip
from asr_ascend.data.noise import active_speech_power, make_noise_bank
from asr_ascend.data.rooms import PLACES, RoomResponses, make_rooms, reverberate
from asr_ascend.data.rooms.command import main
from asr_ascend.data.seeding import seeded_generator

SMALL = {"num_rooms": 8, "seed": 2}


@pytest.fixture(scope="module")
def rooms(tmp_path_factory):
    pytest.importorskip("pyroomacoustics", reason="needs pip install 'asr-ascend[rooms]'")
    folder = tmp_path_factory.mktemp("rooms") / "rooms"
    assert make_rooms(folder, **SMALL)
    return folder


def clicks(spacing=8000, count=4):
    """Speech of clicks, so that every reflection stands apart."""
    wave = torch.zeros(spacing * count)
    wave[100::spacing] = 0.5
    return wave


def test_convolution_by_hand():
    speech = torch.tensor([1.0, 0.0, 0.0, 2.0])
    response = torch.tensor([0.1, 1.0, 0.5])  # something before the direct sound at 1
    wet = reverberate(speech, response, 1)
    expected = torch.tensor([1.0, 0.5, 0.2, 2.0])  # what rings on is cut
    scale = (active_speech_power(speech) / active_speech_power(expected)) ** 0.5
    torch.testing.assert_close(wet, expected * scale)
    assert torch.equal(reverberate(torch.zeros(0), response, 1), torch.zeros(0))
    assert torch.equal(reverberate(torch.zeros(50), response, 1), torch.zeros(50))


def test_long_convolution_equals_the_direct_sum():
    generator = seeded_generator("fft")
    speech = torch.randn(1003, generator=generator)
    response = torch.randn(217, generator=generator)
    full = torch.nn.functional.conv1d(
        torch.nn.functional.pad(speech, (216, 216))[None, None].double(),
        response.flip(0)[None, None].double(),
    )[0, 0]
    wet = reverberate(speech, response, 30)
    expected = full[30 : 30 + 1003]
    gain = (active_speech_power(speech) / active_speech_power(expected)) ** 0.5
    torch.testing.assert_close(wet.double(), expected * gain, atol=1e-4, rtol=1e-4)


def test_the_direct_sound_stays_in_time_and_speech_keeps_its_power(rooms):
    index = read_index(rooms)
    assert [room["place"] for room in index["clips"]] == list(PLACES) * 2
    bank = RoomResponses(rooms)
    speech = clicks()
    for number, room in enumerate(bank.rooms):
        response = bank._response(number)
        direct = room["direct_sample"]
        # The direct path, half of pyroomacoustics' interpolation filter and the way at 343 m/s.
        assert direct == 40 + round(room["distance_m"] / 343 * 16000)
        assert int(response[: direct + 8].abs().argmax()) in (direct - 1, direct, direct + 1)
        wet = reverberate(speech, response, direct)
        assert wet.shape == speech.shape
        assert abs(int(wet[:8000].abs().argmax()) - 100) <= 1 or room["distance_m"] > 0.8
        assert active_speech_power(wet) == pytest.approx(active_speech_power(speech), rel=1e-3)


def test_places_ring_as_long_as_they_should(rooms):
    pyroomacoustics = pytest.importorskip("pyroomacoustics")
    bank = RoomResponses(rooms)
    for number, room in enumerate(bank.rooms):
        response = bank._response(number)
        if room["rt60_seconds"] is None:
            assert len(response) < 0.2 * 16000  # ground and two walls, no ringing
            continue
        # Image sources up to order 30: the decay of the first 20 dB tells the rest.
        measured = pyroomacoustics.experimental.measure_rt60(
            response[room["direct_sample"] :].numpy(), fs=16000, decay_db=20
        )
        assert 0.4 * room["rt60_seconds"] < measured < 1.6 * room["rt60_seconds"]


def digests(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def test_rooms_are_seeded_whatever_the_workers(rooms, tmp_path):
    assert not make_rooms(rooms, **SMALL)
    make_rooms(tmp_path / "two", **SMALL, workers=2)
    assert digests(tmp_path / "two") == digests(rooms)


def test_a_room_is_drawn_by_the_generator_alone(rooms):
    bank, speech = RoomResponses(rooms), clicks()
    heard = [bank.apply(speech, seeded_generator("room", n)) for n in range(12)]
    again = RoomResponses(rooms)
    assert all(
        torch.equal(again.apply(speech, seeded_generator("room", n)), heard[n]) for n in range(12)
    )
    assert len({float(wave[200:].abs().sum()) for wave in heard}) >= 3


def test_the_command(rooms, capsys, tmp_path, monkeypatch):
    assert main(["--out", str(rooms), "--rooms", "8", "--seed", "2"]) == 0
    assert capsys.readouterr().out == f"{rooms} is up to date: nothing to do.\n"
    arguments = ["--out", str(tmp_path / "x"), "--rooms", "2", "--places", "hall", "--workers", "1"]
    assert main(arguments) == 0
    told = f"Wrote {tmp_path / 'x'}: 2 hall. Train with data.rooms_dir={tmp_path / 'x'}\n"
    assert capsys.readouterr().out == told
    monkeypatch.setitem(sys.modules, "pyroomacoustics", None)
    assert main(["--out", str(tmp_path / "y")]) == 2
    told = "Error: Making rooms needs pyroomacoustics: pip install 'asr-ascend[rooms]'.\n"
    assert capsys.readouterr().err == told
    # What is made already needs nothing.
    assert RoomResponses(rooms).apply(clicks(), seeded_generator(1)).shape == (32000,)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda folder: make_rooms(folder, num_rooms=0),
            "`num_rooms` must be at least 1, but is 0.",
        ),
        (
            lambda folder: make_rooms(folder, places=["cave"]),
            "`places` must name one or more of control_room, switchgear_room, hall, "
            "transformer_bay, but is ['cave'].",
        ),
        (
            lambda folder: RoomResponses(folder / "none"),
            "The folder of rooms {folder}/none is not a folder.",
        ),
        (lambda folder: RoomResponses(folder), "{folder} has no index.json."),
    ],
)
def test_errors_of_rooms(call, message, tmp_path):
    with pytest.raises(ValueError, match=f"^{re.escape(message.format(folder=tmp_path))}$"):
        call(tmp_path)


def test_other_folders_are_refused(rooms, tmp_path):
    make_noise_bank(tmp_path / "noise", num_clips=1, clip_seconds=0.1)
    message = f"{tmp_path / 'noise'} must hold room responses, but holds other sounds."
    with pytest.raises(NoiseError, match=f"^{re.escape(message)}$"):
        RoomResponses(tmp_path / "noise")
    message = f"The rooms of {rooms} must be at 8000 Hz, but are at 16000."
    with pytest.raises(NoiseError, match=f"^{re.escape(message)}$"):
        RoomResponses(rooms, 8000)
    bank = RoomResponses(rooms)
    bank.rooms[0]["file"] = "gone.wav"
    bank.rooms = bank.rooms[:1]
    with pytest.raises(NoiseError, match=r"gone\.wav cannot be read: "):
        bank.apply(clicks(), seeded_generator(0))
    assert write_clip(tmp_path / "a.wav", torch.ones(2), 16000) < 0
