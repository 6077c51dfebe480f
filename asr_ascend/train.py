"""Trains a transducer: assembles data, model, trainer and callbacks from the config.

``python -m asr_ascend.train experiment=demo [key=value]``
"""

from __future__ import annotations

import os

# Read when torch loads OpenMP. By default its threads spin for milliseconds while they wait, and
# where another process uses a core a step then takes ten times as long; where they sleep at once, a
# step of a small model on two idle cores takes half as long again.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
# Read when torch loads torch_npu (2.13): an operator that an NPU doesn't have is then an error that
# names it. By default its tensors are copied to the CPU and back, and only a warning says so.
os.environ.setdefault("TORCH_NPU_FALLBACK_CPU_DISABLE", "1")

import contextlib
import logging
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only

from asr_ascend.checkpoints.checkpoint import (
    AtomicCheckpointIO,
    CheckpointError,
)
from asr_ascend.checkpoints.warm_start import WarmStart
from asr_ascend.config.composing import run_entry
from asr_ascend.config.keys import ConfigError
from asr_ascend.config.loss_options import LossOptions
from asr_ascend.config.train_options import TrainOptions
from asr_ascend.data.datamodule import SpeechDataModule
from asr_ascend.data.loader import WorkerError, worker_problems
from asr_ascend.data.manifest import ManifestError, missing_manifest
from asr_ascend.data.sampler import PositionError
from asr_ascend.data.tokenizer import Tokenizer
from asr_ascend.losses import available_backends
from asr_ascend.losses.backends import cpu_library, npu_library
from asr_ascend.models import build_transducer
from asr_ascend.training.callbacks import NoiseRamp, StepLog, StepProgress, StepSeeds
from asr_ascend.training.devices import chosen_accelerator, trainer_arguments
from asr_ascend.training.lattice_bands import lattice_bound
from asr_ascend.training.module import TransducerModule
from asr_ascend.training.nonfinite import DivergedError, NonfiniteSteps
from asr_ascend.training.npu import NpuRandomStates, memory_line
from asr_ascend.training.optimizer import describe_training
from asr_ascend.training.ranks import RankTimeoutError
from asr_ascend.training.restoring import Restoring, check_vocabulary
from asr_ascend.training.run_folder import RunFolder, RunRecord
from asr_ascend.training.saving import Checkpoints, EarlyStopping, ValidationSteps
from asr_ascend.training.teacher import Teacher, load_teacher
from asr_ascend.training.termination import Terminated, Termination
from asr_ascend.training.threads import ThreadWatch, denormals_are_zero, set_threads
from asr_ascend.training.unheard import UnheardError, UnheardSteps

BAD_INPUT = (
    *(CheckpointError, DivergedError, ManifestError),
    *(RankTimeoutError, UnheardError, WorkerError),
)


def main(options: TrainOptions) -> int:
    """Trains as `options` say, unless that very run is already there; returns the exit status."""
    chosen_accelerator(options.trainer.accelerator)
    print_ = _printer()
    folder = RunFolder(options)
    if folder.finished:
        folder.warn_of_sources(print_)
        print_(f"{folder.path} holds this very run, finished; force=true trains again.")
        return 0
    with folder.locked() if _is_first_process() else contextlib.nullcontext():
        return _train(options, folder, print_)


