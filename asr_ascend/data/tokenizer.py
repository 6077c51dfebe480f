"""Text to token ids and back: a sentencepiece model plus a blank that may stand anywhere."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Mapping
from typing import Any

import sentencepiece
import torch
from torch import Tensor

from asr_ascend.data.manifest import has_text

_FORMAT = 1
_MODEL_TYPES = ("char", "bpe", "unigram")
BLANK_PIECE = "<blk>"
# What sentencepiece writes for a space.
SPACE_PIECE = "\u2581"
# sentencepiece's trainer leaves out texts with the first, and takes the second for its own.
_RESERVED = ("\u2585", "\x1f")
_WITHOUT_RESERVED = {ord(mark): None for mark in _RESERVED}


class Tokenizer:
    """Maps text to ids in [0, V) without `blank`, and ids to text.

    The sentencepiece model holds no blank. Its ids at or above `blank` are shifted up by one, so
    blank can be any of the V columns of the joiner's output without training the model again.
    Text is taken as it is: no normalisation, no added or removed spaces. Therefore
    ``decode(encode(text)) == text`` for every text of known characters, spaces included.

    Args:
        model_proto: serialised sentencepiece model.
        blank: in [-V, V-1], where V is the number of pieces plus one; negative counts from the end.

    Raises:
        ValueError: `blank` out of range, or `model_proto` is not a sentencepiece model.
    """

    def __init__(self, model_proto: bytes, blank: int = -1) -> None:
        self._model_proto = bytes(model_proto)
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_proto=self._model_proto)
            pieces = self._model.vocab_size()
        except RuntimeError as error:
            raise ValueError("`model_proto` must be a serialised sentencepiece model.") from error
        self.vocab_size = pieces + 1
        if not -self.vocab_size <= blank < self.vocab_size:
            raise ValueError(
                f"`blank` must be in [{-self.vocab_size}, {self.vocab_size - 1}], but is {blank}."
            )
        self.blank = blank % self.vocab_size

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        *,
        blank: int = -1,
        model_type: str = "char",
        vocab_size: int | None = None,
    ) -> Tokenizer:
        """Trains a tokenizer whose pieces are learnt from `texts`.

        Args:
            texts: training transcripts; empty ones are ignored.
            blank: in [-V, V-1].
            model_type: "char" (every character of `texts` is a piece), "bpe" or "unigram".
            vocab_size: V, blank and unknown included; needed by bpe and unigram, not by char.

        Raises:
            ValueError: `model_type` is unknown, no text has a visible character, or `vocab_size` is
                missing, does not fit the texts, or is given for "char".
        """
        if model_type not in _MODEL_TYPES:
            known = ", ".join(_MODEL_TYPES)
            raise ValueError(f"`model_type` must be one of {known}, but is '{model_type}'.")
        if model_type == "char" and vocab_size is not None:
            raise ValueError(
                "`vocab_size` must be None for model_type 'char', whose size follows from the "
                f"characters, but is {vocab_size}."
            )
        if model_type != "char" and (vocab_size is None or vocab_size < 3):
            raise ValueError(
                f"`vocab_size` must be at least 3 for model_type '{model_type}', "
                f"but is {vocab_size}."
            )
        texts = [text for text in texts if has_text(text)]
        reserved = [mark for mark in _RESERVED if any(mark in text for text in texts)]
        sentences = [text.translate(_WITHOUT_RESERVED) for text in texts] if reserved else texts
        sentences = [text for text in sentences if text]
        if not sentences:
            raise ValueError("`texts` must hold at least one text that is not empty, but has none.")
        size: dict[str, Any] = {"use_all_vocab": True}
        if vocab_size is not None:
            size = {"vocab_size": vocab_size - 1 - len(reserved)}
        model = _train_model(sentences, model_type, size, vocab_size)
        return cls(_with_pieces(model, reserved) if reserved else model, blank)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of `text`, each in [0, V) and never `blank`.

        Unknown characters give `unk`.
        """
        return [self._outer(piece) for piece in self._model.encode(text)]

    def decode(self, ids: Iterable[int] | Tensor) -> str:
        """Returns the text of `ids`, in which blanks are ignored; `unk` becomes U+2047.

        Raises:
            ValueError: an id outside [0, V).
        """
        values = ids.tolist() if isinstance(ids, Tensor) else [int(value) for value in ids]
        for position, value in enumerate(values):
            if not 0 <= value < self.vocab_size:
                raise ValueError(
                    f"`ids` must be in [0, {self.vocab_size - 1}], "
                    f"but is {value} at position {position}."
                )
        return self._model.decode([self._inner(value) for value in values if value != self.blank])

    def id_to_piece(self, index: int) -> str:
        """Returns the piece of one id; ``<blk>`` for `blank`.

        Raises:
            ValueError: `index` is outside [0, V).
        """
        if not 0 <= index < self.vocab_size:
            raise ValueError(f"`index` must be in [0, {self.vocab_size - 1}], but is {index}.")
        if index == self.blank:
            return BLANK_PIECE
        return self._model.id_to_piece(self._inner(index))

    def unknown_characters(self, text: str) -> list[str]:
        """Returns the characters of `text` that `encode` maps to `unk`, each once, in order."""
        if self.unk not in self.encode(text):
            return []
        distinct = dict.fromkeys(text)
        return [character for character in distinct if self.unk in self.encode(character)]

    def extended(self, characters: Iterable[str]) -> Tokenizer:
        """Returns a tokenizer that knows more characters; every old piece and `blank` keep their
        ids.

        The new pieces follow after the old vocabulary, also where blank is its last id. Texts of
        old characters are encoded as before.

        Args:
            characters: each becomes a piece; those already known are ignored.

        Raises:
            ValueError: an entry is not a single character.
        """
        new = []
        for character in dict.fromkeys(characters):
            if len(character) != 1:
                raise ValueError(
                    f"`characters` must be single characters, but one is '{character}'."
                )
            if self.unk in self.encode(character):
                new.append(SPACE_PIECE if character == " " else character)
        return Tokenizer(_with_pieces(self._model_proto, new), self.blank)

    def with_blank(self, blank: int) -> Tokenizer:
        """Returns a tokenizer of the same pieces with `blank` at another id, in [-V, V-1].

        Raises:
            ValueError: `blank` is out of range.
        """
        return Tokenizer(self._model_proto, blank)

    @property
    def pieces(self) -> list[str]:
        """The V pieces in order of id, ``<blk>`` at `blank`."""
        return [self.id_to_piece(index) for index in range(self.vocab_size)]

    @property
    def unk(self) -> int:
        """Id of the unknown piece."""
        return self._outer(self._model.unk_id())

    def state_dict(self) -> dict[str, Any]:
        """Returns plain tensors and ints, loadable with ``torch.load(weights_only=True)``."""
        model = torch.frombuffer(bytearray(self._model_proto), dtype=torch.uint8)
        return {"format": _FORMAT, "model": model, "blank": self.blank}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Tokenizer:
        """Builds the tokenizer whose `state_dict` is `state`.

        Raises:
            ValueError: a key is missing, or the format version is another.
        """
        missing = sorted({"format", "model", "blank"} - set(state))
        if missing:
            raise ValueError(
                f"`state` must hold format, model and blank, but lacks {', '.join(missing)}."
            )
        if state["format"] != _FORMAT:
            raise ValueError(f"`state` must have format {_FORMAT}, but has {state['format']}.")
        return cls(bytes(state["model"].cpu().numpy().tobytes()), int(state["blank"]))

    def _outer(self, piece: int) -> int:
        return piece + 1 if piece >= self.blank else piece

    def _inner(self, index: int) -> int:
        return index - 1 if index > self.blank else index


