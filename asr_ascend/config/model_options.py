"""Keys of the group `model`: an encoder of two, a predictor of two, and the joiner.

The keys are flat in a config; `encoder` and `predictor` say which of them there are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from asr_ascend.config.keys import ConfigError, Key, Options, UnknownKeyError, key, shown_value
from asr_ascend.config.values import Rule, choice, integer, number

SHARE = Rule("a number in [0, 1)", lambda value: number(0).accepts(value) and value < 1)


@dataclass(frozen=True, kw_only=True)
class EncoderOptions(Options):
    """What every encoder has."""

    prefix: ClassVar[str] = "model."
    kind: ClassVar[str]

    num_mel_bins: int = key(80, integer(7), "Mel bands of a feature frame.")
    subsampling_channels: int = key(
        32,
        integer(1),
        "Channels of the convolutions that make one encoder frame of 4 feature frames.",
    )
    encoder_dim: int = key(128, integer(1), "Width of the encoder.")
    num_layers: int = key(4, integer(1), "Layers of the encoder (of an Emformer 6 by default).")
    num_heads: int = key(4, integer(1), "Attention heads of a layer; they divide `encoder_dim`.")
    feedforward_dim: int = key(512, integer(1), "Width inside the feed-forward modules.")
    dropout: float = key(0.1, SHARE, "Share of the encoder's activations that training drops.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoder_dim % self.num_heads:
            raise ConfigError(
                f"`model.encoder_dim` must be a multiple of `model.num_heads` "
                f"({self.num_heads}), but is {self.encoder_dim}."
            )


@dataclass(frozen=True, kw_only=True)
class ConformerOptions(EncoderOptions):
    """A streaming Conformer; its chunks are chosen when it is used."""

    kind: ClassVar[str] = "conformer"

    conv_kernel: int = key(15, integer(1), "Encoder frames that the causal convolution sees.")
    max_relative_position: int = key(
        64, integer(0), "Farthest distance, in encoder frames of 40 ms, that attention tells apart."
    )


@dataclass(frozen=True, kw_only=True)
class EmformerOptions(EncoderOptions):
    """torchaudio's Emformer; it is built for one size of chunk and has no full context."""

    kind: ClassVar[str] = "emformer"

    num_layers: int = key(6, integer(1), "Layers of the encoder.")
    segment_frames: int = key(
        8,
        integer(1, 1000),
        "Encoder frames of 40 ms in a segment, which is the chunk of the stream.",
    )
    left_segments: int = key(4, integer(0, 1000), "Segments of the past that attention sees.")
    right_context_frames: int = key(
        4, integer(0, 1000), "Encoder frames after its segment that a stream waits for."
    )
    memory_segments: int = key(
        4, integer(0, 1000), "Past segments whose summaries attention sees; 0: none."
    )


@dataclass(frozen=True, kw_only=True)
class PredictorOptions(Options):
    """What every predictor has."""

    prefix: ClassVar[str] = "model."
    kind: ClassVar[str]

    predictor_dim: int = key(128, integer(1), "Width of the predictor.")
    predictor_dropout: float = key(
        0.2,
        SHARE,
        "Share of the predictor's activations that training drops. It keeps the predictor from "
        "guessing tokens before they are spoken.",
    )


@dataclass(frozen=True, kw_only=True)
class StatelessOptions(PredictorOptions):
    """A predictor that sees the last few tokens."""

    kind: ClassVar[str] = "stateless"

    predictor_context: int = key(2, integer(1), "Tokens that the predictor sees.")


@dataclass(frozen=True, kw_only=True)
class LSTMOptions(PredictorOptions):
    """A predictor that sees every token so far."""

    kind: ClassVar[str] = "lstm"

    predictor_layers: int = key(1, integer(1), "Layers of the LSTM.")


ENCODERS: dict[str, type[EncoderOptions]] = {
    part.kind: part for part in (ConformerOptions, EmformerOptions)
}
PREDICTORS: dict[str, type[PredictorOptions]] = {
    part.kind: part for part in (StatelessOptions, LSTMOptions)
}


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Options):
    """The group `model`."""

    prefix: ClassVar[str] = "model."

    encoder: EncoderOptions = field(default_factory=ConformerOptions)
    predictor: PredictorOptions = field(default_factory=StatelessOptions)
    joiner_dim: int = key(128, integer(1), "Width of the joiner.")

    @classmethod
    def read(cls, values: Mapping[str, Any], saved: bool = False) -> ModelOptions:
        """Reads the group, as `Options.read` does.

        A config without `encoder` means a Conformer, as older ones do.
        """
        cls._check_is_group(values)
        kinds = {
            "encoder": values.get("encoder", "conformer"),
            "predictor": values.get("predictor"),
        }
        for own, (name, kind) in zip(cls.keys(), kinds.items(), strict=False):
            if not own.rule.accepts(kind):
                raise ConfigError(
                    f"`model.{name}` must be {own.rule.wanted}, but is {shown_value(kind)}."
                )
        parts = ENCODERS[kinds["encoder"]], PREDICTORS[kinds["predictor"]]
        names = [{f.name for f in dataclasses.fields(part)} for part in parts]
        known = sorted({*names[0], *names[1], *kinds, "joiner_dim"})
        for name in values if not saved else ():
            if name not in known:
                raise UnknownKeyError(f"model.{name}", "`model`", known)
        given = [{name: values[name] for name in own if name in values} for own in names]
        encoder, predictor = parts[0].read(given[0], saved), parts[1].read(given[1], saved)
        if "joiner_dim" not in values and not saved:
            raise ConfigError("`model.joiner_dim` must be given, but is missing.")
        rest = {name: values[name] for name in ("joiner_dim",) if name in values}
        return cls(encoder=encoder, predictor=predictor, **rest)

    def plain(self) -> dict[str, Any]:
        """Returns the flat keys of the group."""
        kinds = {"encoder": self.encoder.kind, "predictor": self.predictor.kind}
        parts = {**self.encoder.plain(), **self.predictor.plain()}
        return {**kinds, **parts, "joiner_dim": self.joiner_dim}

    @classmethod
    def keys(cls) -> list[Key]:
        """Returns the keys of every encoder and predictor.

        The description of a key that only one of them has says so.
        """
        keys = {
            "encoder": Key("model.encoder", choice(*ENCODERS), "The kind of encoder.", "conformer"),
            "predictor": Key(
                "model.predictor", choice(*PREDICTORS), "The kind of predictor.", "stateless"
            ),
        }
        shared: list[type[Options]] = [EncoderOptions, PredictorOptions]
        owners: list[tuple[str, type[Options]]] = [*ENCODERS.items(), *PREDICTORS.items()]
        for kind, part in [*(("", part) for part in shared), *owners]:
            only = f" Only with {kind}." if kind else ""
            own_keys = part.keys()
            for own in own_keys:
                keys.setdefault(own.name, dataclasses.replace(own, about=own.about + only))
        return [*keys.values(), *super().keys()]
