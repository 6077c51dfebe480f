"""Trains a transducer: assembles data, model, trainer and callbacks from the config.

``python -m asr_ascend.train experiment=demo [key=value]``
"""

from __future__ import annotations

import os

# Read when torch loads OpenMP. By default its threads spin for milliseconds while they wait, and
# where another process uses a core a step then takes ten times as long; where they sleep at once, a
# step of a small model on two idle cores takes half as long again.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

import json
import logging
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.loggers import TensorBoardLogger

from asr_ascend.callbacks import NoiseRamp, StepLog, StepProgress, StepSeeds
from asr_ascend.checkpoint import KEY, AtomicCheckpointIO, CheckpointError, read_checkpoint
from asr_ascend.config import run_entry
from asr_ascend.config_rules import ConfigError
from asr_ascend.data.acoustics.folder import INDEX
from asr_ascend.data.datamodule import SpeechDataModule
from asr_ascend.data.manifest import ManifestError
from asr_ascend.fingerprint import fingerprint
from asr_ascend.models import build_transducer
from asr_ascend.module import TransducerModule
from asr_ascend.saving import Checkpoints, EarlyStopping
from asr_ascend.teacher import Teacher, load_teacher
from asr_ascend.tokenizer import Tokenizer
from asr_ascend.warm_start import WarmStart

RUN_FILE = "run.json"


def main(config: dict[str, Any]) -> int:
    """Trains as `config` says, unless that very run is already there; the exit status."""
    folder = Path(config["output_dir"])
    print_ = _printer()
    digest = fingerprint(config, _files(config))
    run = _read_run(folder)
    if run.get("fingerprint") == digest and run.get("finished") and not config["force"]:
        print_(f"{folder} holds this very run, finished; force=true trains again.")
        return 0
    ckpt_path = _resume_from(config, folder, run, digest, print_)
    _quiet()
    if config["trainer"]["num_threads"]:
        torch.set_num_threads(config["trainer"]["num_threads"])
    seed_everything(config["seed"], verbose=False)
    start = WarmStart.read(config["init_from"]) if config["init_from"] else None
    datamodule = _data(config, start, print_)
    tokenizer = datamodule.tokenizer
    assert datamodule.cmvn is not None
    if ckpt_path is not None:
        _check_vocabulary(ckpt_path, tokenizer.pieces)
    model = build_transducer(tokenizer.vocab_size, tokenizer.blank, config["model"])
    model.set_cmvn(datamodule.cmvn.mean, datamodule.cmvn.std)
    if start is not None:
        start.load_into(model, tokenizer)
        config["loss"]["blank"] = tokenizer.blank  # -1 was the last of the checkpoint's vocabulary
    module = TransducerModule(model, tokenizer, config, _teacher(config, tokenizer))
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", config)
    _write_json(folder / RUN_FILE, {"fingerprint": digest, "finished": False})
    trainer = build_trainer(config, folder, datamodule)
    started = time.monotonic()
    trainer.fit(module, datamodule=datamodule, ckpt_path=ckpt_path, weights_only=True)
    seconds = time.monotonic() - started
    run = {"fingerprint": digest, "finished": True, "steps": trainer.global_step}
    _write_json(folder / RUN_FILE, {**run, "seconds": round(seconds, 1)})
    for line in _closing_lines(trainer, folder, seconds):
        print_(line)
    return 0


def _teacher(config: dict[str, Any], tokenizer: Tokenizer) -> Teacher | None:
    """The teacher of a distillation, checked against the student; None where there is none."""
    options = config["distillation"]
    if options["teacher"] is None:
        return None
    bins = config["model"]["num_mel_bins"]
    return load_teacher(options["teacher"], tokenizer, bins, options["block_bytes"])


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
    skipped = found[StepLog].skipped() if trainer.is_global_zero else 0
    if skipped:
        lines.insert(0, f"Skipped as their audio was read, in all epochs: {skipped} utterances")
    return lines


