"""Geometry of frames: what a feature frame and an encoder frame span of the sound.

A feature frame looks at a window of samples. An encoder frame looks at the feature frames of two
convolutions of width 3 and stride 2, unpadded: frame t at feature frames 4t to 4t + 6.
"""

from __future__ import annotations

FEATURE_WINDOW_MS = 25
FEATURE_HOP_MS = 10
FEATURE_FRAMES_PER_ENCODER_FRAME = 4
# Feature frames that two neighbouring encoder frames both look at.
FEATURE_FRAMES_OVERLAP = 3
ENCODER_HOP_MS = FEATURE_FRAMES_PER_ENCODER_FRAME * FEATURE_HOP_MS


def encoder_frames(feature_frames: int) -> int:
    """Returns the encoder frames of a number of feature frames, at least 0."""
    return max(0, (feature_frames - FEATURE_FRAMES_OVERLAP) // FEATURE_FRAMES_PER_ENCODER_FRAME)


def features_for_frames(encoder_frames: int) -> int:
    """Returns the feature frames that ``encoder_frames`` encoder frames (at least 1) look at."""
    return FEATURE_FRAMES_PER_ENCODER_FRAME * encoder_frames + FEATURE_FRAMES_OVERLAP


def frame_end_ms(frame: int) -> float:
    """Returns the time in ms of the last sample that encoder frame ``frame`` looks at."""
    last = features_for_frames(frame + 1) - 1
    return float(FEATURE_HOP_MS * last + FEATURE_WINDOW_MS)


def chunk_frames(chunk_ms: int | str) -> int | None:
    """Returns the encoder frames in a chunk of ``chunk_ms``; None for `full`."""
    return None if chunk_ms == "full" else int(chunk_ms) // ENCODER_HOP_MS
