"""A folder of recordings, each with a text file of the same name next to it."""

from __future__ import annotations

from pathlib import Path

from asr_ascend.data.audio_files.finding import find_audio
from asr_ascend.data.importing import problems
from asr_ascend.data.importing.source import (
    Entry,
    EntrySet,
    Problem,
    SourceError,
    is_unicode,
    one_line,
    read_text,
)


def read_folder(
    source: Path,
    *,
    text_field: str = "txt",
    speaker_from_folder: bool = False,
    encoding: str = "utf-8",
) -> dict[str, EntrySet]:
    """Reads every recording below `source`, in order of their names.

    The id is the path below `source` without its suffix. The lines of a text are joined by spaces.

    Args:
        source: folder, searched at any depth; hidden files are ignored.
        text_field: ending of the text files: "txt" for a.txt next to a.wav, "en.txt" for a.en.txt.
        speaker_from_folder: whether the folder that a recording is in names its speaker.
        encoding: of the texts.

    Raises:
        SourceError: `source` is no folder or holds no audio, or no recording has a text.
    """
    if not source.is_dir():
        raise SourceError(f"{source} is not a folder.")
    found = EntrySet()
    unread: list[SourceError] = []
    recordings = _recordings(source, text_field, found)
    if not recordings:
        raise SourceError(" ".join([f"{source} holds no audio files.", *found.notes]))
    for audio in recordings:
        name = audio.relative_to(source).with_suffix("").as_posix()
        transcript = audio.with_name(f"{audio.stem}.{text_field}")
        if not is_unicode(name):
            # Archives from another system may name files in its encoding.
            escaped = name.encode("utf-8", "backslashreplace").decode()
            detail = "its file name is not UTF-8; rename the file"
            found.problems.append(Problem(problems.BAD_LINE, escaped, escaped, detail))
            continue
        if not transcript.is_file():
            detail = f"there is no {transcript.name} beside it"
            found.problems.append(Problem(problems.NO_TRANSCRIPT, name, str(audio), detail))
            continue
        try:
            text = read_text(transcript, encoding)
        except SourceError as error:
            # A single such text is a problem of its recording, nothing but such one of the source.
            unread.append(error)
            detail = str(error).replace(str(transcript), "it", 1).rstrip(".")
            found.problems.append(Problem(problems.BAD_LINE, name, str(transcript), detail))
            continue
        speaker = audio.parent.name if speaker_from_folder else None
        found.entries.append(Entry(name, audio, one_line(text), str(transcript), speaker))
    if not found.entries and unread:
        raise unread[0]
    if not found.entries:
        raise SourceError(
            f"{source} has no recording with a text: {recordings[0].name}, for one, has no "
            f"{recordings[0].stem}.{text_field} beside it."
        )
    return {source.resolve().name: found}


def _recordings(folder: Path, text_field: str, found: EntrySet) -> list[Path]:
    """Finds the audio files of a folder, and notes in `found` the files that are neither audio nor
    text.
    """
    files = find_audio(folder, passed_over=lambda path: path.name.endswith(f".{text_field}"))
    for error in files.closed:
        detail = f"the folder can't be read: {error.strerror}"
        found.problems.append(Problem(problems.BAD_LINE, "", str(error.filename), detail))
    if left_out := files.left_out():
        found.notes.append(left_out)
    return files.audio