def _train(options: TrainOptions, folder: RunFolder, print_: Any) -> int:
    """Trains in a folder that no other process works in."""
    ckpt_path = folder.resume_from(print_)
    accelerator = chosen_accelerator(options.trainer.accelerator)
    _check_backend(options.loss, accelerator)
    _quiet()
    seed_everything(options.seed, verbose=False)
    start = WarmStart.read(options.init_from) if options.init_from else None
    datamodule = _data(options, start, print_)
    tokenizer = datamodule.tokenizer
    assert datamodule.cmvn is not None
    if ckpt_path is not None:
        check_vocabulary(ckpt_path, tokenizer.pieces)
    model = build_transducer(
        tokenizer.vocab_size,
        tokenizer.blank,
        options.model,
        simple_heads=options.loss.band == "simple",
    )
    model.set_cmvn(datamodule.cmvn.mean, datamodule.cmvn.std)
    set_threads(options.trainer.num_threads, accelerator, model)
    if start is not None:
        start.load_into(model, tokenizer)
        # -1 was the last of the checkpoint's vocabulary.
        options = replace(options, loss=replace(options.loss, blank=tokenizer.blank))
    module = TransducerModule(model, tokenizer, options, _teacher(options, tokenizer))
    if unusual := describe_training(model, options.optimizer):
        print_(unusual)
    fresh = ckpt_path is None or not folder.is_own(ckpt_path)
    record = RunRecord(folder, options, fresh)
    restoring = Restoring(ckpt_path)
    trainer = build_trainer(options, folder.path, datamodule, [record, restoring])
    started = time.monotonic()
    try:
        workers = worker_problems(options.data.num_workers)
        with workers, denormals_are_zero(), restoring.problems():
            trainer.fit(module, datamodule=datamodule, ckpt_path=ckpt_path, weights_only=True)
    except Terminated as end:
        print_(f"{end}; resume=true goes on from the run's last checkpoint.")
        return end.status
    except PositionError as error:
        raise ConfigError(
            f"{ckpt_path} was written in the middle of an epoch, and the batches of this one would "
            "be others: data, data.max_batch_seconds, data.max_lattice_bytes, seed and number of "
            "ranks must be those of the checkpoint; init_from starts a new run from its weights."
        ) from error
    except SystemExit as stop:  # Lightning's answer to Ctrl-C, with a status of its own
        if isinstance(stop.__context__, KeyboardInterrupt) and trainer.is_global_zero:
            told = "Interrupted; resume=true goes on from the run's last checkpoint."
            raise KeyboardInterrupt(told) from None
        raise
    seconds = time.monotonic() - started
    record.finish(trainer, seconds)
    for line in _closing_lines(trainer, folder.path, seconds):
        print_(line)
    return 0


def _check_backend(loss: LossOptions, accelerator: str) -> None:
    """Checks what a config can't know: which backends of the loss are here, and what they can."""
    name = loss.backend
    if loss.delay_penalty > 0 and accelerator == "npu" and name != "reference":
        raise ConfigError(
            "`loss.delay_penalty` must be 0 on an NPU, whose operator has none yet, but is "
            f"{loss.delay_penalty}."
        )
    usable = available_backends()
    native = {"cpu": cpu_library.library, "npu": npu_library.load}
    if name is None and accelerator in native and accelerator not in usable:
        try:
            native[accelerator]()
        except RuntimeError as error:
            raise ConfigError(
                f"`loss.backend` null needs the native loss, but {error} (loss.backend=reference)."
            ) from error
    if name is not None and name not in usable:
        raise ConfigError(
            f"`loss.backend` must be null or one of those usable here ({', '.join(usable)}), but "
            f"is {name!r}."
        )


def _teacher(options: TrainOptions, tokenizer: Tokenizer) -> Teacher | None:
    """Loads the teacher of a distillation and checks it against the student; None without one."""
    distillation = options.distillation
    if distillation.teacher is None:
        return None
    features = options.data.num_mel_bins, options.data.sample_rate_hz
    return load_teacher(distillation.teacher, tokenizer, *features, distillation.block_bytes)


def _closing_lines(trainer: Trainer, folder: Path, seconds: float) -> list[str]:
    """What a finished training has to say."""
    found = {type(callback): callback for callback in trainer.callbacks}  # type: ignore[attr-defined]
    took = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
    lines = [f"{trainer.global_step} steps in {took}: {folder}/checkpoints/last.ckpt"]
    stopping, averaged = found.get(EarlyStopping), found[Checkpoints].averaged
    if stopping is not None and stopping.stopped:
        lines.insert(0, stopping.describe())
    if averaged:
        lines.insert(-1, f"{folder}/checkpoints/average.ckpt: the mean of the {len(averaged)} best")
    log = found[StepLog]
    if trainer.is_global_zero and (skipped := log.total("skipped")):
        lines.insert(0, f"Skipped as their audio was read, in all epochs: {skipped} utterances")
    if trainer.is_global_zero and (left_out := log.total("left_out")):
        told = f"Left out, since their gradient was not finite: {left_out} steps"
        lines.insert(0, f"{told} ({folder}/nonfinite.jsonl)")
    return lines


