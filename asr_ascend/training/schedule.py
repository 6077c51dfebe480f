"""The learning rate over optimiser steps."""

from __future__ import annotations

import math


def learning_rate_factor(
    step: int, total_steps: int, warmup_steps: int, cosine_last: float, final_ratio: float
) -> float:
    """Factor of the base rate: linear warm-up, level, cosine over the last share of the steps.

    Args:
        step: optimiser steps done so far, from 0.
        total_steps: of the whole training.
        warmup_steps: the factor is (step + 1) / warmup_steps until it reaches 1.
        cosine_last: share of `total_steps`, in [0, 1], that falls along the cosine.
        final_ratio: factor at the end, in [0, 1].

    Returns:
        In (0, 1].
    """
    warm = min(1.0, (step + 1) / max(1, warmup_steps))
    falling = cosine_last * total_steps
    if falling <= 0:
        return warm
    progress = min(1.0, max(0.0, (step - (total_steps - falling)) / falling))
    return warm * (final_ratio + (1 - final_ratio) * 0.5 * (1 + math.cos(math.pi * progress)))
