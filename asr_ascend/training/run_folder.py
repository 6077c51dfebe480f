"""The folder of a training run: what is there already, whether to go on with it, its record."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from asr_ascend.checkpoints.checkpoint import CheckpointError, read_checkpoint, read_config
from asr_ascend.config.composing import made_by
from asr_ascend.config.keys import ConfigError, plain_value
from asr_ascend.config.train_options import TrainOptions
from asr_ascend.system.atomic import write_json
from asr_ascend.system.locking import LockedError, locked
from asr_ascend.system.paths import folder_fault
from asr_ascend.training.identity import RunIdentity, describe_differences, known_keys

RECORD = "run.json"
CONFIG = "config.json"
LOCK = "run.lock"


class RunFolder:
    """What a run's folder holds as a training starts; only `locked` writes.

    A run is work of hours: what would replace one, or leave one unfinished, is refused, unless
    `force` asks for it. More steps go on with a run, and so does a run with changed sources.

    Args:
        options: of the training.
    """

    def __init__(self, options: TrainOptions) -> None:
        self.options = options
        self.path = Path(options.output_dir)
        self.last = self.path / "checkpoints" / "last.ckpt"
        ckpt_path = options.ckpt_path
        self.resumes_own = ckpt_path is not None and self.is_own(ckpt_path)
        other = None if self.resumes_own else ckpt_path
        self.identity = RunIdentity.of(options.plain(), other)
        self._read()

    def _read(self) -> None:
        self.record = _read_json(self.path / RECORD)
        old = RunIdentity.from_record(self.record.get("identity"))
        # An earlier version didn't have all keys, or didn't record them.
        self.old = replace(old, keys={**known_keys(_read_config(self.path / CONFIG)), **old.keys})
        if self.resumes_own:
            self.identity = self.identity.begun_as(self.old)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the folder within a `with` block, so that no other process trains there.

        Raises:
            ConfigError: another process trains there, or the folder can't be written to.
        """
        if fault := folder_fault(self.path, for_tensorboard=True):
            raise ConfigError(f"`output_dir` must be a folder, but {fault}.")
        lock = contextlib.ExitStack()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.enter_context(locked(self.path / LOCK))
        except LockedError as error:
            raise ConfigError(
                f"`output_dir` must be a folder in which no other training runs, but one runs in "
                f"{self.path}; name=... gives this run a folder of its own."
            ) from error
        try:
            with lock:
                self._read()
                yield
        finally:
            with contextlib.suppress(OSError):
                self.path.rmdir()  # only an empty one

    @property
    def finished(self) -> bool:
        """Whether this very run is there, finished, and is not to be repeated."""
        same = not self.identity.differences(self.old) and not self.identity.is_longer(self.old)
        return bool(same and self.record.get("finished") and not self.options.force)

    @property
    def holds_run(self) -> bool:
        """Whether there is anything that a fresh start would take away."""
        checkpoints = (self.path / "checkpoints").glob("*.ckpt")
        return bool(self.record.get("finished")) or any(checkpoints)

    def warn_of_sources(self, say: Callable[[str], None]) -> None:
        """Warns where the run in the folder was trained by other sources."""
        if self.old.sources not in ("", self.identity.sources):
            say(f"The sources of asr_ascend have changed since the run in {self.path} began.")

    def resume_from(self, say: Callable[[str], None]) -> str | None:
        """Returns the checkpoint to go on from, checked; None for a fresh start.

        Args:
            say: takes the sentences that a user should read.

        Raises:
            CheckpointError: `ckpt_path` can't be resumed.
            ConfigError: a checkpoint to start from is missing, or would be taken away by a fresh
                start; the folder holds a run that this one would replace.
        """
        self._check_checkpoints()
        ckpt_path, force = self.options.ckpt_path, self.options.force
        if ckpt_path is not None and self.resumes_own:
            self._check_resumable(ckpt_path)
            self._check_latest(ckpt_path)
            return str(ckpt_path)
        if not force and self.holds_run and self._goes_on():
            self._check_resumable(str(self.last))
            self.warn_of_sources(say)
            say(f"Going on from step {_step(self.last)} of {self.last}.")
            return str(self.last)
        self._check_own_checkpoints()
        if self.holds_run and not force:
            raise ConfigError(self._refusal())
        if ckpt_path is not None:
            self._check_resumable(ckpt_path)
        if self.holds_run:
            say(f"{self.path} holds {self._old_run()}, which this one replaces.")
        return None if ckpt_path is None else str(ckpt_path)

    def _goes_on(self) -> bool:
        """Whether the folder's run is this one, and is to go on."""
        same = not self.identity.differences(self.old) and self.last.is_file()
        more = self.record.get("finished") and self.identity.is_longer(self.old)
        return bool(same and (more or self.options.resume))

    def _refusal(self) -> str:
        """Why training doesn't start, and what can be done."""
        differences = self.identity.differences(self.old)
        ways = ["name=... trains in a folder of its own", "force=true replaces the old run"]
        if self.last.is_file():
            way = f"ckpt_path={self.last}" if differences else "resume=true"
            ways.insert(0, f"{way} goes on from it")
        differs = f": {describe_differences(differences)}" if differences else ""
        listed = ", ".join(ways[:-1]) + f", {ways[-1]}"
        return f"{self.path} holds {self._old_run()}{differs}. {listed}."

    def _old_run(self) -> str:
        kind = "another run" if self.identity.differences(self.old) else "this very run"
        if not self.record.get("finished"):
            return f"{kind}, unfinished"
        steps = self.record.get("steps")
        return f"{kind}, finished" + (f" after {steps} steps" if steps is not None else "")

    def _check_latest(self, path: str) -> None:
        """A run that goes on from an earlier step loses the later ones."""
        if self.options.force or not self.last.is_file():
            return
        step, last = _step(Path(path)), _step(self.last)
        if step < last:
            raise ConfigError(
                f"`ckpt_path` must be the last checkpoint of {self.path}, of step {last}, but "
                f"{path} is of step {step}; name=... goes on from it in a folder of its own, "
                "force=true takes the later steps away."
            )

    def is_own(self, path: str) -> bool:
        """Returns whether a checkpoint lies in this run's folder of checkpoints."""
        return Path(path).expanduser().resolve().parent == self.last.parent.resolve()

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
        for key, path in self._starting_points().items():
            if path is not None and self.is_own(path):
                raise ConfigError(
                    f"`{key}` must lie outside {self.path}, whose checkpoints this run replaces, "
                    f"but is {path}; name=... gives the run a folder of its own."
                )


