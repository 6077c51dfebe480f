"""What the fused joiner loss buys: time, memory, the batch that fits, and approximate gradients.

  python -m benchmarks.joiner           all of it, at the documented sizes: tens of minutes
  python -m benchmarks.joiner speed --shape 2 200 50 5000 --hidden 512 --json joiner.json
  python -m benchmarks.joiner capacity
  python -m benchmarks.joiner bands --shape 8 500 100 500
  python -m benchmarks.joiner dropping --checkpoint outputs/demo/checkpoints/last.ckpt

No speed is printed unless value and gradients agree. Peaks are read from the kernel, in a fresh
process for each figure.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from asr_ascend.losses import joiner_rnnt_loss, pruned_band, rnnt_loss, simple_rnnt_loss
from asr_ascend.models.joiner import packed_cells
from asr_ascend.system.atomic import write_json
from asr_ascend.system.command import run_command
from benchmarks import machine

GIBIBYTE = 2**30
FUSED = ("fused", "chunked")
SYMBOLS_PER_FRAME = 5


class Problem:
    """Random inputs of one shape, every utterance of full length."""

    def __init__(self, shape: list[int], hidden: int) -> None:
        B, T, U, V = shape
        generator = torch.Generator().manual_seed(0)

        def normal(*size: int, scale: float) -> Tensor:
            return (scale * torch.randn(*size, generator=generator)).requires_grad_()

        self.encoder = normal(B, T, hidden, scale=0.3)
        self.predictor = normal(B, U + 1, hidden, scale=0.3)
        self.weight = normal(V, hidden, scale=0.05)
        self.bias = normal(V, scale=0.1)
        self.targets = torch.randint(1, V, (B, U), generator=generator)
        self.frames, self.labels = torch.full((B,), T), torch.full((B,), U)
        heard = torch.linspace(0, T - 1, U).long().expand(B, U)
        self.windows = torch.stack([heard - 1, heard + 5], dim=-1)
        self.simple_weight = normal(V, hidden, scale=0.05)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.encoder, self.predictor, self.weight, self.bias

    @property
    def indices(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.targets, self.frames, self.labels

    def packed(self) -> Tensor:
        """Joiner over packed rows, then `rnnt_loss`."""
        sample, t, u = packed_cells(self.frames, self.labels + 1, torch.device("cpu"))
        hidden = self.encoder.flatten(0, 1).index_select(0, sample * self.encoder.shape[1] + t)
        row = sample * self.predictor.shape[1] + u
        hidden += self.predictor.flatten(0, 1).index_select(0, row)
        logits = torch.nn.functional.linear(hidden.tanh_(), self.weight, self.bias)
        return rnnt_loss(logits, *self.indices, blank=0, reuse_logits=True)

    def fused(self) -> Tensor:
        return joiner_rnnt_loss(*self.inputs, *self.indices, blank=0)

    def chunked(self) -> Tensor:
        return joiner_rnnt_loss(*self.inputs, *self.indices, blank=0, max_bytes=2**24)

    def windows_band(self) -> Tensor:
        """Windows of [1, 5] frames, as the recipe has them: their band alone is computed."""
        options = {"blank": 0, "emission_windows": self.windows}
        return joiner_rnnt_loss(*self.inputs, *self.indices, **options)

    def windows_every_cell(self) -> Tensor:
        """The same windows, and a band of every cell."""
        B, T, U1 = len(self.frames), int(self.frames[0]), int(self.labels[0]) + 1
        every_cell = torch.tensor([0, U1 - 1]).expand(B, T, 2)
        options = {"blank": 0, "emission_windows": self.windows, "band": every_cell}
        return joiner_rnnt_loss(*self.inputs, *self.indices, **options)

    def _simple_tables(self) -> tuple[Tensor, Tensor]:
        return self.encoder @ self.simple_weight.T, self.predictor @ self.simple_weight.T

    def pruned(self) -> Tensor:
        """Simple loss, its band of 5 columns a frame, and the joiner's loss in it."""
        simple, occupancies = simple_rnnt_loss(
            *self._simple_tables(),
            *self.indices,
            0,
            lm_only_scale=0.25,
            return_occupancies=True,
        )
        lengths = self.indices[1:]
        band = pruned_band(occupancies, *lengths, symbols_per_frame=SYMBOLS_PER_FRAME)
        pruned = joiner_rnnt_loss(*self.inputs, *self.indices, blank=0, band=band)
        return 0.5 * simple + pruned

    def fast_rnnt(self) -> Tensor:
        """The same as fast_rnnt has it."""
        import fast_rnnt

        am, lm = self._simple_tables()
        T, U = self.frames, self.labels
        boundary = torch.stack([torch.zeros_like(T), torch.zeros_like(T), U, T], dim=1)
        simple, (px_grad, py_grad) = fast_rnnt.rnnt_loss_smoothed(
            lm, am, self.targets, 0, 0.25, 0.0, boundary, reduction="mean", return_grad=True
        )
        ranges = fast_rnnt.get_rnnt_prune_ranges(px_grad, py_grad, boundary, SYMBOLS_PER_FRAME)
        rows = fast_rnnt.do_rnnt_pruning(am=self.encoder, lm=self.predictor, ranges=ranges)
        logits = torch.nn.functional.linear(torch.tanh(sum(rows)), self.weight, self.bias)
        pruned = fast_rnnt.rnnt_loss_pruned(
            logits, self.targets, ranges, 0, boundary, reduction="mean"
        )
        return 0.5 * simple + pruned

    def torchaudio(self) -> Tensor:
        from torchaudio.functional import rnnt_loss as torchaudio_loss

        hidden = torch.tanh(self.encoder[:, :, None] + self.predictor[:, None])
        logits = torch.nn.functional.linear(hidden, self.weight, self.bias)
        indices = (index.int() for index in self.indices)
        return torchaudio_loss(logits, *indices, blank=0)

    def step(self, name: str) -> tuple[float, list[Tensor]]:
        """Forward and backward once: value, and the gradients it left."""
        for leaf in self.inputs:
            leaf.grad = None
        loss = getattr(self, name)()
        loss.backward()
        return float(loss.detach()), [leaf.grad for leaf in self.inputs if leaf.grad is not None]


