"""Independent answers for the RNN-T loss: float64 lattices in plain Python.

Nothing here imports asr_ascend: the tests check these answers on their own, against torchaudio and
against exact decimal arithmetic (tests/expected), before they judge anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Case:
    """One batch of lattices, its logits packed: rows of sample b in order (t, u)."""

    logits: Tensor  # (N, V)
    targets: Tensor  # (B, max U)
    logit_lengths: Tensor  # (B,)
    target_lengths: Tensor  # (B,)
    blank: int = -1
    emission_windows: Tensor | None = None  # (B, max U, 2)

    @property
    def vocab(self) -> int:
        return self.logits.shape[1]

    @property
    def blank_index(self) -> int:
        return self.blank % self.vocab

    def samples(self) -> Iterator[tuple[slice, int, int, list[int]]]:
        """Rows, T, U and labels of each sample."""
        start = 0
        lengths = zip(self.logit_lengths.tolist(), self.target_lengths.tolist(), strict=True)
        for b, (frames, labels) in enumerate(lengths):
            rows = slice(start, start + frames * (labels + 1))
            yield rows, frames, labels, self.targets[b, :labels].tolist()
            start = rows.stop

    def windows_of(self, b: int) -> list[list[int]] | None:
        """First and last frame of each label of sample b."""
        if self.emission_windows is None:
            return None
        return self.emission_windows[b, : int(self.target_lengths[b])].tolist()

    def with_logits(self, logits: Tensor) -> Case:
        return replace(self, logits=logits)

    def padded_logits(
        self, fill: float = 0.0, extra_frames: int = 0, extra_columns: int = 0
    ) -> Tensor:
        """(B, T, U+1, V) logits, `fill` outside the lattices."""
        shape = (
            len(self.logit_lengths),
            int(self.logit_lengths.max()) + extra_frames,
            int(self.target_lengths.max()) + 1 + extra_columns,
            self.vocab,
        )
        padded = torch.full(shape, fill, dtype=self.logits.dtype)
        for b, (rows, frames, labels, _) in enumerate(self.samples()):
            block = self.logits[rows].reshape(frames, labels + 1, self.vocab)
            padded[b, :frames, : labels + 1] = block
        return padded

    def take_packed(self, padded: Tensor) -> Tensor:
        """The lattice cells of a padded tensor, in packed order."""
        blocks = [
            padded[b, :frames, : labels + 1].reshape(-1, padded.shape[-1])
            for b, (_, frames, labels, _) in enumerate(self.samples())
        ]
        return torch.cat(blocks)

    def outside_lattice(self, padded: Tensor) -> Tensor:
        """The cells of a padded tensor that belong to no lattice, as rows of V."""
        outside = torch.ones(padded.shape[:3], dtype=torch.bool)
        for b, (_, frames, labels, _) in enumerate(self.samples()):
            outside[b, :frames, : labels + 1] = False
        return padded[outside]

    def spread_over_rows(self, per_sample: Tensor) -> Tensor:
        """(B,) values repeated for each packed row, (N, 1)."""
        rows = self.logit_lengths.long() * (self.target_lengths.long() + 1)
        return per_sample.repeat_interleave(rows)[:, None]


def make_case(
    lengths: Sequence[tuple[int, int]],
    vocab: int,
    *,
    blank: int = -1,
    dtype: torch.dtype = torch.float32,
    scale: float = 1.0,
    seed: int = 0,
) -> Case:
    """Random normal logits times `scale`, for samples of (T, U); labels are never blank."""
    generator = torch.Generator().manual_seed(seed)
    num_rows = sum(frames * (labels + 1) for frames, labels in lengths)
    logits = torch.randn(num_rows, vocab, generator=generator)
    if scale != 1.0:
        logits = logits.mul_(scale)
    max_labels = max((labels for _, labels in lengths), default=0)
    targets = torch.randint(0, max(vocab - 1, 1), (len(lengths), max_labels), generator=generator)
    targets += (targets >= blank % vocab).long()
    return Case(
        logits.to(dtype),
        targets,
        torch.tensor([frames for frames, _ in lengths], dtype=torch.int64),
        torch.tensor([labels for _, labels in lengths], dtype=torch.int64),
        blank,
    )


# The float64 lattice, in plain Python.


@dataclass(frozen=True)
class Lattice:
    """Log-probabilities, alpha, beta and cost of one sample, float64."""

    log_norm: np.ndarray  # (T, U1)
    blank: np.ndarray  # (T, U1)
    label: np.ndarray  # (T, U1); -inf in the last column
    alpha: np.ndarray  # (T, U1)
    beta: np.ndarray  # (T + 1, U1 + 1): beta(T, U) = 0, -inf elsewhere outside
    cost: float


def log_add(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return math.nan
    high, low = max(a, b), min(a, b)
    if math.isinf(high) or math.isinf(low):
        return high
    return high + math.log1p(math.exp(low - high))


def log_norms(rows: np.ndarray) -> np.ndarray:
    """logsumexp over the last axis; NaN, as torch's softmax, for a row that has no softmax."""
    highest = rows.max(axis=-1)
    with np.errstate(invalid="ignore"):  # inf - inf, where all is -inf or one is +inf
        return highest + np.log(np.exp(rows - highest[..., None]).sum(axis=-1))