class RunRecord(Callback):
    """Writes run.json and config.json, and takes an old run's files away at a fresh start.

    All ranks decide by the old run.json whether to go on. It is written here, by the first of them,
    since `setup` comes after a barrier, and every rank has decided before the barrier. Old
    checkpoints are removed before run.json is written: a run that is killed between the two must
    not seem to own the checkpoints of another one.

    Args:
        folder: of the run.
        options: as the run uses them.
        fresh: whether it starts from no checkpoint of its own.
    """

    def __init__(self, folder: RunFolder, options: TrainOptions, fresh: bool) -> None:
        self.folder = folder
        self.options = options
        self.fresh = fresh

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Writes config.json and run.json; a fresh start first removes an old run's files."""
        if not trainer.is_global_zero:
            return
        if self.fresh and self.folder.holds_run:
            for path in (self.folder.path / "checkpoints").glob("*.ckpt"):
                path.unlink()
            (self.folder.path / "metrics.csv").unlink(missing_ok=True)
        write_json(self.folder.path / CONFIG, self.options.plain())
        self._write({"finished": False})

    def finish(self, trainer: Trainer, seconds: float) -> None:
        """Writes in run.json that the run has ended, after `seconds`."""
        if trainer.is_global_zero:
            took = {"steps": trainer.global_step, "seconds": round(seconds, 1)}
            self._write({"finished": True, **took})

    def _write(self, values: dict[str, Any]) -> None:
        identity = self.folder.identity.to_record()
        write_json(self.folder.path / RECORD, {**values, "identity": identity})


def _step(path: Path) -> int:
    return int(read_checkpoint(path)["global_step"])


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


def _read_config(path: Path) -> dict[str, Any]:
    """A config.json with the defaults of the keys that it doesn't have; {} where there is none."""
    try:
        return TrainOptions.read(_read_json(path), saved=True).plain()
    except ConfigError:
        return {}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return contents if isinstance(contents, dict) else {}
