"""Keys of the command `train`: loss, distillation, optimizer, trainer, and those above them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from asr_ascend.config.data_options import DataOptions
from asr_ascend.config.keys import Options, group, key
from asr_ascend.config.loss_options import LossOptions
from asr_ascend.config.model_options import ModelOptions
from asr_ascend.config.values import (
    CHUNK_MS,
    FLAG,
    TEXT,
    Rule,
    choice,
    either,
    integer,
    list_of,
    number,
    optional,
)

SHARE_BELOW_1 = Rule(
    "a number of at least 0 and below 1", lambda value: number(0).accepts(value) and value < 1
)
LIMIT = Rule(
    "an integer of at least 1, or -1 for no limit",
    lambda value: integer(-1).accepts(value) and value != 0,
)
PRECISIONS = ("32-true", "16-mixed", "bf16-mixed", "64-true", "16-true", "bf16-true")


@dataclass(frozen=True, kw_only=True)
class DistillationOptions(Options):
    """The group `distillation`."""

    prefix: ClassVar[str] = "distillation."

    teacher: str | None = key(
        None,
        optional(TEXT),
        "Checkpoint of a teacher with full context and this run's tokens; null: no teacher.",
    )
    weight: float = key(
        0.05,
        number(0),
        "Weight of the divergence from the teacher, over blank, next label and the rest, summed "
        "over the cells of each utterance's lattice.",
    )
    block_bytes: int = key(
        2**20,
        integer(1),
        "The teacher's logits and the gradient are made this many bytes at a time.",
    )


@dataclass(frozen=True, kw_only=True)
class OptimizerOptions(Options):
    """The group `optimizer`: AdamW and the schedule of its rate."""

    prefix: ClassVar[str] = "optimizer."

    lr: float = key(1e-3, number(above=0), "Learning rate after the warm-up.")
    betas: tuple[float, float] = key((0.9, 0.98), list_of(SHARE_BELOW_1, 2), "AdamW's betas.")
    weight_decay: float = key(0.01, number(0), "AdamW's weight decay.")
    warmup_steps: int = key(60, integer(0), "Optimiser steps of the linear warm-up.")
    cosine_last: float = key(
        0.4,
        number(0, 1),
        "Over this last share of the steps the rate falls along a cosine to `final_lr_ratio * lr`.",
    )
    final_lr_ratio: float = key(0.02, number(0, 1), "The last rate as a share of `lr`.")
    layer_decay: float | None = key(
        None,
        optional(
            Rule("a number above 0 and at most 1", lambda v: number(above=0).accepts(v) and v <= 1)
        ),
        "Rates by layer: encoder layer i of L has `layer_decay^(L - i)` of the rate, what is below "
        "the layers `layer_decay^(L + 1)`; predictor, joiner and CTC head have all of it. null: "
        "one rate.",
    )
    lr_factors: dict[str, float] | None = key(
        None,
        optional(
            Rule(
                "names of modules, each with a number above 0",
                lambda v: (
                    isinstance(v, dict) and all(number(above=0).accepts(f) for f in v.values())
                ),
            )
        ),
        "Rates by name of module: `{encoder: 0.1, encoder.subsampling: 0.01}`; the longest name "
        "counts. null: none.",
    )


@dataclass(frozen=True, kw_only=True)
class TrainerOptions(Options):
    """The group `trainer`."""

    prefix: ClassVar[str] = "trainer."

    max_steps: int = key(
        3000,
        LIMIT,
        "Optimiser steps. Training ends at `max_steps` or `max_epochs`, whichever comes first.",
    )
    max_epochs: int = key(-1, LIMIT, "Epochs.")
    accelerator: str = key(
        "cpu",
        TEXT,
        "Lightning's name of the device: `cpu`, `npu`, `cuda`; `auto`: an NPU where there is one.",
    )
    devices: int | str = key(
        1,
        either(integer(1), TEXT),
        "How many of them on this machine, or which: `0,2`; `auto`: all.",
    )
    num_nodes: int = key(1, integer(1), "Machines that train together; each runs the same command.")
    strategy: str = key(
        "auto", TEXT, "Lightning's way of using several devices; on NPUs `auto` or `ddp`."
    )
    timeout_seconds: int = key(
        1800,
        integer(1),
        "Longest wait of a rank for the others. Where it is over, training ends and says which "
        "rank waited for what.",
    )
    precision: str = key("32-true", choice(*PRECISIONS), "Dtype of weights and arithmetic.")
    num_threads: int | None = key(
        None,
        optional(integer(1, 1024)),
        "Threads of torch on a CPU; null: one for a model of fewer than 5 million parameters, "
        "torch's own choice for a larger one.",
    )
    accumulate_grad_batches: int = key(
        1,
        integer(1),
        "Batches in an optimiser step; the last step of an epoch has what is left of its batches.",
    )
    gradient_clip_val: float | None = key(
        25.0, optional(number(0)), "Norm at which gradients are clipped; null: never."
    )
    max_nonfinite_steps: int = key(
        50,
        integer(0, 100),
        "A step whose gradient is not finite is left out. Training ends with an error where more "
        "than this number of the last 100 steps were.",
    )
    ramp_epochs: int = key(
        4,
        integer(0),
        "Noise rises over these first epochs, and SpecAugment comes after them: the encoder then "
        "finds the syllables in hundreds of steps and not in thousands. 0: all noise at once.",
    )
    ramp_db: float = key(30.0, number(0), "How much fainter the noise is at the start, in dB.")
    chunk_frames: tuple[int, ...] = key(
        (0, 0, 25, 16, 8),
        list_of(integer(0)),
        "Each optimiser step draws a chunk from this list, in encoder frames of 40 ms (0: full "
        "context), so that one model serves several latencies.",
    )
    left_chunks: tuple[int, ...] = key(
        (4, 8), list_of(integer(0)), "With a chunk, each step draws its left context, in chunks."
    )
    val_every_steps: int = key(
        500, integer(1), "The validation set is decoded after every so many optimiser steps."
    )
    val_chunk_ms: int | str = key(
        320, CHUNK_MS, "Chunk of the stream in which it is decoded, or `full`."
    )
    checkpoint_every_steps: int = key(
        100,
        integer(1),
        "Optimiser steps between two writings of last.ckpt, which is also written at the end.",
    )
    save_top_k: int = key(3, integer(0), "This many best checkpoints by validation CER are kept.")
    average_top_k: int = key(
        3,
        integer(0),
        "Best checkpoints that average.ckpt is the mean of, made at the end; 0: none.",
    )
    early_stop_patience: int | None = key(
        None,
        optional(integer(1)),
        "Training ends after this many validations in a row without a new best CER; null: never "
        "early.",
    )
    early_stop_min_delta: float = key(
        0.0, number(0), "How far below the best a CER must be to count, as a share (0.001 is 0.1%)."
    )
    freeze: tuple[str, ...] | None = key(
        None,
        optional(list_of(TEXT)),
        "Modules that keep their weights: `[encoder.subsampling,encoder.layers.0]`; null: none.",
    )
    progress_bar: bool = key(True, FLAG, "Shows progress on stderr.")


@dataclass(frozen=True, kw_only=True)
class TrainOptions(Options):
    """All keys of the command `train`."""

    name: str = key("custom", TEXT, "Name of the run.")
    seed: int = key(1, integer(0), "Seed of everything that is drawn.")
    output_dir: str = key(
        "outputs/custom",
        TEXT,
        "The run's folder (checkpoints/, metrics.csv, tb/, config.json): `outputs/${name}`.",
    )
    init_from: str | None = key(
        None,
        optional(TEXT),
        "Starts from this checkpoint's weights, tokenizer and feature statistics, for fine-tuning.",
    )
    init_vocabulary: str = key(
        "strict",
        choice("strict", "skip", "extend", "train"),
        "What becomes of characters that the tokenizer of `init_from` doesn't know. `strict`: an "
        "error lists them. `skip`: their utterances are left out. `extend`: each gets a new piece. "
        "`train`: a new tokenizer; pieces that both have keep their weights.",
    )
    ckpt_path: str | None = key(None, optional(TEXT), "Goes on exactly from this checkpoint.")
    resume: bool = key(
        False,
        FLAG,
        "Goes on from the run's own last.ckpt if there is one. Where the folder holds another run, "
        "training is refused.",
    )
    force: bool = key(
        False,
        FLAG,
        "Trains from the start, and replaces the run that is in the folder.",
    )
    model: ModelOptions = group(ModelOptions, "Encoder, predictor and joiner.")
    data: DataOptions = group(DataOptions, "Manifests, tokenizer, features, batches, noise.")
    loss: LossOptions = group(LossOptions, "The RNN-T loss and the auxiliary CTC loss.")
    distillation: DistillationOptions = group(
        DistillationOptions,
        "A student learns from a teacher that hears whole utterances (with `loss.joiner=packed`).",
    )
    optimizer: OptimizerOptions = group(OptimizerOptions, "AdamW and its learning rate.")
    trainer: TrainerOptions = group(TrainerOptions, "Steps, devices, validation, checkpoints.")
