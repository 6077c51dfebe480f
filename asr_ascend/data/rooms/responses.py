"""Responses of rooms, made in advance with pyroomacoustics and applied to speech in training."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import soundfile
import torch
import torchaudio.functional
from torch import Tensor

from asr_ascend.data.clip_folder import NoiseError, Record, make_folder, read_index, write_clip
from asr_ascend.data.noise.mixing import active_speech_power
from asr_ascend.data.seeding import integer, stable_seed, uniform

SPEED_OF_SOUND = 343.0  # m/s
_MAX_ORDER = 30
_MAX_SECONDS = 1.5
_FLOOR_DB = -50.0
_CACHED = 256

_Range = tuple[float, float]

#: Kinds of places: length, width, height in m; reverberation time in s, or None outdoors.
PLACES: dict[str, tuple[_Range, _Range, _Range, _Range | None]] = {
    "control_room": ((4.0, 10.0), (3.0, 8.0), (2.6, 3.5), (0.3, 0.7)),
    "switchgear_room": ((6.0, 25.0), (4.0, 10.0), (3.0, 5.0), (0.6, 1.2)),
    "hall": ((15.0, 40.0), (10.0, 20.0), (6.0, 14.0), (1.0, 2.0)),
    "transformer_bay": ((8.0, 16.0), (6.0, 12.0), (5.0, 8.0), None),
}


def make_rooms(
    folder: str | Path,
    num_rooms: int = 200,
    places: Sequence[str] = tuple(PLACES),
    seed: int = 0,
    sample_rate_hz: int = 16000,
    workers: int = 1,
    force: bool = False,
) -> bool:
    """Makes a folder of room responses; does nothing if the same is already there.

    Image sources of shoebox rooms up to order 30 give a response that depends only on its seed. The
    speaker is 0.3 to 1.5 m from the microphone, at the height of someone standing. Reverberation
    times follow Sabine. A transformer bay is open: the ground, a firewall behind and one at the
    side reflect; the rest is sky. Sizes and times are this project's own choice.

    Args:
        folder: of the responses.
        num_rooms: responses; number 5 is the same whatever their number.
        places: names in `PLACES`, in turn.
        seed: of all.
        sample_rate_hz: at least 8000.
        workers: processes at a time; the responses do not depend on it.
        force: makes them again even if others are there.

    Returns:
        Whether anything had to be made.

    Raises:
        RuntimeError: pyroomacoustics is not installed.
        ValueError: an argument out of range, or the folder holds something else (NoiseError).

    Source: Allen and Berkley 1979 (image sources); Scheibler et al. 2018 (pyroomacoustics).
    """
    if num_rooms < 1:
        raise ValueError(f"`num_rooms` must be at least 1, but is {num_rooms}.")
    if sample_rate_hz < 8000:
        raise ValueError(f"`sample_rate_hz` must be at least 8000, but is {sample_rate_hz}.")
    unknown = isinstance(places, str) or [name for name in places if name not in PLACES]
    if unknown or not places:
        raise ValueError(
            f"`places` must name one or more of {', '.join(PLACES)}, but is {places!r}."
        )
    _pyroomacoustics()
    settings = {
        "made_by": "rooms 1",
        "num_rooms": num_rooms,
        "places": list(places),
        "seed": seed,
        "sample_rate_hz": sample_rate_hz,
    }
    jobs = [{**settings, "number": number} for number in range(num_rooms)]
    return make_folder(Path(folder), settings, jobs, make_response, workers, force, "Making rooms")


def make_response(folder: Path, job: dict[str, Any]) -> list[Record]:
    """Writes one room response and returns its record."""
    pra = _pyroomacoustics()
    number, rate_hz = job["number"], job["sample_rate_hz"]
    seed = stable_seed("room", job["seed"], number)
    generator = torch.Generator().manual_seed(seed)
    place = job["places"][number % len(job["places"])]
    *size_ranges, rt60_range = PLACES[place]
    size = [uniform(*bounds, generator) for bounds in size_ranges]
    rt60 = None if rt60_range is None else uniform(*rt60_range, generator)
    if rt60 is None:
        reflecting = {"floor": 0.05, "west": 0.1, "south": 0.1}
        walls = ("east", "west", "north", "south", "floor", "ceiling")
        materials = {wall: pra.Material(reflecting.get(wall, 0.999)) for wall in walls}
        order = 3
    else:
        absorption, order = pra.inverse_sabine(rt60, size)
        materials = pra.Material(absorption)
    room = pra.ShoeBox(size, rate_hz, materials=materials, max_order=min(order, _MAX_ORDER))
    microphone, speaker = _positions(size, generator)
    room.add_source(speaker)
    room.add_microphone(microphone)
    room.compute_rir()
    response = _trimmed(torch.from_numpy(room.rir[0][0]).to(torch.float32), rate_hz)
    distance = math.dist(microphone, speaker)
    delay = pra.constants.get("frac_delay_length") // 2
    name = f"room-{number:05d}.wav"
    write_clip(folder / name, response, rate_hz)
    record = {
        "file": name,
        "samples": len(response),
        "direct_sample": delay + round(distance / SPEED_OF_SOUND * rate_hz),
        "place": place,
        "size_m": [round(side, 2) for side in size],
        "distance_m": round(distance, 3),
        "rt60_seconds": None if rt60 is None else round(rt60, 3),
        "seed": seed,
    }
    return [record]


class RoomResponses:
    """Responses that `python -m asr_ascend.data.rooms` made, drawn at random.

    Args:
        folder: holds the responses and their index.
        sample_rate_hz: that they must have.

    Raises:
        NoiseError: the folder is no complete one, or of another rate.
    """

    def __init__(self, folder: str | Path, sample_rate_hz: int = 16000) -> None:
        self.folder = Path(folder).expanduser()
        if not self.folder.is_dir():
            raise NoiseError([f"The folder of rooms {self.folder} is not a folder."])
        index = read_index(self.folder)
        rate_hz = index["settings"].get("sample_rate_hz")
        self.rooms: list[Record] = index["clips"]
        if not self.rooms or "direct_sample" not in self.rooms[0]:
            raise NoiseError([f"{self.folder} must hold room responses, but holds other sounds."])
        if rate_hz != sample_rate_hz:
            wanted = f"must be at {sample_rate_hz} Hz, but are at {rate_hz}."
            raise NoiseError([f"The rooms of {self.folder} {wanted}"])
        self.sample_rate_hz = sample_rate_hz
        self._cache: dict[int, Tensor] = {}

    def apply(self, speech: Tensor, generator: torch.Generator) -> Tensor:
        """Returns `speech` (samples,) as a microphone in one of the rooms hears it.

        The direct sound keeps its place in time, and active speech keeps its power.
        """
        number = integer(0, len(self.rooms) - 1, generator)
        return reverberate(
            speech,
            self._response(number),
            self.rooms[number]["direct_sample"],
            self.sample_rate_hz,
        )

    def _response(self, number: int) -> Tensor:
        if number not in self._cache:
            path = self.folder / self.rooms[number]["file"]
            try:
                samples, _rate = soundfile.read(os.fsencode(path), dtype="float32")
            except (soundfile.SoundFileError, RuntimeError) as error:
                reason = getattr(error, "error_string", None) or error
                raise NoiseError([f"{path} cannot be read: {reason}"]) from error
            if len(self._cache) >= _CACHED:
                return torch.from_numpy(samples)
            self._cache[number] = torch.from_numpy(samples)
        return self._cache[number]


def reverberate(
    speech: Tensor, response: Tensor, direct_sample: int, sample_rate_hz: int = 16000
) -> Tensor:
    """Convolves `speech` (samples,) with `response` (taps,), aligned and of equal power.

    Args:
        speech: (samples,) float.
        response: (taps,) float.
        direct_sample: where the direct sound arrives in `response`; that delay is removed.
        sample_rate_hz: rate of both.

    Returns:
        (samples,) float, with `active_speech_power` of `speech`; what rings on after it is cut.
    """
    if speech.numel() == 0:
        return speech.clone()
    # Zeros to a length with small factors, for which the transform is several times faster.
    total = speech.numel() + response.numel() - 1
    padded = torch.nn.functional.pad(speech, (0, _smooth_length(total) - total))
    wet = torchaudio.functional.fftconvolve(padded, response)
    wet = wet[direct_sample : direct_sample + speech.numel()]
    before = active_speech_power(speech, sample_rate_hz)
    after = active_speech_power(wet, sample_rate_hz)
    return wet * math.sqrt(before / after) if after > 0 else wet


def _positions(
    size: Sequence[float], generator: torch.Generator
) -> tuple[list[float], list[float]]:
    """A microphone and a mouth in a room, both at least half a metre from the walls."""
    while True:
        speaker = [
            uniform(0.5, size[0] - 0.5, generator),
            uniform(0.5, size[1] - 0.5, generator),
            uniform(1.4, 1.75, generator),
        ]
        distance = uniform(0.3, 1.5, generator)
        angle = uniform(0.0, 2 * math.pi, generator)
        microphone = [
            speaker[0] + distance * math.cos(angle),
            speaker[1] + distance * math.sin(angle),
            uniform(1.1, 1.6, generator),
        ]
        if all(0.5 <= microphone[axis] <= size[axis] - 0.5 for axis in (0, 1)):
            return microphone, speaker


def _trimmed(response: Tensor, rate_hz: int) -> Tensor:
    """The response without what lies 50 dB below its peak at its end, 1.5 s at most."""
    loud = (response.abs() > response.abs().max() * 10 ** (_FLOOR_DB / 20)).nonzero()
    return response[: min(int(loud[-1]) + 1, round(_MAX_SECONDS * rate_hz))]


def _smooth_length(length: int) -> int:
    """The smallest of 2^a, 3 * 2^a and 5 * 2^a that is at least `length`."""
    return min(odd << max(0, math.ceil(math.log2(length / odd))) for odd in (1, 3, 5))


def _pyroomacoustics() -> Any:
    try:
        import pyroomacoustics
    except ImportError as error:
        raise RuntimeError(
            "Making rooms needs pyroomacoustics: pip install 'asr-ascend[rooms]'."
        ) from error
    # A response is summed by threads, so its last bits would depend on how many there are.
    pyroomacoustics.constants.set("num_threads", 1)
    return pyroomacoustics