def _data(options: TrainOptions, start: WarmStart | None, print_: Any) -> SpeechDataModule:
    """The data module, set up: manifests checked, tokenizer made, blank's range known."""
    for key in ("train_manifest", "valid_manifest", "replay_manifest"):
        given = getattr(options.data, key)
        if given is not None and (problem := missing_manifest(given)):
            raise ConfigError(f"`data.{key}` must be a file, but {problem}")
    bytes_per_logit = getattr(torch, options.loss.dtype).itemsize
    try:
        datamodule = SpeechDataModule(
            options.data,
            blank=options.loss.blank,
            bytes_per_logit=bytes_per_logit,
            bound=lattice_bound(options),
            tokenizer=partial(start.make_tokenizer, options) if start else None,
            cmvn=start.cmvn if start else None,
        )
        datamodule.setup("fit")
    except ManifestError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from error
    starts = [f"Starts from the weights in {start.path}", *start.notes] if start else []
    print_("\n".join([datamodule.describe(), *starts]))
    return datamodule


def build_trainer(
    options: TrainOptions, folder: Path, datamodule: SpeechDataModule, first: Sequence[Callback]
) -> Trainer:
    """Builds Lightning's trainer with this project's callbacks.

    Validation counts optimiser steps.

    Args:
        options: of the training.
        folder: of the run.
        datamodule: set up.
        first: callbacks that stand before all others.
    """
    settings = options.trainer
    nonfinite = NonfiniteSteps(folder, settings.max_nonfinite_steps)
    checkpoints = Checkpoints(
        folder / "checkpoints",
        settings.checkpoint_every_steps,
        settings.val_every_steps,
        settings.save_top_k,
        settings.average_top_k,
        nonfinite,
    )
    patience, min_delta = settings.early_stop_patience, settings.early_stop_min_delta
    assert datamodule.train_dataset is not None
    callbacks: list[Callback] = [
        *first,
        StepSeeds(options.seed),
        NoiseRamp(datamodule.train_dataset, settings.ramp_epochs, settings.ramp_db),
        StepLog(folder / "metrics.csv"),
        ThreadWatch(options.model.encoder.encoder_dim, _printer()),
        nonfinite,
        UnheardSteps(),
    ]
    if settings.accumulate_grad_batches > 1:
        callbacks.append(ValidationSteps(settings.val_every_steps))
    callbacks += [] if patience is None else [EarlyStopping(patience, min_delta)]
    arguments = trainer_arguments(settings)
    on_npu = arguments["accelerator"] == "npu"
    callbacks += [NpuRandomStates()] if on_npu else []
    memory = memory_line if on_npu else None
    callbacks += [StepProgress(memory=memory)] if settings.progress_bar else []
    arguments["plugins"].append(AtomicCheckpointIO())
    try:
        return Trainer(
            **arguments,
            max_steps=settings.max_steps,
            max_epochs=settings.max_epochs,
            accumulate_grad_batches=settings.accumulate_grad_batches,
            val_check_interval=settings.val_every_steps * settings.accumulate_grad_batches,
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            logger=TensorBoardLogger(folder, name="tb", version=""),
            callbacks=[*callbacks, checkpoints, Termination(checkpoints)],
            use_distributed_sampler=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
    except (ValueError, TypeError, MisconfigurationException) as error:
        raise ConfigError(
            "`trainer` must be something that Lightning can run here, but it says: "
            + " ".join(str(error).split())
        ) from error


def _is_first_process() -> bool:
    """Returns whether this process begins a training and starts those of other ranks."""
    return getattr(rank_zero_only, "rank", 0) == 0 and os.environ.get("NODE_RANK", "0") == "0"


def _printer() -> Any:
    """Prints on stderr, once for all ranks."""
    first = _is_first_process()
    return lambda text: print(text, file=sys.stderr) if first else None


def _quiet() -> None:
    """Silences Lightning's tips and hints, which say nothing about a run; errors stay."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    for pattern in (
        ".*does not have many workers.*",
        ".*isinstance.*treespec.*",
        r".*module\(s\) in eval mode.*",
        ".*smaller than the logging.*",
        "(?s).*Grad strides do not match bucket view strides.*",
    ):
        warnings.filterwarnings("ignore", pattern)


def cli(arguments: Sequence[str] | None = None) -> None:
    """Runs the command and ends the program; see `--help`."""
    run_entry("train", main, BAD_INPUT, arguments=arguments)


if __name__ == "__main__":
    cli()
