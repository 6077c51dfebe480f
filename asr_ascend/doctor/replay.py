"""A saved batch of the loss on a backend against float64; torch is imported, so not in the
doctor's own process."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from asr_ascend.doctor.tolerances import cost_tolerance, gradient_tolerance, outside
from asr_ascend.losses import layout, rnnt_loss_and_grad
from asr_ascend.training.saved_batch import SavedBatch, read_saved_batch


def describe(path: str) -> dict[str, Any]:
    """What is in a saved batch, its first logit that is not finite, and its costs in float64.

    Raises:
        SavedBatchError: it is no saved batch.
    """
    batch = _read(path)
    found: dict[str, Any] = {
        "utterances": len(batch.ids),
        "about": {name: str(value) for name, value in batch.about.items()},
        "statistics": {name: dict(value) for name, value in batch.statistics.items()},
        "logits": None,
    }
    logits = batch.logits
    if logits is not None:
        bad = (~logits.isfinite()).nonzero()
        found["logits"] = {
            "rows": logits.shape[0],
            "symbols": logits.shape[1],
            "dtype": str(logits.dtype).removeprefix("torch."),
            "not_finite": len(bad),
            "first": _cell(batch, *bad[0].tolist()) if len(bad) else None,
        }
    return found


def compare(path: str, backend: str) -> dict[str, Any]:
    """Costs and gradient of a saved batch on a backend, against the reference in float64.

    Args:
        path: of the file; it holds logits.
        backend: "cpu", "npu" or "reference".

    Returns:
        `refused`: why the backend doesn't take the batch, else None; `fault`: a sentence with the
        first cost or cell that differs, else None; `costs` and `exact`: of each utterance, as text.

    Raises:
        SavedBatchError: it is no saved batch.
    """
    batch = _read(path)
    assert batch.logits is not None
    found: dict[str, Any] = {"refused": None, "fault": None, "costs": [], "exact": []}
    try:
        costs, gradient = _run(batch, batch.logits, backend)
        exact_costs, exact = _exact(path)
    except (ValueError, TypeError, RuntimeError) as error:
        return {**found, "refused": str(error).splitlines()[0].rstrip(".")}
    found["costs"], found["exact"] = (
        [f"{x:.9g}" for x in y.tolist()] for y in (costs, exact_costs)
    )
    dtype = batch.logits.dtype
    off = outside(costs, exact_costs, cost_tolerance(exact_costs, dtype)).nonzero()
    if len(off):
        sample = int(off[0])
        found["fault"] = (
            f"{_count(len(off), len(batch.ids), 'cost')}; the first, of utterance "
            f"{batch.ids[sample]} (sample {sample}), is {costs[sample]:.9g}, "
            f"but must be {exact_costs[sample]:.9g}"
        )
    off = outside(gradient, exact, gradient_tolerance(exact, dtype)).nonzero()
    if len(off):
        row, symbol = off[0].tolist()
        sentence = (
            f"{_count(len(off), exact.numel(), 'gradient')}; the first, of "
            f"{_cell(batch, row, symbol)}, is {gradient[row, symbol]:.6g}, "
            f"but must be {exact[row, symbol]:.6g}"
        )
        found["fault"] = f"{found['fault']}; {sentence}" if found["fault"] else sentence
    return found


@functools.cache
def _read(path: str) -> SavedBatch:
    return read_saved_batch(path)


@functools.cache
def _exact(path: str) -> tuple[Tensor, Tensor]:
    batch = _read(path)
    assert batch.logits is not None
    return _run(batch, batch.logits.double(), "reference")


def _run(batch: SavedBatch, logits: Tensor, backend: str) -> tuple[Tensor, Tensor]:
    """Costs (B,) and gradient (N, V) on the CPU."""
    device = "npu" if backend == "npu" else "cpu"
    arguments = batch.loss_arguments()
    arguments["targets"] = arguments["targets"].to(device)
    costs, gradient = rnnt_loss_and_grad(logits.clone().to(device), backend=backend, **arguments)
    return costs.cpu(), gradient.cpu()


def _cell(batch: SavedBatch, row: int, symbol: int) -> str:
    """A place in packed logits, in words."""
    assert batch.logits is not None
    lengths = batch.logit_lengths, batch.target_lengths
    places = layout.packed_cells(len(batch.logits), *lengths, torch.device("cpu"), batch.band)
    sample, frame, label = (int(each[row]) for each in places)
    return (
        f"utterance {batch.ids[sample]} (sample {sample}), frame {frame}, label {label}, "
        f"symbol {symbol}"
    )


def _count(wrong: int, total: int, noun: str) -> str:
    return f"{wrong} of {total} {noun}s {'differs' if wrong == 1 else 'differ'}"