def _data(config: dict[str, Any], start: WarmStart | None, print_: Any) -> SpeechDataModule:
    """The data module, set up: manifests checked, tokenizer made, blank's range known."""
    for key in ("train_manifest", "valid_manifest", "replay_manifest"):
        given = config["data"][key]
        path = Path(given or "")
        if given is not None and not path.is_file():
            raise ConfigError(
                f"`data.{key}` must be a file, but {path} is not there. The embedded corpus is "
                f"made by: python -m asr_ascend.data.synthesis --out {path.parent}"
            )
    bytes_per_logit = getattr(torch, config["loss"]["dtype"]).itemsize
    try:
        datamodule = SpeechDataModule(
            **config["data"],
            blank=config["loss"]["blank"],
            bytes_per_logit=bytes_per_logit,
            tokenizer=partial(start.make_tokenizer, config) if start else None,
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


def build_trainer(config: dict[str, Any], folder: Path, datamodule: SpeechDataModule) -> Trainer:
    """Lightning's trainer with this project's callbacks; validation counts optimiser steps."""
    settings = config["trainer"]
    checkpoints = Checkpoints(
        folder / "checkpoints",
        settings["checkpoint_every_steps"],
        settings["val_every_steps"],
        settings["save_top_k"],
        settings["average_top_k"],
    )
    patience, min_delta = settings["early_stop_patience"], settings["early_stop_min_delta"]
    assert datamodule.train_dataset is not None
    callbacks: list[Callback] = [
        StepSeeds(config["seed"]),
        NoiseRamp(datamodule.train_dataset, settings["ramp_epochs"], settings["ramp_db"]),
        StepLog(folder / "metrics.csv"),
    ]
    callbacks += [StepProgress()] if settings["progress_bar"] else []
    callbacks += [] if patience is None else [EarlyStopping(patience, min_delta)]
    return Trainer(
        max_steps=settings["max_steps"],
        max_epochs=settings["max_epochs"],
        accelerator=settings["accelerator"],
        devices=settings["devices"],
        strategy=settings["strategy"],
        precision=settings["precision"],
        accumulate_grad_batches=settings["accumulate_grad_batches"],
        val_check_interval=settings["val_every_steps"] * settings["accumulate_grad_batches"],
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        logger=TensorBoardLogger(folder, name="tb", version=""),
        callbacks=[*callbacks, checkpoints],
        plugins=[AtomicCheckpointIO()],
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def _resume_from(
    config: dict[str, Any], folder: Path, run: dict[str, Any], digest: str, print_: Any
) -> str | None:
    """Checkpoint to go on from, checked; None for a fresh start."""
    if config["ckpt_path"] is not None:
        if "optimizer_states" not in read_checkpoint(config["ckpt_path"]):
            raise CheckpointError(
                f"{config['ckpt_path']} is an average without the optimiser's state, which can't "
                "be resumed; init_from starts a new run from it."
            )
        return str(config["ckpt_path"])
    last = folder / "checkpoints" / "last.ckpt"
    if not last.is_file() or run.get("finished"):
        return None
    if not config["resume"]:
        print_(
            f"{folder} holds an unfinished run, which starts again; resume=true goes on with it."
        )
        return None
    if run.get("fingerprint") != digest:
        print_(f"{folder} holds a run of another config or sources: training starts afresh.")
        return None
    print_(f"Going on from step {read_checkpoint(last)['global_step']} of {last}.")
    return str(last)


def _check_vocabulary(ckpt_path: str, pieces: list[str]) -> None:
    saved = Tokenizer.from_state_dict(read_checkpoint(ckpt_path)[KEY]["tokenizer"]).pieces
    if saved != pieces:
        raise ConfigError(
            f"{ckpt_path} has a vocabulary of {len(saved)} pieces that differs from the "
            f"{len(pieces)} of this training set, or blank stands elsewhere."
        )


def _files(config: dict[str, Any]) -> list[Path]:
    """What the run reads: manifests, the indices of noise banks and rooms, checkpoints."""
    data = config["data"]
    manifests = [value for key, value in data.items() if key.endswith("_manifest")]
    folders = [*(data["noise_banks"] or []), *(data["valid_noise_banks"] or []), data["rooms_dir"]]
    indices = [Path(folder) / INDEX for folder in folders if folder]
    checkpoints = [config["init_from"], config["distillation"]["teacher"]]
    paths = [Path(path) for path in [*manifests, *checkpoints] if path]
    return [*paths, *indices]


def _read_run(folder: Path) -> dict[str, Any]:
    try:
        contents = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return contents if isinstance(contents, dict) else {}


def _write_json(path: Path, contents: dict[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(
        json.dumps(contents, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
    )
    temporary.replace(path)


def _printer() -> Any:
    """Prints on stderr, once for all ranks."""
    first = os.environ.get("LOCAL_RANK", "0") == "0"
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


def cli() -> None:
    """The command: see `--help`."""
    run_entry("train", main, (CheckpointError, ManifestError))


if __name__ == "__main__":
    cli()
