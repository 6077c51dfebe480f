"""Recognition in Python: a trained model that transcribes files, samples and streams.

``asr_ascend.load("last.ckpt")`` gives a `Recognizer`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from asr_ascend.checkpoints.checkpoint import TrainedModel, load_model
from asr_ascend.config.frames import encoder_frames, frame_end_ms
from asr_ascend.data.audio import AudioReader, StreamResampler, mono, print_warnings
from asr_ascend.data.audio_files.reader import RATES_HZ
from asr_ascend.data.features import FeatureStream
from asr_ascend.decoding import StreamingDecoder, token_frames
from asr_ascend.decoding.chunks import attention_bytes, stream_chunks
from asr_ascend.evaluation.lattice_picture import plot_alignment
from asr_ascend.system.memory import available_bytes

MAX_DRAWN_LOGITS = 2**26


class TooLongError(ValueError):
    """An utterance that full context has no memory for; the message is one sentence."""


class Transcript:
    """One utterance or stream, decoded chunk by chunk.

    Args:
        trained: from `load_model`.
        chunk_ms: a multiple of 40, or "full".
        left_chunks: chunks of the past that attention sees.
        times: keep what `token_times` needs; memory grows with the stream.
        name: of the utterance, for messages.
    """

    def __init__(
        self,
        trained: TrainedModel,
        chunk_ms: int | str,
        left_chunks: int,
        times: bool,
        name: str = "The utterance",
    ) -> None:
        self.name = name
        self._room = available_bytes() if chunk_ms == "full" else None
        self._samples = 0
        chunks = stream_chunks(trained.model.encoder, chunk_ms, left_chunks)
        self.tokenizer = trained.tokenizer
        self._features = FeatureStream(trained.log_mel())
        self._decoder = StreamingDecoder(trained.model, *chunks, keep_encoded=times)

    @torch.inference_mode()
    def push(self, samples: Tensor) -> str:
        """Decodes `samples`, the next ones at the model's rate, and returns the text that they add.

        `samples` is (n,) float32. The text is often "".

        Raises:
            TooLongError: full context over all samples so far needs more memory than is free.
        """
        self._samples += samples.numel()
        self._refuse_beyond_memory()
        return self.tokenizer.decode(self._decoder.push(self._features.push(samples)))

    @torch.inference_mode()
    def finish(self) -> str:
        """Decodes the last, partial chunk and returns the text that it adds.

        Nothing can be pushed after it.
        """
        return self.tokenizer.decode(self._decoder.finish())

    def _refuse_beyond_memory(self) -> None:
        if self._room is None:
            return
        frames = encoder_frames(self._features.log_mel.num_frames(self._samples))
        needed = attention_bytes(self._decoder.model.encoder, frames)
        if needed > self._room:
            seconds = self._samples / self._features.log_mel.sample_rate_hz
            raise TooLongError(
                f"{self.name}: full context over {seconds:.0f} s or more takes {needed / 1e9:.1f} "
                f"GB of memory, but {self._room / 1e9:.1f} GB are free; choose chunks, "
                "chunk_ms=320 for one."
            )

    @property
    def text(self) -> str:
        """All that was heard."""
        return self.tokenizer.decode(self._decoder.hypothesis.tokens)

    @torch.inference_mode()
    def token_times(self) -> list[dict[str, Any]]:
        """Returns each token with its times in ms, after `finish`.

        `end_ms` is the end of the frame in which the likeliest alignment of the whole utterance
        gives the token. `emitted_ms` is the end of the frame in which the stream gave it.
        """
        hypothesis = self._decoder.hypothesis
        aligned = token_frames(self._decoder.model, self._decoder.encoded, hypothesis)
        return [
            {
                "token": self.tokenizer.id_to_piece(token).replace("▁", " "),
                "end_ms": round(frame_end_ms(frame), 1),
                "emitted_ms": round(frame_end_ms(emitted), 1),
            }
            for token, frame, emitted in zip(
                hypothesis.tokens, aligned, hypothesis.frames, strict=True
            )
        ]

    @torch.inference_mode()
    def plot(self, path: Path, title: str) -> None:
        """Draws the lattice of the decoded tokens, after `finish`.

        Raises:
            ValueError: there is no token to draw, or the lattice is too large for one picture.
        """
        model, enc = self._decoder.model, self._decoder.encoded
        hypothesis = self._decoder.hypothesis
        columns = len(hypothesis.tokens) + 1
        if columns == 1:
            raise ValueError(f"{title} has no tokens to draw.")
        if len(enc) * columns * model.vocab_size > MAX_DRAWN_LOGITS:
            raise ValueError(f"{title} is too long to be drawn as one lattice.")
        tokens = torch.tensor(hypothesis.tokens)
        sizes = torch.tensor([len(enc)]), torch.tensor([len(tokens)])
        logits = model.join_packed(enc[None], sizes[0], tokens[None], sizes[1])
        pieces = [self.tokenizer.id_to_piece(token) for token in hypothesis.tokens]
        logits = logits.unflatten(0, (len(enc), columns))
        plot_alignment(path, logits, tokens, model.blank, pieces, title, hypothesis.frames)


@dataclass(frozen=True)
class Transcription:
    """What was heard.

    Attributes:
        text: of all tokens.
        tokens: a dict each: `token`, `end_ms` (the end of its frame in the likeliest alignment)
            and `emitted_ms` (the end of the frame in which the stream gave it).
        duration: of the sound, in seconds.
    """

    text: str
    tokens: list[dict[str, Any]] = field(repr=False)
    duration: float


class Recognizer:
    """A trained model, ready to transcribe.

    Args:
        trained: from `load_model`.
        chunk_ms: the model hears chunks of this many ms, a multiple of 40; "full": the whole.
        left_chunks: chunks of the past that attention sees.

    Raises:
        ValueError: chunks that the model's encoder can't serve.
    """

    def __init__(
        self, trained: TrainedModel, chunk_ms: int | str = 320, left_chunks: int = 4
    ) -> None:
        stream_chunks(trained.model.encoder, chunk_ms, left_chunks)
        self.trained = trained
        self.chunk_ms = chunk_ms
        self.left_chunks = left_chunks

    @property
    def sample_rate_hz(self) -> int:
        """The rate that the model was trained with; other rates are resampled."""
        return self.trained.sample_rate_hz

    def transcribe(
        self,
        audio: str | os.PathLike[str] | np.ndarray | Tensor,
        sample_rate_hz: int | None = None,
    ) -> Transcription:
        """Transcribes a recording.

        Args:
            audio: a file in any format that libsndfile reads; or samples (n,), floats in [-1, 1].
            sample_rate_hz: of the samples, 4,000 to 384,000; None for a file, which says its own.

        Raises:
            AudioError: the file can't be read.
            TooLongError: memory has no room for full context over the recording.
            ValueError, TypeError: samples or rate don't fit; see `Stream.accept`.
        """
        if not isinstance(audio, np.ndarray | Tensor):
            if sample_rate_hz is not None:
                raise ValueError(
                    "`sample_rate_hz` must be None for a file, which says its own, "
                    f"but is {sample_rate_hz}."
                )
            return self._transcribe_file(Path(audio))
        if sample_rate_hz is None:
            raise ValueError("`sample_rate_hz` must be given with samples, but is None.")
        stream = self.stream(sample_rate_hz)
        stream.accept(audio)
        return stream.finish()

    def stream(self, sample_rate_hz: int | None = None) -> Stream:
        """Starts a stream, which takes samples piece by piece.

        Args:
            sample_rate_hz: of its samples, 4,000 to 384,000; None: the model's rate.
        """
        return Stream(self, self.sample_rate_hz if sample_rate_hz is None else sample_rate_hz)

    def transcript(self, name: str = "The utterance") -> Transcript:
        """Returns an empty transcript that keeps token times."""
        return Transcript(self.trained, self.chunk_ms, self.left_chunks, times=True, name=name)

    def _transcribe_file(self, path: Path) -> Transcription:
        with AudioReader(path) as reader:
            stream = Stream(self, reader.rate_hz, str(path))
            for block in reader.blocks(reader.rate_hz):
                stream.accept(mono(block, path))
            result = stream.finish()
            print_warnings(path, reader.warnings)
        return result


class Stream:
    """One stream of samples; make it with `Recognizer.stream`."""

    def __init__(
        self, recognizer: Recognizer, sample_rate_hz: int, name: str = "The stream"
    ) -> None:
        whole = isinstance(sample_rate_hz, int) and not isinstance(sample_rate_hz, bool)
        if not whole or not RATES_HZ[0] <= sample_rate_hz <= RATES_HZ[1]:
            raise ValueError(
                f"`sample_rate_hz` must be an int in {list(RATES_HZ)}, but is {sample_rate_hz!r}."
            )
        self._transcript = recognizer.transcript(name)
        self._resampler = StreamResampler(sample_rate_hz, recognizer.sample_rate_hz)
        self._rate_hz = sample_rate_hz
        self._samples = 0
        self._result: Transcription | None = None

    @property
    def text(self) -> str:
        """All that was heard so far."""
        return self._transcript.text

    def accept(self, samples: np.ndarray | Tensor) -> str:
        """Decodes the next samples and returns the text that they add, often "".

        Args:
            samples: (n,) floats in [-1, 1], any number of them.

        Raises:
            TypeError: the samples are not floats.
            ValueError: the shape is wrong, a sample is not finite, or the stream is finished.
        """
        if self._result is not None:
            raise ValueError("`accept` must come before `finish`, but the stream is finished.")
        given = torch.as_tensor(samples)
        if not given.is_floating_point():
            raise TypeError(
                "`samples` must be floats in [-1, 1], "
                f"but are {str(given.dtype).removeprefix('torch.')}."
            )
        if given.dim() != 1:
            raise ValueError(f"`samples` must be (n,), but have shape {tuple(given.shape)}.")
        if not bool(torch.isfinite(given).all()):
            raise ValueError("`samples` must be finite, but hold NaN or infinity.")
        self._samples += given.numel()
        return self._transcript.push(self._resampler.push(given.to(torch.float32)))

    def finish(self) -> Transcription:
        """Decodes the last, partial chunk and returns the whole transcription.

        Further calls return the same.
        """
        if self._result is None:
            self._transcript.push(self._resampler.push(torch.zeros(0), final=True))
            self._transcript.finish()
            tokens = self._transcript.token_times()
            seconds = self._samples / self._rate_hz
            self._result = Transcription(self.text, tokens, seconds)
        return self._result


def load(
    checkpoint: str | os.PathLike[str], chunk_ms: int | str = 320, left_chunks: int = 4
) -> Recognizer:
    """Loads the recogniser of a checkpoint; arguments are those of `Recognizer`.

    Raises:
        CheckpointError: the file is missing or not a checkpoint.
        ValueError: `Recognizer` can't take the chunks.
    """
    return Recognizer(load_model(checkpoint), chunk_ms, left_chunks)
