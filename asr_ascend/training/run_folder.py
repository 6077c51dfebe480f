"""The folder of a training run: what is there already, whether to go on with it, its record."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from asr_ascend.checkpoints.checkpoint import CheckpointError, read_checkpoint, read_config
from asr_ascend.config.composing import made_by
from asr_ascend.config.keys import ConfigError, plain_value
from asr_ascend.config.train_options import TrainOptions
from asr_ascend.system.atomic import write_json
from asr_ascend.system.paths import folder_fault

RECORD = "run.json"
CONFIG = "config.json"


class RunFolder:
    """What a run's folder holds as a training starts; it only reads.

    Args:
        options: of the training.
        digest: of config, sources and what the run reads (see `fingerprint`).
    """

    def __init__(self, options: TrainOptions, digest: str) -> None:
        self.options = options
        self.digest = digest
        self.path = Path(options.output_dir)
        self.record = _read_json(self.path / RECORD)

    @property
    def finished(self) -> bool:
        """Whether this very run is there, finished, and is not to be repeated."""
        same = self.record.get("fingerprint") == self.digest
        return bool(same and self.record.get("finished") and not self.options.force)

    def resume_from(self, say: Callable[[str], None]) -> str | None:
        """Checkpoint to go on from, checked; None for a fresh start, in which the old run goes.

        Args:
            say: takes the sentences that a user should read.

        Raises:
            CheckpointError: `ckpt_path` can't be resumed.
            ConfigError: a checkpoint to start from is missing, or would be taken away by a fresh
                start; a folder that is none.
        """
        if fault := folder_fault(self.path, for_tensorboard=True):
            raise ConfigError(f"`output_dir` must be a folder, but {fault}.")
        self._check_checkpoints()
        ckpt_path = self.options.ckpt_path
        if ckpt_path is not None:
            self._check_resumable(ckpt_path)
            return str(ckpt_path)
        last = self.path / "checkpoints" / "last.ckpt"
        same = self.record.get("fingerprint") == self.digest
        if last.is_file() and same and self.options.resume and not self.record.get("finished"):
            say(f"Going on from step {read_checkpoint(last)['global_step']} of {last}.")
            return str(last)
        self._check_own_checkpoints()
        if last.is_file():
            say(f"{self.path} holds {self._old_run()}")
        return None

    def _check_resumable(self, path: str) -> None:
        """A run that goes on has the same parameters in the same groups, and steps to do."""
        contents = read_checkpoint(path)
        if "optimizer_states" not in contents:
            raise CheckpointError(
                f"{path} is an average without the optimiser's state, which can't "
                "be resumed; init_from starts a new run from it."
            )
        ours, theirs = map(_parameter_keys, (self.options, read_config(path, contents)))
        for key in sorted({*ours, *theirs}):
            here, there = ours.get(key, "absent"), theirs.get(key, "absent")
            if here != there:
                raise ConfigError(
                    f"`{key}` must be {_shown(there)}, as in {path}, to go on with it, but is "
                    f"{_shown(here)}; "
                    "init_from starts a new run from its weights."
                )
        limit, step = self.options.trainer.max_steps, int(contents["global_step"])
        if limit != -1 and step >= limit:
            raise ConfigError(
                f"`trainer.max_steps` must be above {step}, the step of {path}, but is {limit}."
            )

    def _old_run(self) -> str:
        """What is in the folder, and what becomes of it at a fresh start."""
        same = self.record.get("fingerprint") == self.digest
        if self.record.get("finished"):
            kind = "this very run" if same else "a run of another config or sources"
            return f"{kind}, finished, which this one replaces; name=... keeps both."
        if self.options.resume:
            return "a run of another config or sources: training starts afresh."
        return "an unfinished run, which starts again; resume=true goes on with it."

    def _starting_points(self) -> dict[str, str | None]:
        """The checkpoints that a fresh run reads, by their keys."""
        return {
            "init_from": self.options.init_from,
            "distillation.teacher": self.options.distillation.teacher,
        }

    def _check_checkpoints(self) -> None:
        for key, path in self._starting_points().items():
            if path is not None and not Path(path).expanduser().is_file():
                raise ConfigError(
                    f"`{key}` must be a checkpoint, but {path} is not a file.{made_by(path)}"
                )

    def _check_own_checkpoints(self) -> None:
        """A fresh run takes the checkpoints in its folder away."""
        own = (self.path / "checkpoints").resolve()
        for key, path in self._starting_points().items():
            if path is not None and Path(path).expanduser().resolve().parent == own:
                raise ConfigError(
                    f"`{key}` must lie outside {self.path}, whose checkpoints this run replaces, "
                    f"but is {path}; name=... gives the run a folder of its own."
                )


class RunRecord(Callback):
    """Writes run.json and config.json, and takes an old run's checkpoints away at a fresh start.

    All ranks decide by the old run.json whether to go on. It is written here, by the first of them,
    since `setup` comes after a barrier that each reaches with its mind made up. The checkpoints go
    before it is written: killed between, a run is not taken for the owner of another's.

    Args:
        folder: of the run.
        options: as the run uses them.
        fresh: whether it starts from step 0.
    """

    def __init__(self, folder: RunFolder, options: TrainOptions, fresh: bool) -> None:
        self.folder = folder
        self.options = options
        self.fresh = fresh

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if not trainer.is_global_zero:
            return
        self.folder.path.mkdir(parents=True, exist_ok=True)
        for path in (self.folder.path / "checkpoints").glob("*.ckpt") if self.fresh else ():
            path.unlink()
        write_json(self.folder.path / CONFIG, self.options.plain())
        self._write({"finished": False})

    def finish(self, trainer: Trainer, seconds: float) -> None:
        """Says in run.json that the run has ended, after so many seconds."""
        if trainer.is_global_zero:
            took = {"steps": trainer.global_step, "seconds": round(seconds, 1)}
            self._write({"finished": True, **took})

    def _write(self, values: dict[str, Any]) -> None:
        write_json(self.folder.path / RECORD, {"fingerprint": self.folder.digest, **values})


def _parameter_keys(options: TrainOptions) -> dict[str, Any]:
    """Keys that parameters and their groups follow from, by their whole names."""
    model, optimizer = options.model.plain(), options.optimizer
    return {
        **{f"model.{k}": value for k, value in model.items() if not k.endswith("dropout")},
        "trainer.freeze": plain_value(options.trainer.freeze),
        "optimizer.layer_decay": optimizer.layer_decay,
        "optimizer.lr_factors": optimizer.lr_factors,
    }


def _shown(value: Any) -> str:
    return "null" if value is None else str(value)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return contents if isinstance(contents, dict) else {}
