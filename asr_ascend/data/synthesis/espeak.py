"""Mandarin speech from the espeak-ng library that `espeakng-loader` ships (GPL-3.0).

The library is one global state, and what it says depends on what it said before: use it in a fresh
process and in a fixed order (`asr_ascend.data.synthesis` does) where the samples must repeat.
"""

from __future__ import annotations

import ctypes
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# `cmn` on Han characters reads some of them as English letters; this voice reads pinyin, rightly.
_VOICE = "cmn-latn-pinyin"
_SYNCHRONOUS = 2
_UTF8 = 1
_RATE, _VOLUME, _PITCH = 1, 2, 3
_EVENT_END, _EVENT_WORD = 0, 1


class SynthesisError(RuntimeError):
    """The synthesiser is missing or did not do what was asked."""


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position_ms", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    )


_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)


@dataclass(frozen=True)
class Voice:
    """How to speak.

    Args:
        variant: espeak-ng voice variant ("m1", "f2", "Andy"), "" for the plain voice.
        words_per_minute: 80 to 450.
        pitch: 0 to 99, 50 is usual.
        volume: 0 to 200, 100 is usual.
    """

    variant: str = ""
    words_per_minute: int = 180
    pitch: int = 50
    volume: int = 100


@dataclass(frozen=True)
class Speech:
    """What was spoken: `samples` (n,) int16 at `rate_hz`, and the first sample of each syllable."""

    samples: NDArray[np.int16]
    rate_hz: int
    syllable_starts: tuple[int, ...]


@dataclass
class _Take:
    chunks: list[NDArray[np.int16]] = field(default_factory=list)
    words: list[tuple[int, int]] = field(default_factory=list)


def require_synthesiser() -> None:
    """Checks that the packages of the demo extra are installed.

    Raises:
        SynthesisError: one is missing; the message has the command that installs it.
    """
    try:
        import espeakng_loader  # noqa: F401
        import pypinyin  # noqa: F401
    except ImportError as error:
        raise SynthesisError(
            f"Speech synthesis needs the package {error.name}: pip install 'asr-ascend[demo]'"
        ) from error


def syllables(text: str) -> list[str]:
    """Returns the pinyin with tone digits of each character: 油温 gives ["you2", "wen1"]."""
    from pypinyin import Style, lazy_pinyin

    return lazy_pinyin(text, style=Style.TONE3, neutral_tone_with_five=True)


class Synthesiser:
    """Speaks Mandarin; make one per process.

    Raises:
        SynthesisError: packages missing or the library does not start.
    """

    def __init__(self) -> None:
        require_synthesiser()
        import espeakng_loader

        self._library: Any = ctypes.CDLL(espeakng_loader.get_library_path())
        data = Path(espeakng_loader.get_data_path())
        self._variants = data / "voices" / "!v"
        self.rate_hz: int = self._library.espeak_Initialize(_SYNCHRONOUS, 0, str(data).encode(), 0)
        if self.rate_hz <= 0:
            raise SynthesisError(f"espeak-ng did not start with the data in {data}.")
        self._take = _Take()
        self._callback = _Callback(self._receive)  # kept alive: the library holds only a pointer
        self._library.espeak_SetSynthCallback(self._callback)

    def speak(self, text: str, voice: Voice) -> Speech:
        """Speaks Han characters, one syllable each.

        Raises:
            SynthesisError: unknown variant, a character without pinyin, or lost syllables.
        """
        spoken = syllables(text)
        if len(spoken) != len(text):
            raise SynthesisError(
                f"`text` must be one syllable per character, but '{text}' has "
                f"{len(text)} characters and {len(spoken)} syllables."
            )
        name = _VOICE + (f"+{voice.variant}" if voice.variant else "")
        # The library takes an unknown variant for the plain voice without a word.
        if voice.variant and not (self._variants / voice.variant).is_file():
            raise SynthesisError(f"espeak-ng has no voice '{name}'.")
        if self._library.espeak_SetVoiceByName(name.encode()) != 0:
            raise SynthesisError(f"espeak-ng has no voice '{name}'.")
        settings = ((_RATE, voice.words_per_minute), (_PITCH, voice.pitch), (_VOLUME, voice.volume))
        for parameter, value in settings:
            self._library.espeak_SetParameter(parameter, value, 0)
        # Breathy voices draw noise from the library's own generator and from libc's, both seeded
        # with the time of day at the start.
        seed = zlib.crc32(f"{name} {text}".encode()) >> 1
        self._library.espeak_ng_SetRandSeed(ctypes.c_long(seed))
        ctypes.CDLL(None).srand(ctypes.c_uint(seed))
        self._take = _Take()
        encoded = " ".join(spoken).encode()
        self._library.espeak_Synth(encoded, len(encoded) + 1, 0, 0, 0, _UTF8, None, None)
        if not self._take.chunks:
            raise SynthesisError(f"espeak-ng said nothing for '{text}'.")
        return Speech(np.concatenate(self._take.chunks), self.rate_hz, self._starts(text, spoken))

    def _starts(self, text: str, spoken: list[str]) -> tuple[int, ...]:
        # A WORD event names the 1-based position in the text of the word that starts.
        starts_by_position = dict(self._take.words)
        positions = [1]
        for syllable in spoken[:-1]:
            positions.append(positions[-1] + len(syllable) + 1)
        if sorted(starts_by_position) != positions:
            raise SynthesisError(
                f"espeak-ng must report one word per character, but reported "
                f"{len(starts_by_position)} for the {len(text)} of '{text}'."
            )
        return tuple(starts_by_position[position] for position in positions)

    def _receive(self, samples: Any, count: int, events: Any) -> int:
        if samples and count > 0:
            self._take.chunks.append(np.ctypeslib.as_array(samples, (count,)).copy())
        index = 0
        while events[index].type != _EVENT_END:
            if events[index].type == _EVENT_WORD:
                self._take.words.append((events[index].text_position, events[index].sample))
            index += 1
        return 0
