"""One model from several checkpoints of a run: the mean of their weights.

``python -m asr_ascend.average outputs/demo``
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from asr_ascend.checkpoints.checkpoint import (
    AtomicCheckpointIO,
    CheckpointError,
    read_checkpoint,
    read_tokenizer,
)
from asr_ascend.checkpoints.fields import KEY
from asr_ascend.system.command import CommandParser, run_command
from asr_ascend.system.paths import folder_fault, path_argument

# The optimiser's state is not among it: a mean of it would mean nothing.
_KEPT = ("epoch", "global_step", "pytorch-lightning_version")


def average_checkpoints(paths: Sequence[Path]) -> dict[str, Any]:
    """Averages the weights of several checkpoints into the contents of a checkpoint.

    It loads as any other checkpoint does; `averaged` lists what went into it. The optimiser's state
    is left out: a new run can start from it (`init_from`), but no run can be resumed from it.

    Args:
        paths: one or more, the best first: it gives tokenizer, config, step and all that isn't a
            floating point number.

    Raises:
        CheckpointError: a checkpoint can't be read, `paths` is empty, or a vocabulary or model
            differs from the first one's.

    Source: Izmailov et al. 2018, "Averaging weights leads to wider optima and better
    generalization".
    """
    if not paths:
        raise CheckpointError("There is no checkpoint to average.")
    best = read_checkpoint(paths[0])
    sums = {name: _summand(value) for name, value in best["state_dict"].items()}
    averaged = [_origin(paths[0], best)]
    for path in paths[1:]:
        other = read_checkpoint(path)
        _check_same_model(paths[0], best, path, other)
        averaged.append(_origin(path, other))
        for name, value in other["state_dict"].items():
            if value.is_floating_point():
                sums[name] += value.double()
    contents = {key: best[key] for key in _KEPT if key in best}
    contents["state_dict"] = {
        name: (total / len(paths)).to(best["state_dict"][name].dtype)
        if total.is_floating_point()
        else total
        for name, total in sums.items()
    }
    contents[KEY] = {**best[KEY], "averaged": averaged}
    return contents


def best_checkpoints(folder: Path, count: int | None = None) -> list[Path]:
    """Returns the best checkpoints that a run kept, the lowest validation CER first.

    Args:
        folder: of the run, or its `checkpoints`.
        count: the most to return; None: all.

    Raises:
        CheckpointError: the folder holds no best checkpoint.
    """
    inner = folder / "checkpoints"
    inner = inner if inner.is_dir() else folder
    ranked = sorted(inner.glob("best-*.ckpt"), key=_stated_cer)
    if not ranked:
        raise CheckpointError(f"{inner} holds no best-*.ckpt.")
    return ranked[:count]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return run_command(lambda: _average(arguments), (CheckpointError,))


def _average(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    paths = list(options.source)
    if len(paths) == 1 and paths[0].is_dir():
        paths = best_checkpoints(paths[0], options.best)
    out = options.out or paths[0].parent / "average.ckpt"
    if out.is_dir():
        raise CheckpointError(f"--out must be a file, but {out} is a folder.")
    if fault := folder_fault(out.parent):
        raise CheckpointError(f"--out must be a file in a folder, but {fault}.")
    contents = average_checkpoints(paths)
    AtomicCheckpointIO().save_checkpoint(contents, out)
    print(f"{out}: the mean of {', '.join(path.name for path in paths)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="python -m asr_ascend.average",
        description="Writes the mean of the weights of several checkpoints as a checkpoint.",
    )
    help_source = "a run's folder, or checkpoints, the best first"
    parser.add_argument("source", type=path_argument, nargs="+", help=help_source)
    parser.add_argument(
        "--best", type=_count, metavar="K", help="of a folder, only the K best by validation CER"
    )
    parser.add_argument(
        "--out", type=path_argument, help="default: average.ckpt beside the first checkpoint"
    )
    return parser


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1, but is {text}")
    return int(text)


def _summand(value: Tensor) -> Tensor:
    return value.to(torch.float64, copy=True) if value.is_floating_point() else value


def _origin(path: Path, contents: Mapping[str, Any]) -> dict[str, Any]:
    return {"file": path.name, "step": int(contents["global_step"])}


def _stated_cer(path: Path) -> tuple[float, str]:
    """CER in the name of a file such as best-step000500-cer3.21.ckpt; without it the last."""
    stated = path.stem.rpartition("-cer")[2]
    try:
        return float(stated), path.name
    except ValueError:
        return float("inf"), path.name


def _check_same_model(
    first: Path, ours: Mapping[str, Any], path: Path, theirs: Mapping[str, Any]
) -> None:
    pieces = [read_tokenizer(*given).pieces for given in ((first, ours), (path, theirs))]
    if pieces[0] != pieces[1]:
        raise CheckpointError(f"{path} has another vocabulary than {first}.")
    shapes = [
        {name: (value.shape, value.dtype) for name, value in contents["state_dict"].items()}
        for contents in (ours, theirs)
    ]
    if shapes[0] != shapes[1]:
        raise CheckpointError(f"{path} has another model than {first}.")