def build_lattice(
    logits: Tensor,
    frames: int,
    labels: list[int],
    blank: int,
    fused_log_softmax: bool = True,
    windows: list[list[int]] | None = None,
) -> Lattice:
    """The lattice of one sample whose (T * U1, V) logits are given."""
    columns = len(labels) + 1
    logits = logits.reshape(frames, columns, -1)
    log_norm = np.zeros((frames, columns))
    if fused_log_softmax:
        for t in range(frames):
            log_norm[t] = log_norms(logits[t].double().numpy())
    blank_lp = logits[:, :, blank].double().numpy() - log_norm
    label_lp = np.full((frames, columns), -np.inf)
    for u, label in enumerate(labels):
        label_lp[:, u] = logits[:, u, label].double().numpy() - log_norm[:, u]
        if windows is not None:
            t = np.arange(frames)
            label_lp[(t < windows[u][0]) | (t > windows[u][1]), u] = -np.inf
    alpha = forward_scores(blank_lp.tolist(), label_lp.tolist())
    beta = backward_scores(blank_lp.tolist(), label_lp.tolist())
    cost = -(alpha[frames - 1][columns - 1] + float(blank_lp[-1, -1]))
    return Lattice(log_norm, blank_lp, label_lp, np.array(alpha), np.array(beta), cost)


def forward_scores(blank: list[list[float]], label: list[list[float]]) -> list[list[float]]:
    frames, columns = len(blank), len(blank[0])
    alpha = [[-math.inf] * columns for _ in range(frames)]
    alpha[0][0] = 0.0
    for t in range(frames):
        for u in range(columns):
            score = alpha[t][u]
            if t > 0:
                score = log_add(score, alpha[t - 1][u] + blank[t - 1][u])
            if u > 0:
                score = log_add(score, alpha[t][u - 1] + label[t][u - 1])
            alpha[t][u] = score
    return alpha


def backward_scores(blank: list[list[float]], label: list[list[float]]) -> list[list[float]]:
    frames, columns = len(blank), len(blank[0])
    beta = [[-math.inf] * (columns + 1) for _ in range(frames + 1)]
    beta[frames][columns - 1] = 0.0
    for t in reversed(range(frames)):
        for u in reversed(range(columns)):
            beta[t][u] = log_add(beta[t + 1][u] + blank[t][u], beta[t][u + 1] + label[t][u])
    return beta


def gradient_of_frame(
    lattice: Lattice,
    logits: np.ndarray,
    t: int,
    labels: list[int],
    blank: int,
    fused_log_softmax: bool = True,
    fastemit_lambda: float = 0.0,
) -> np.ndarray:
    """d cost / d logits of frame t, (U1, V), from the frame's float64 logits."""
    columns = len(labels) + 1
    if math.isnan(lattice.cost):
        return np.full_like(logits, np.nan)
    if lattice.cost == math.inf:
        return np.zeros_like(logits)
    reach = lattice.alpha[t] + lattice.cost  # alpha - lnP
    leave = np.exp(lattice.blank[t] + reach + lattice.beta[t + 1, :columns])
    emit = np.exp(lattice.label[t] + reach + lattice.beta[t, 1:]) * (1.0 + fastemit_lambda)
    if fused_log_softmax:
        # Both together, but at full precision where they are tiny.
        occupancy = reach + lattice.beta[t, :columns]
        if fastemit_lambda > 0:
            occupancy = np.log(np.maximum(leave + emit, np.finfo(np.float64).tiny))
        gradient = np.exp(logits + (occupancy - lattice.log_norm[t])[:, None])
    else:
        gradient = np.zeros_like(logits)
    gradient[:, blank] -= leave
    for u, label in enumerate(labels):
        gradient[u, label] -= emit[u]
    return gradient


def exact(
    case: Case,
    *,
    clamp: float = -1.0,
    fused_log_softmax: bool = True,
    fastemit_lambda: float = 0.0,
    upstream: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Costs (B,) and packed gradient (N, V) in float64, for the logits as they are."""
    costs = torch.empty(len(case.logit_lengths), dtype=torch.float64)
    gradient = torch.empty(case.logits.shape, dtype=torch.float64)
    logits = case.logits.detach()
    for b, (rows, frames, _, labels) in enumerate(case.samples()):
        lattice = build_lattice(
            logits[rows], frames, labels, case.blank_index, fused_log_softmax, case.windows_of(b)
        )
        costs[b] = lattice.cost
        for t in range(frames):
            first = rows.start + t * (len(labels) + 1)
            frame = logits[first : first + len(labels) + 1].double().numpy()
            gradient[first : first + len(labels) + 1] = torch.from_numpy(
                gradient_of_frame(
                    lattice, frame, t, labels, case.blank_index, fused_log_softmax, fastemit_lambda
                )
            )
    if clamp > 0:
        gradient.clamp_(-clamp, clamp)
    if upstream is not None:
        gradient *= case.spread_over_rows(upstream.double())
    return costs, gradient
