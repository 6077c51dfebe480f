"""The learning rate at chosen steps."""

import math

import pytest

from asr_ascend.training.schedule import learning_rate_factor


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 1 / 60),
        (29, 0.5),
        (59, 1.0),
        (60, 1.0),
        (600, 1.0),  # the cosine starts here
        (800, 0.02 + 0.98 * 0.5),
        (700, 0.02 + 0.98 * 0.5 * (1 + math.sqrt(0.5))),
        (1000, 0.02),
        (1100, 0.02),
    ],
)
def test_warm_up_level_and_cosine(step, expected):
    factor = learning_rate_factor(step, 1000, warmup_steps=60, cosine_last=0.4, final_ratio=0.02)
    assert factor == pytest.approx(expected, rel=1e-12)


def test_without_warm_up_or_cosine_the_rate_stays():
    assert [learning_rate_factor(step, 10, 0, 0.0, 0.0) for step in range(10)] == [1.0] * 10