def memory(field: str) -> int:
    """Bytes of a field of /proc/self/status."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split(field + ":")[1].split()[0])


def measure_peak(
    name: str, shape: list[int], hidden: int, from_inputs: bool, limit: int | None
) -> int:
    """Peak bytes of a step above what was there after the imports, or with the inputs made.

    Above ``limit`` the process ends at once: how far it would have gone isn't asked.
    """
    if name == "torchaudio":
        import torchaudio.functional  # noqa: F401
    problem = Problem([1, 2, 1, 8], 8)
    problem.step(name)  # loads libraries, starts threads
    before = memory("VmRSS")
    problem = Problem(shape, hidden)
    if from_inputs:
        before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    if limit is not None:
        threading.Thread(target=stop_above, args=(before + limit, before), daemon=True).start()
    problem.step(name)
    return memory("VmHWM") - before


def stop_above(limit: int, before: int) -> None:
    """Ends the process when its peak passes ``limit``, and prints the peak so far."""
    while memory("VmHWM") <= limit:
        time.sleep(0.02)
    print(memory("VmHWM") - before, flush=True)
    os._exit(0)


def peak(
    name: str,
    shape: list[int],
    hidden: int,
    from_inputs: bool,
    threads: int,
    limit: int | None = None,
) -> int:
    """`measure_peak` in a process of its own."""
    case = json.dumps([name, shape, hidden, from_inputs, limit, threads])
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.joiner", "--measure-peak", case],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return int(done.stdout)


def largest_difference(actual: list[Tensor], expected: list[Tensor]) -> float:
    """Of any gradient, relative to its own largest component."""
    return max(
        float((a - e).abs().max() / e.abs().max()) for a, e in zip(actual, expected, strict=True)
    )


def speed(arguments: argparse.Namespace) -> dict[str, object]:
    """Joiner and loss apart and in one, interleaved; and the peak memory of each."""
    problem = Problem(arguments.shape, arguments.hidden)
    names = ("packed", *FUSED)
    value, gradients = problem.step("packed")
    for name in FUSED:
        other_value, other_gradients = problem.step(name)
        error = largest_difference(other_gradients, gradients)
        if abs(other_value - value) > 1e-5 * abs(value) or error > 1e-4:
            raise SystemExit(f"{name} gives {other_value} for {value}, gradients differ by {error}")
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for r in range(arguments.repeats):
        start_with = r % len(names)  # who comes after whom changes from round to round
        for name in (*names[start_with:], *names[:start_with]):
            start = time.perf_counter()
            problem.step(name)
            seconds[name].append(time.perf_counter() - start)
    del problem, gradients, other_gradients

    B, T, U, V = arguments.shape
    logits = 4 * B * T * (U + 1) * V
    ratios = {
        name: sorted(s / p for s, p in zip(seconds[name], seconds["packed"], strict=True))
        for name in names
    }
    print(f"B, T, U, V = {arguments.shape}, H = {arguments.hidden}, {arguments.threads} threads")
    print(f"{'':8}  median s   to packed (spread)     peak MB  of all logits  of one sample's")
    rows = {}
    for name in names:
        high = peak(name, arguments.shape, arguments.hidden, True, arguments.threads)
        middle, ratio = sorted(seconds[name]), ratios[name]
        rows[name] = {"seconds": seconds[name], "peak_bytes": high}
        print(
            f"{name:8}  {middle[len(middle) // 2]:8.3f}   {ratio[len(ratio) // 2]:.3f} "
            f"({ratio[0]:.3f}-{ratio[-1]:.3f})   {high / 1e6:10.0f}  {high / logits:13.3f} "
            f"{B * high / logits:16.3f}"
        )
    return {"shape": arguments.shape, "hidden": arguments.hidden, "results": rows}


def capacity(arguments: argparse.Namespace) -> dict[str, object]:
    """The most utterances of T=500, U=100, V=5000 whose peak stays under a limit."""
    T, U, V = 500, 100, 5000
    limit = int(arguments.limit_gib * GIBIBYTE)
    results: dict[str, object] = {}
    print(f"utterances of T={T}, U={U}, V={V}, H={arguments.hidden} under {limit / 2**30:.1f} GiB")

    def high(name: str, count: int) -> int:
        shape = [count, T, U, V]
        found = peak(name, shape, arguments.hidden, False, arguments.threads, limit)
        shown = f"{found / 2**30:.3f} GiB" if found < limit else "above the limit"
        print(f"  {name}: {count} utterances, peak {shown}", flush=True)
        return found

    for name in ("torchaudio", "packed"):
        count, peaks = 0, []
        while not peaks or peaks[-1] < limit:
            count += 1
            peaks.append(high(name, count))
        results[name] = {"most": count - 1, "peak_bytes": peaks}
        print(f"{name}: {count - 1}")
    for name in FUSED:
        few, more = arguments.counts
        low_peak, high_peak = high(name, few), high(name, more)
        per_utterance = (high_peak - low_peak) / (more - few)
        # Backward holds inputs, sums and gradients, without the logits, which are gone by then.
        in_backward = 3 * 4 * arguments.hidden * (T + U + 1)
        most = min(few + int((limit - low_peak) / per_utterance), limit // in_backward)
        results[name] = {
            "measured": {few: low_peak, more: high_peak},
            "bytes_per_utterance": per_utterance,
            "most_extrapolated": most,
        }
        print(
            f"{name}: {per_utterance / 1e6:.2f} MB for each further utterance, so about {most} "
            f"(extrapolated from {few} and {more})"
        )
    return results


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what", nargs="?", default="all", choices=("all", "speed", "bands", "capacity", "dropping")
    )
    parser.add_argument("--shape", type=int, nargs=4, default=[8, 500, 100, 5000])
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--limit-gib", type=float, default=4.0)
    parser.add_argument("--counts", type=int, nargs=2, default=[2, 8], help="of the fused ways")
    parser.add_argument("--checkpoint", default="outputs/demo/checkpoints/last.ckpt")
    parser.add_argument("--manifest", default="data/demo/commands.jsonl")
    parser.add_argument("--snr-db", type=float, default=5.0)
    parser.add_argument("--utterances", type=int, default=16)
    parser.add_argument("--plot", default="joiner_dropping.png")
    parser.add_argument("--json", help="file for all figures, with machine and commit")
    parser.add_argument("--measure-peak", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure_peak:
        *case, threads = json.loads(arguments.measure_peak)
        torch.set_num_threads(threads)
        print(measure_peak(*case))
        return 0
    torch.set_num_threads(arguments.threads)
    figures: dict[str, object] = {**machine.describe(), "threads": arguments.threads}
    parts: dict[str, Callable[[argparse.Namespace], dict[str, object]]]
    parts = {"speed": speed, "bands": bands, "capacity": capacity, "dropping": dropping}
    for name, part in parts.items():
        if arguments.what in ("all", name):
            figures[name] = part(arguments)
    if arguments.json:
        write_json(Path(arguments.json), figures)
    return 0


def bands(arguments: argparse.Namespace) -> dict[str, object]:
    """What a band saves: see joiner_bands.py."""
    from benchmarks.joiner_bands import measure

    return measure(arguments)


def dropping(arguments: argparse.Namespace) -> dict[str, object]:
    """max_dropped_mass on a trained model: see joiner_dropping.py."""
    from benchmarks.joiner_dropping import measure

    return measure(arguments)


if __name__ == "__main__":
    sys.exit(run_command(main))
