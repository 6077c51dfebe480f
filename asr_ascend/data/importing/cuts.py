"""Cuts of lhotse, read through lhotse: ``pip install 'asr-ascend[lhotse]'``."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asr_ascend.data.importing import problems
from asr_ascend.data.importing.source import (
    Entry,
    EntrySet,
    Problem,
    RenderError,
    SourceError,
    audio_root,
)
from asr_ascend.data.wav import write_wav

_TOLERANCE_SECONDS = 1e-3


@dataclass(frozen=True)
class RenderedCut:
    """Writes a cut's audio to a file in one step, as lhotse makes it.

    Raises RenderError where lhotse can't make it, and OSError where it can't be written.
    """

    cut: Any

    def __call__(self, path: Path) -> None:
        try:
            samples = self.cut.load_audio()  # (channels, samples)
        except Exception as error:  # lhotse and what it reads with raise many kinds
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise RenderError(reason) from error
        path.parent.mkdir(parents=True, exist_ok=True)
        # Floats, since a mix may go beyond full scale.
        write_wav(path, samples.T, self.cut.sampling_rate, subtype="FLOAT")


def read_cuts(
    source: Path, rendered: Path, *, text_field: str = "text", root: Path | None = None
) -> dict[str, EntrySet]:
    """Reads a CutSet (.jsonl, .jsonl.gz, .json, .yaml) in its order.

    A cut that is a span of a file refers to that file. Other cuts (mixed, padded, transformed, one
    channel of several, from memory or a URL) are rendered to wav files.

    Args:
        source: the file.
        rendered: folder of the files to render.
        text_field: "text" of the supervisions, or the name of one of their custom fields; the texts
            of several supervisions are joined by spaces.
        root: what relative audio paths start from. None: the first of the working directory, the
            file's folder and the three above it below which the first recording exists.

    Raises:
        SourceError: lhotse isn't installed, no cuts in the file, recordings that are commands, or
            no supervision has such a field.
    """
    cuts = _load(source)
    first = next((path for cut in cuts for path in _file_sources(cut)), "")
    parents = [Path.cwd(), source.parent, *source.absolute().parents[1:4]]
    base = root if root is not None else audio_root([first], parents)
    found = EntrySet()
    fields: set[str] = set()
    for number, cut in enumerate(cuts, start=1):
        where = f"{source.name} cut {number}"
        if type(cut).__name__ == "PaddingCut" or not cut.has_recording:
            detail = "it has no recording"
            found.problems.append(Problem(problems.BAD_LINE, cut.id, where, detail))
            continue
        for supervision in cut.supervisions:
            fields.update(supervision.custom or {})
            fields.update(["text"] if supervision.text is not None else [])
        found.entries.append(_entry(cut, text_field, base.absolute(), rendered, where))
    if text_field not in fields:
        known = f"have {', '.join(sorted(fields))}" if fields else "hold no text"
        raise SourceError(f"{source} has no `{text_field}`: its supervisions {known}.")
    return {re.sub(r"\.(jsonl|json|yaml)(\.gz)?$", "", source.name): found}


def _load(source: Path) -> list[Any]:
    try:
        import lhotse
    except ImportError as error:
        raise SourceError(
            f"Reading cuts needs the package {error.name}: pip install 'asr-ascend[lhotse]'"
        ) from error
    if not source.is_file():
        raise SourceError(f"{source} is not a file.")
    try:
        cuts = list(lhotse.CutSet.from_file(source))
    except Exception as error:  # lhotse raises many kinds on foreign content
        raise SourceError(f"{source} holds no cuts that lhotse can read: {error}") from error
    if not cuts or not all(hasattr(cut, "supervisions") for cut in cuts):
        raise SourceError(f"{source} holds no cuts; make them with `lhotse cut simple`.")
    for cut in cuts:
        for audio in _sources(cut):
            if audio.type == "command":
                raise SourceError(
                    f"{source}: cut '{cut.id}' has a command as its recording ({audio.source}), "
                    "and commands are not run; write the recordings to files first."
                )
    return cuts


def _sources(cut: Any) -> Iterable[Any]:
    parts = [track.cut for track in cut.tracks] if hasattr(cut, "tracks") else [cut]
    for part in parts:
        recording = getattr(part, "recording", None)
        yield from recording.sources if recording is not None else ()


def _file_sources(cut: Any) -> list[str]:
    return [audio.source for audio in _sources(cut) if audio.type == "file"]


def _entry(cut: Any, text_field: str, base: Path, rendered: Path, where: str) -> Entry:
    supervisions = sorted(cut.supervisions, key=lambda supervision: supervision.start)
    texts = [_text(supervision, text_field) for supervision in supervisions]
    speakers = {supervision.speaker for supervision in supervisions}
    entry = {
        "id": cut.id,
        "text": " ".join(text for text in texts if text),
        "where": where,
        "speaker": speakers.pop() if len(speakers) == 1 else None,
    }
    if not _is_span_of_a_file(cut):
        cut = cut.with_recording_path_prefix(str(base))
        path = rendered / _file_name(cut)
        return Entry(**entry, audio_path=path.absolute(), render=RenderedCut(cut))
    audio = base / cut.recording.sources[0].source
    rest = cut.recording.duration - cut.duration
    whole = cut.start == 0 and abs(rest) < _TOLERANCE_SECONDS
    offset = None if whole else cut.start
    return Entry(**entry, audio_path=audio, offset=offset, duration=cut.duration)


def _text(supervision: Any, text_field: str) -> str:
    if text_field == "text":
        return supervision.text or ""
    return str((supervision.custom or {}).get(text_field) or "")


def _is_span_of_a_file(cut: Any) -> bool:
    if type(cut).__name__ != "MonoCut":
        return False
    recording = cut.recording
    return (
        len(recording.sources) == 1
        and recording.sources[0].type == "file"
        and recording.num_channels == 1
        and not recording.transforms
    )


def _file_name(cut: Any) -> str:
    """A name that changes with the cut or its files: what is there under it is the right audio."""
    files = [Path(path) for path in _file_sources(cut)]
    states = [(f.stat().st_size, f.stat().st_mtime_ns) for f in files if f.is_file()]
    content = json.dumps([cut.to_dict(), states], sort_keys=True, default=str)
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    return f"{re.sub(r'[^0-9A-Za-z._-]+', '-', cut.id)[:80]}-{digest}.wav"
