"""AISHELL-1 as it comes: wav/{train,dev,test}/S0002/*.wav and one transcript of all."""

from __future__ import annotations

from pathlib import Path

from asr_ascend.data.importing import problems
from asr_ascend.data.importing.source import Entry, EntrySet, Problem, SourceError, read_lines

SETS = ("train", "dev", "test")
_TRANSCRIPT = Path("transcript") / "aishell_transcript_v0.8.txt"


def read_aishell(source: Path) -> dict[str, EntrySet]:
    """Reads AISHELL-1's three sets, each in order of speaker and file.

    The folder of a recording names its speaker.

    Args:
        source: the folder `data_aishell` or the one above it.

    Raises:
        SourceError: the layout is not AISHELL-1's, or its archives are still packed.
    """
    root = source / "data_aishell" if (source / "data_aishell").is_dir() else source
    transcript = root / _TRANSCRIPT
    if not transcript.is_file():
        raise SourceError(f"{source} is not AISHELL-1: it has no {_TRANSCRIPT.as_posix()}.")
    texts: dict[str, tuple[int, str]] = {}
    for number, line in read_lines(transcript):
        name, *words = line.split(maxsplit=1)
        texts[name] = (number, words[0] if words else "")
    sets: dict[str, EntrySet] = {}
    for name in SETS:
        recordings = sorted((root / "wav" / name).glob("*/*.wav"))
        if recordings:
            sets[name] = _read_set(recordings, texts, transcript)
    if not sets:
        packed = next(iter(sorted((root / "wav").glob("*.tar.gz"))), None)
        hint = f"; {packed.name} and its like must be unpacked first" if packed else ""
        raise SourceError(f"{root / 'wav'} holds no wav files in train, dev or test{hint}.")
    return sets


def _read_set(
    recordings: list[Path], texts: dict[str, tuple[int, str]], transcript: Path
) -> EntrySet:
    found = EntrySet()
    for audio in recordings:
        if audio.stem in texts:
            number, text = texts[audio.stem]
            where = f"{transcript.name} line {number}"
            found.entries.append(Entry(audio.stem, audio, text, where, audio.parent.name))
        else:
            detail = f"{transcript.name} has no line for it"
            problem = Problem(problems.NO_TRANSCRIPT, audio.stem, str(audio), detail)
            found.problems.append(problem)
    return found
