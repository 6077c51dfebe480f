"""Audio files of a folder, by the endings of all formats that libsndfile reads."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import soundfile

# Endings under which files of libsndfile's formats are kept. Raw samples have none here: nothing
# in them says what they are.
_ENDINGS = {
    "AIFF": ("aif", "aiff", "aifc"),
    "AU": ("au", "snd"),
    "AVR": ("avr",),
    "CAF": ("caf",),
    "FLAC": ("flac",),
    "HTK": ("htk",),
    "IRCAM": ("sf", "ircam"),
    "MAT4": ("mat",),
    "MAT5": ("mat",),
    "MP3": ("mp3", "mp2", "mpga"),
    "MPC2K": ("mpc",),
    "NIST": ("sph", "nist"),
    "OGG": ("ogg", "oga", "opus", "spx"),
    "PAF": ("paf", "fap"),
    "PVF": ("pvf",),
    "RF64": ("rf64",),
    "SD2": ("sd2",),
    "SDS": ("sds",),
    "SVX": ("iff", "svx", "8svx", "16sv"),
    "VOC": ("voc",),
    "W64": ("w64",),
    "WAV": ("wav", "wave", "bwf"),
    "WAVEX": ("wav", "wave", "wavex"),
    "WVE": ("wve",),
    "XI": ("xi",),
}
# Recordings that other programs read and libsndfile doesn't.
UNREAD = frozenset(
    f".{name}"
    for name in (
        *(
            "3ga",
            "3gp",
            "aac",
            "ac3",
            "amr",
            "ape",
            "dts",
            "dss",
            "m4a",
            "mka",
            "mkv",
            "mov",
            "mp4",
        ),
        *("pcm", "ra", "raw", "silk", "shn", "slk", "tta", "vox", "webm", "wma", "wv"),
    )
)


def audio_endings() -> frozenset[str]:
    """Returns the endings, in small letters with their dots, of all files that this libsndfile
    reads.
    """
    formats = soundfile.available_formats()
    return frozenset(f".{ending}" for name in formats for ending in _ENDINGS.get(name, ()))


@dataclass
class Found:
    """What a folder holds.

    Args:
        audio: files that may be audio by their endings, in order of their names.
        others: how many files have which other ending, in small letters; "" for none.
        closed: folders that can't be read.
    """

    audio: list[Path] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)
    closed: list[OSError] = field(default_factory=list)

    def left_out(self) -> str | None:
        """Returns a sentence with the number of files of each other ending, None where there are
        none.
        """
        if not self.others:
            return None
        named = [
            f"{ending or 'none'} ({count})"
            for ending, count in sorted(self.others.items(), key=lambda item: (-item[1], item[0]))
        ]
        count = self.others.total()
        files = "1 file that is" if count == 1 else f"{count} files that are"
        sentence = f"Left out {files} not audio by the ending: {', '.join(named)}."
        unread = sorted(UNREAD & self.others.keys())
        if unread:
            sentence += f" Convert {', '.join(unread)} to wav or flac first, with ffmpeg for one."
        return sentence


def find_audio(folder: Path, passed_over: Callable[[Path], bool] = lambda path: False) -> Found:
    """Finds the audio files of a folder and of all folders below it.

    Hidden files and folders are left out. Links are followed.

    Args:
        folder: to search.
        passed_over: returns whether a file with another ending need not be counted.
    """
    found = Found()
    endings = audio_endings()
    for parent, folders, names in os.walk(folder, onerror=found.closed.append, followlinks=True):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and not _leads_up(parent, name)
        )
        for path in (Path(parent) / name for name in sorted(names) if not name.startswith(".")):
            if path.suffix.lower() in endings:
                found.audio.append(path)
            elif not passed_over(path):
                found.others[path.suffix.lower()] += 1
    return found


def _leads_up(parent: str, name: str) -> bool:
    """Returns whether a folder links to a folder above it, which would make the walk endless."""
    path = Path(parent, name)
    return path.is_symlink() and Path(parent).resolve().is_relative_to(path.resolve())
