"""The lattice of one utterance as a picture: where its alignments go, and the likeliest of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from asr_ascend.config.frames import ENCODER_HOP_MS, frame_end_ms
from asr_ascend.losses import rnnt_alignment, rnnt_loss_and_grad
from asr_ascend.system.figures import drawable, picture
from asr_ascend.system.streams import escaped

# Words of sentencepiece begin with a mark, which stands for a space.
_SPACES = str.maketrans({" ": "␣", "▁": "␣"})


def lattice_occupancy(logits: Tensor, tokens: Tensor, blank: int) -> Tensor:
    """Computes the probability that the true alignment visits each cell, given the tokens.

    Args:
        logits: (T, U + 1, V) of one utterance.
        tokens: (U,) int64 in [0, V - 1], never ``blank``.
        blank: id of blank in [-V, V - 1].

    Returns:
        (T, U + 1) float64 in [0, 1].

    Raises:
        ValueError: a wrong shape, token or blank.
    """
    sizes = torch.tensor([logits.shape[0]]), torch.tensor([logits.shape[1] - 1])
    log_probs = logits.double().log_softmax(-1)
    # The derivative by a log-probability is minus the probability that the step is taken.
    _, gradient = rnnt_loss_and_grad(
        log_probs[None], tokens[None], *sizes, blank=blank, fused_log_softmax=False
    )
    return -gradient[0].sum(-1)


def plot_alignment(
    path: Path,
    logits: Tensor,
    tokens: Tensor,
    blank: int,
    labels: Sequence[str],
    title: str = "",
    emitted: Sequence[int] = (),
) -> None:
    """Draws the lattice: tokens upwards, time to the right.

    Dark cells are likely to be visited. The line is the likeliest alignment. Dots are where a
    decoder gave the tokens.

    Args:
        path: the picture to write (PNG, SVG, PDF by its suffix); its folder is made.
        logits: (T, U + 1, V) of one utterance.
        tokens: (U,) int64 in [0, V - 1], never ``blank``.
        blank: id of blank in [-V, V - 1].
        labels: what to write next to each token, see `token_labels`.
        title: above the picture.
        emitted: the encoder frame in which a decoder gave each token.

    Raises:
        ValueError: a wrong shape, token or blank.
    """
    num_frames, num_columns, _ = logits.shape
    occupancy = lattice_occupancy(logits, tokens, blank)
    sizes = torch.tensor([num_frames]), torch.tensor([num_columns - 1])
    frames = rnnt_alignment(logits[None], tokens[None], *sizes, blank=blank)[0][0].tolist()
    width, height = (min(max(size, 4.0), 24.0) for size in (num_frames / 10, num_columns / 5 + 1.4))
    seconds = [frame_end_ms(frame) / 1000 for frame in range(num_frames)]
    half = ENCODER_HOP_MS / 2000
    path.parent.mkdir(parents=True, exist_ok=True)
    with picture(path, (width, height), dpi=120) as figure:
        axes = figure.add_subplot(xlabel="end of the encoder frame (s)", ylabel="token")
        axes.set_title(escaped(title), fontsize="medium", parse_math=False)
        image = axes.imshow(
            occupancy.T.numpy(),
            cmap="Blues",
            vmin=0,
            vmax=1,
            aspect="auto",
            origin="lower",
            extent=(seconds[0] - half, seconds[-1] + half, -0.5, num_columns - 0.5),
        )
        figure.colorbar(image, ax=axes, label="share of alignments", pad=0.01)
        if min(frames, default=0) >= 0:
            corners = _path(seconds, frames)
            axes.plot(*corners, color="tab:orange", linewidth=1.2, label="likeliest alignment")
        times = [seconds[frame] for frame in emitted]
        if times:
            numbers = range(1, len(times) + 1)
            axes.plot(times, numbers, "o", color="black", markersize=3, label="given by the stream")
        axes.set_yticks(range(1, num_columns), token_labels(labels), parse_math=False)
        if axes.get_legend_handles_labels()[0]:
            figure.legend(loc="outside lower center", ncols=2, fontsize="small", frameon=False)


def _path(seconds: Sequence[float], frames: Sequence[int]) -> tuple[list[float], list[int]]:
    """Returns the corners of the path: right by a blank, up by a token."""
    times, columns, column = [], [], 0
    for frame, time in enumerate(seconds):
        times.append(time)
        columns.append(column)
        while column < len(frames) and frames[column] == frame:
            column += 1
            times.append(time)
            columns.append(column)
    return times, columns


def token_labels(labels: Sequence[str]) -> list[str]:
    """Returns what a plot writes next to tokens, with a glyph for each space.

    Where the fonts lack a character, the labels are the numbers of the tokens from 1.

    Args:
        labels: the tokens' pieces.
    """
    shown = [label.translate(_SPACES) for label in labels]
    return shown if drawable(shown) else [str(number) for number in range(1, len(labels) + 1)]
