"""Writes exact_lattice.json: small RNN-T losses in 60-digit decimal arithmetic.

Probabilities are multiplied and summed as they are, with no logarithm before the last step, so
this shares neither the formula nor the rounding of the code it judges. Logits are multiples of
1/64 and so exact in float32.

    python tests/expected/exact_lattice.py
"""

from __future__ import annotations

import json
import random
from decimal import Decimal, getcontext
from pathlib import Path

getcontext().prec = 60
getcontext().Emin = -(10**9)
getcontext().Emax = 10**9

# (T, U, V, blank, logits' scale)
SHAPES = {
    "plain": (5, 3, 4, 3, 1),
    "blank_first": (4, 3, 5, 0, 1),
    "blank_middle": (4, 2, 5, 2, 1),
    "one_frame": (1, 3, 4, 3, 1),
    "no_labels": (5, 0, 3, 0, 1),
    "one_frame_no_labels": (1, 0, 2, 1, 1),
    "two_symbols": (6, 4, 2, 0, 1),
    "more_labels_than_frames": (3, 7, 6, 5, 1),
    "x30": (5, 4, 7, 6, 30),
    "x1000": (5, 4, 7, 6, 1000),
    "likely": (6, 3, 4, 3, 1),
}


def draw_logits(name: str) -> tuple[list[list[list[int]]], list[int]]:
    """Logits in 64ths and the labels of one case."""
    frames, labels, vocab, blank, scale = SHAPES[name]
    rng = random.Random(name)
    targets = [rng.choice([k for k in range(vocab) if k != blank]) for _ in range(labels)]
    logits = [
        [[rng.randint(-128, 128) * scale for _ in range(vocab)] for _ in range(labels + 1)]
        for _ in range(frames)
    ]
    if name == "likely":  # one path takes nearly all the probability: the cost is near 1e-4
        for t in range(frames):
            for u in range(labels + 1):
                follows = targets[u] if u < labels and u <= t else blank
                logits[t][u][follows] += 12 * 64
    return logits, targets


def solve(logits: list, targets: list[int], blank: int) -> tuple[Decimal, list]:
    """Cost and gradient of one sample."""
    frames, columns = len(logits), len(targets) + 1
    probs = []
    for frame in logits:
        rows = []
        for row in frame:
            weights = [(Decimal(z) / 64).exp() for z in row]
            total = sum(weights)
            rows.append([w / total for w in weights])
        probs.append(rows)
    zero = Decimal(0)
    alpha = [[zero] * columns for _ in range(frames)]
    beta = [[zero] * (columns + 1) for _ in range(frames + 1)]
    for t in range(frames):
        for u in range(columns):
            value = Decimal(1) if t == u == 0 else zero
            if t:
                value += alpha[t - 1][u] * probs[t - 1][u][blank]
            if u:
                value += alpha[t][u - 1] * probs[t][u - 1][targets[u - 1]]
            alpha[t][u] = value
    beta[frames][columns - 1] = Decimal(1)
    for t in reversed(range(frames)):
        for u in reversed(range(columns)):
            value = probs[t][u][blank] * beta[t + 1][u]
            if u < columns - 1:
                value += probs[t][u][targets[u]] * beta[t][u + 1]
            beta[t][u] = value
    total = beta[0][0]
    gradient = []
    for t in range(frames):
        for u in range(columns):
            row = [p * alpha[t][u] * beta[t][u] / total for p in probs[t][u]]
            row[blank] -= probs[t][u][blank] * alpha[t][u] * beta[t + 1][u] / total
            if u < columns - 1:
                label = targets[u]
                row[label] -= probs[t][u][label] * alpha[t][u] * beta[t][u + 1] / total
            gradient.append([float(g) for g in row])
    return -total.ln(), gradient


def main() -> None:
    cases = {}
    for name, (frames, labels, vocab, blank, _) in SHAPES.items():
        logits, targets = draw_logits(name)
        cost, gradient = solve(logits, targets, blank)
        cases[name] = {
            "T": frames,
            "U": labels,
            "V": vocab,
            "blank": blank,
            "targets": targets,
            "logits_64ths": [row for frame in logits for row in frame],
            "cost": float(cost),
            "gradient": gradient,
        }
    path = Path(__file__).with_suffix(".json")
    lines = [f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