def _with_pieces(model_proto: bytes, pieces: Iterable[str]) -> bytes:
    """A serialised sentencepiece model with more pieces, less likely than those that it has."""
    # A serialised list grows by what is appended: no schema is needed.
    model = sentencepiece.SentencePieceProcessor(model_proto=model_proto)
    score = min(model.get_score(index) for index in range(model.vocab_size())) - 1.0
    return model_proto + b"".join(_serialised_piece(piece, score) for piece in pieces)


def _serialised_piece(piece: str, score: float) -> bytes:
    """One entry of sentencepiece's ModelProto.pieces (field 1): piece (1) and score (2)."""
    text = piece.encode()
    entry = b"\x0a" + bytes([len(text)]) + text + b"\x15" + struct.pack("<f", score)
    return b"\x0a" + bytes([len(entry)]) + entry


def _train_model(
    sentences: list[str], model_type: str, size: Mapping[str, Any], vocab_size: int | None
) -> bytes:
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type=model_type,
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            character_coverage=1.0,
            # Longer sentences would be left out, and with them their characters.
            max_sentence_length=max(4192, *(len(text.encode()) + 1 for text in sentences)),
            unk_id=0,
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            unk_surface="\u2047",
            num_threads=1,
            minloglevel=3,
            **size,
        )
    except RuntimeError as error:
        reason = str(error).split("] ", 1)[-1].strip() or "no reason given"
        raise ValueError(
            f"`vocab_size` must fit the texts, but {vocab_size} does not: sentencepiece, "
            f"which counts without blank, says '{reason}'"
        ) from error
    return model.getvalue()
