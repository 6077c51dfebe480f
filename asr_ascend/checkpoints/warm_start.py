"""Starting a training from another run's weights, with its vocabulary or a changed one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from asr_ascend.checkpoints.checkpoint import (
    SIMPLE_HEADS,
    CheckpointError,
    check_weights,
    model_weights,
    read_checkpoint,
    read_config,
    read_tokenizer,
    without_simple_heads,
)
from asr_ascend.config.keys import ConfigError
from asr_ascend.config.train_options import TrainOptions
from asr_ascend.data.features import FeatureStatistics
from asr_ascend.data.tokenizer import BLANK_PIECE, Tokenizer

# Tensors with a row for each piece of the vocabulary.
VOCABULARY_ROWS = (
    "predictor.embedding.weight",
    "joiner.output.weight",
    "joiner.output.bias",
    "ctc_head.weight",
    "ctc_head.bias",
    *(f"{SIMPLE_HEADS}{table}.{part}" for table in ("am", "lm") for part in ("weight", "bias")),
)
_LISTED = 20


@dataclass
class WarmStart:
    """Weights, tokenizer and CMVN of a checkpoint, to go on from in a new run.

    Args:
        path: of the checkpoint, for messages.
        weights: of its transducer.
        tokenizer: of these weights.
        options: what they were trained with.
        notes: what there is to tell about the vocabulary; `make_tokenizer` fills it.
    """

    path: str
    weights: Mapping[str, Tensor]
    tokenizer: Tokenizer
    options: TrainOptions
    notes: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> WarmStart:
        """Reads what a new run needs of a checkpoint, without the optimiser's state.

        Raises:
            CheckpointError: the checkpoint can't be read.
        """
        contents = read_checkpoint(path)
        tokenizer = read_tokenizer(path, contents)
        options, weights = read_config(path, contents), model_weights(contents)
        check_weights(path, tokenizer, options, without_simple_heads(weights))
        return cls(str(path), weights, tokenizer, options)

    @property
    def cmvn(self) -> FeatureStatistics:
        """The statistics that the weights were trained with."""
        return FeatureStatistics(self.weights["feature_mean"], self.weights["feature_std"])

    def make_tokenizer(self, options: TrainOptions, texts: Iterable[str]) -> Tokenizer:
        """Makes the vocabulary of the new run, as `init_vocabulary` says.

        - strict: the checkpoint's, which must know every character of `texts`.
        - skip: the checkpoint's; the characters that it doesn't know are listed.
        - extend: the checkpoint's, and a piece for each new character.
        - train: a new one, trained on `texts` as `data.tokenizer_type` says. Blank keeps its id.

        Args:
            options: of the new run.
            texts: all that it trains on.

        Raises:
            ConfigError: the checkpoint doesn't fit the run; the message lists every reason.
        """
        mode = options.init_vocabulary
        texts = list(texts)
        unknown = Counter(c for text in texts for c in self.tokenizer.unknown_characters(text))
        problems = self._differences(options)
        if mode == "strict" and unknown:
            problems.append(self._unknown_sentence(unknown))
        if problems:
            advice = "\ninit_vocabulary=extend adds a piece for each of them, skip leaves those "
            advice += "utterances out, train makes a new vocabulary."
            raise ConfigError(
                f"{self.path} doesn't fit this run:\n"
                + "\n".join(f"  {problem}" for problem in problems)
                + (advice if mode == "strict" and unknown else "")
            )
        if mode == "train":
            return self._trained_anew(options, texts)
        if mode == "extend":
            extended = self.tokenizer.extended(unknown)
            self._tell_changes(extended)
            return extended
        if unknown:
            self.notes.append(f"{self.path}: {self._unknown_sentence(unknown)}")
        return self.tokenizer

    def load_into(self, model: nn.Module, tokenizer: Tokenizer) -> None:
        """Loads the checkpoint's weights into `model`, which was built for `tokenizer`.

        Rows of a vocabulary (joiner's output, predictor's embedding, CTC head) are matched by
        piece. A new piece starts as the mean of the kept labels, without blank and unknown. A
        random row's logit could lie far above those of trained pieces; the mean's can't. Where no
        label is kept, new pieces stay as the model was built.

        Raises:
            CheckpointError: a weight has another shape.
        """
        old = {piece: index for index, piece in enumerate(self.tokenizer.pieces)}
        source = torch.tensor([old.get(piece, -1) for piece in tokenizer.pieces])
        built = model.state_dict()
        # A simple joiner is there if this run wants one: as built, where the weights have none.
        simple = {name: value for name, value in built.items() if name.startswith(SIMPLE_HEADS)}
        given = {name: self.weights.get(name, value) for name, value in simple.items()}
        weights = {**without_simple_heads(self.weights), **given}
        for name in weights.keys() & built.keys() & set(VOCABULARY_ROWS):
            weights[name] = self._rows(weights[name], built[name], source, tokenizer)
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            raise CheckpointError(f"The weights in {self.path} don't fit this model.") from error

    def _rows(self, old: Tensor, built: Tensor, source: Tensor, tokenizer: Tokenizer) -> Tensor:
        if old.shape != (self.tokenizer.vocab_size, *built.shape[1:]):
            raise CheckpointError(f"The weights in {self.path} don't fit this model.")
        rows = built.clone()
        kept = source >= 0
        rows[kept] = old[source[kept]]
        label = kept.clone()
        label[[tokenizer.blank, tokenizer.unk]] = False
        if label.any():
            rows[~kept] = old[source[label]].double().mean(0).to(rows.dtype)
        return rows

    def _differences(self, options: TrainOptions) -> list[str]:
        """Settings that make the weights mean something else."""
        here, there = options.model.plain(), self.options.model.plain()
        pairs = [
            (f"model.{key}", here.get(key, "absent"), there.get(key, "absent"))
            for key in dict.fromkeys([*there, *here])
            if not key.endswith("dropout")
        ]
        rates_hz = options.data.sample_rate_hz, self.options.data.sample_rate_hz
        pairs.append(("data.sample_rate_hz", *rates_hz))
        found = [f"`{key}` is {a} here, {b} in the checkpoint" for key, a, b in pairs if a != b]
        blank, size = options.loss.blank, self.tokenizer.vocab_size
        if blank not in (self.tokenizer.blank, self.tokenizer.blank - size):
            found.append(f"`loss.blank` is {blank} here, {self.tokenizer.blank} in the checkpoint")
        return found

    def _trained_anew(self, options: TrainOptions, texts: list[str]) -> Tokenizer:
        data, blank = options.data, self.tokenizer.blank
        kind, size = data.tokenizer_type, data.tokenizer_vocab_size
        trained = Tokenizer.train(texts, blank=0, model_type=kind, vocab_size=size)
        if blank >= trained.vocab_size:
            raise ConfigError(
                f"Blank must keep its id, {blank}, but the new vocabulary has "
                f"{trained.vocab_size} pieces; init_vocabulary=extend keeps the old ones too."
            )
        trained = trained.with_blank(blank)
        self._tell_changes(trained)
        return trained

    def _tell_changes(self, new: Tokenizer) -> None:
        before, after = self.tokenizer.pieces, new.pieces
        added = [repr(piece) for piece in after if piece not in set(before)]
        dropped = [repr(piece) for piece in before if piece not in set(after)]
        self.notes.append(
            f"{len(after) - len(added)} of {len(after)} pieces, {BLANK_PIECE} (id {new.blank}) "
            "among them, keep their weights"
        )
        if added:
            self.notes.append(f"New pieces ({len(added)}): {_listing(added)}")
        if dropped:
            self.notes.append(f"Dropped pieces ({len(dropped)}): {_listing(dropped)}")

    def _unknown_sentence(self, unknown: Counter[str]) -> str:
        counted = [f"{character!r} ({count})" for character, count in unknown.most_common()]
        return (
            f"its vocabulary of {self.tokenizer.vocab_size} pieces lacks characters of the "
            f"training texts (and of how many): {_listing(counted)}"
        )


def _listing(items: Iterable[str]) -> str:
    """Returns the first few, and how many more there are."""
    listed = list(items)
    more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return ", ".join(listed[:_LISTED]) + more
