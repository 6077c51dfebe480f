"""Keys of the group `loss`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from asr_ascend.config.keys import Options, key
from asr_ascend.config.values import FLAG, choice, integer, list_of, number, optional


@dataclass(frozen=True, kw_only=True)
class LossOptions(Options):
    """The group `loss`."""

    prefix: ClassVar[str] = "loss."

    blank: int = key(
        0,
        integer(),
        "Id of blank, in [-V, V-1] for a vocabulary of V. Tokenizer, predictor, CTC and decoders "
        "follow it.",
    )
    clamp: float = key(
        -1.0,
        number(),
        "Each component of the gradient is clamped to [-clamp, clamp]; -1 leaves it.",
    )
    reduction: str = key(
        "sum",
        choice("sum", "mean"),
        "`sum`: divided by what `normalize_by` says, over the whole optimiser step. `mean`: each "
        "batch's own mean.",
    )
    normalize_by: str = key(
        "utterances", choice("utterances", "tokens"), "What sums are divided by."
    )
    joiner: str = key(
        "fused",
        choice("fused", "packed"),
        "`fused`: joiner and loss in one. It never holds the logits of all utterances, so a large "
        "vocabulary takes a fraction of the memory. `packed`: all logits first, then the loss.",
    )
    fused_log_softmax: bool = key(
        True,
        FLAG,
        "The operator normalises the logits itself. false: torch makes log-probabilities for it "
        "(with `loss.joiner=packed`).",
    )
    fastemit_lambda: float = key(
        0.0,
        number(0),
        "FastEmit: above 0, the gradient of labels counts 1 + this much, so that they come out "
        "sooner (0.001 to 0.01 in Yu et al. 2021). The loss that is shown stays the plain one.",
    )
    delay_penalty: float = key(
        0.0,
        number(0, 1e6),
        "Nats an encoder frame (40 ms) that a label's log-probability gains before the middle of "
        "the utterance and loses after it, so that labels come out sooner (Kang et al. 2022; "
        "0.001 to 0.01 are usual). The loss that is shown holds it.",
    )
    dtype: str = key(
        "float32",
        choice("float32", "float16", "bfloat16", "float64"),
        "Dtype of the logits handed to the operator; `trainer.precision` governs the rest.",
    )
    reuse_logits: bool = key(
        True,
        FLAG,
        "The gradient overwrites the logits' storage (always so with `loss.joiner=fused`).",
    )
    backend: str | None = key(
        None,
        optional(choice("cpu", "npu", "reference")),
        "Implementation of the loss; null: the device's native one.",
    )
    ctc_weight: float = key(
        0.5, number(0), "Weight of the auxiliary CTC loss next to the transducer's."
    )
    alignment_frames: tuple[int, int] | None = key(
        (1, 5),
        optional(list_of(integer(0), 2)),
        "A token may come this many encoder frames (40 ms) before and after the CTC head hears it. "
        "null: at any time, which lets the predictor guess what will be said.",
    )
    band: str = key(
        "ctc",
        choice("ctc", "simple", "full"),
        "Lattice cells that joiner and loss compute. `ctc`: those that `alignment_frames` leaves, "
        "exactly; all of them where it is null. `simple`: pruned RNN-T, the `symbols_per_frame` "
        "columns of each frame that a simple joiner uses most (with `alignment_frames` null). "
        "`full`: all.",
    )
    symbols_per_frame: int = key(
        5,
        integer(2),
        "With `loss.band=simple`: columns of each frame (icefall's `prune_range`).",
    )
    simple_loss_scale: float = key(
        0.5,
        number(0),
        "With `loss.band=simple`: weight of the simple joiner's loss after its warm-up. The "
        "warm-up goes there from 1 in a line, and with the pruned loss from 0.1 to 1.",
    )
    simple_warmup_steps: int = key(
        2000,
        integer(0),
        "With `loss.band=simple`: optimiser steps of that warm-up, after those of `ctc_first` "
        "(icefall's `warm_step`).",
    )
    lm_only_scale: float = key(
        0.25,
        number(0, 1),
        "With `loss.band=simple`: share of the distribution of the predictor alone in the simple "
        "joiner's (icefall's `lm_scale`).",
    )
    am_only_scale: float = key(
        0.0,
        number(0, 1),
        "With `loss.band=simple`: the same of the encoder alone (icefall's `am_scale`).",
    )
    ctc_first: float = key(
        0.2,
        number(0, 1),
        "This share of the steps trains with CTC only, so that the encoder hears before the "
        "predictor guesses.",
    )
