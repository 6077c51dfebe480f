"""The lattice of one utterance as a picture: where its alignments go, and the likeliest of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from asr_ascend.config.frames import ENCODER_HOP_MS, frame_end_ms
from asr_ascend.losses import rnnt_alignment, rnnt_loss_and_grad

# Families with Chinese glyphs, where they are installed.
_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC"),
    *("WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback", "AR PL UMing CN"),
    *("SimHei", "Microsoft YaHei", "PingFang SC", "Arial Unicode MS"),
)


def lattice_occupancy(logits: Tensor, tokens: Tensor, blank: int) -> Tensor:
    """How likely the true alignment visits each cell, given the tokens.

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

    Dark is where alignments go, the line is the likeliest of them, and dots are where a decoder
    gave the tokens.

    Args:
        path: the picture to write (PNG, SVG, PDF by its suffix); its folder is made.
        logits: (T, U + 1, V) of one utterance.
        tokens: (U,) int64 in [0, V - 1], never ``blank``.
        blank: id of blank in [-V, V - 1].
        labels: what to write beside each token; numbered where the fonts lack a glyph.
        title: above the picture.
        emitted: the encoder frame in which a decoder gave each token.

    Raises:
        ValueError: a wrong shape, token or blank.
    """
    # Figure alone: pyplot would keep the picture and look for a display.
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    num_frames, num_columns, _ = logits.shape
    occupancy = lattice_occupancy(logits, tokens, blank)
    sizes = torch.tensor([num_frames]), torch.tensor([num_columns - 1])
    frames = rnnt_alignment(logits[None], tokens[None], *sizes, blank=blank)[0][0].tolist()
    width, height = (min(max(size, 4.0), 24.0) for size in (num_frames / 10, num_columns / 5 + 1))
    with matplotlib.rc_context({"font.family": [*_installed(_FONTS), "DejaVu Sans"]}):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot(
            title=title, xlabel="end of the encoder frame (s)", ylabel="token"
        )
        seconds = [frame_end_ms(frame) / 1000 for frame in range(num_frames)]
        half = ENCODER_HOP_MS / 2000
        extent = (seconds[0] - half, seconds[-1] + half, -0.5, num_columns - 0.5)
        axes.imshow(
            occupancy.T.numpy(),
            cmap="Blues",
            vmin=0,
            vmax=1,
            aspect="auto",
            origin="lower",
            extent=extent,
        )
        if min(frames, default=0) >= 0:
            axes.plot(*_path(seconds, frames), color="tab:orange", linewidth=1.2)
        times = [seconds[frame] for frame in emitted]
        axes.plot(times, range(1, len(times) + 1), "o", color="black", markersize=3)
        axes.set_yticks(range(1, num_columns), drawable(labels))
        figure.savefig(_made(path), dpi=120)


def _path(seconds: Sequence[float], frames: Sequence[int]) -> tuple[list[float], list[int]]:
    """Corners of the path: right by a blank, up by a token."""
    times, columns, column = [], [], 0
    for frame, time in enumerate(seconds):
        times.append(time)
        columns.append(column)
        while column < len(frames) and frames[column] == frame:
            column += 1
            times.append(time)
            columns.append(column)
    return times, columns


def _installed(families: Sequence[str]) -> list[str]:
    from matplotlib import font_manager

    names = {font.name for font in font_manager.fontManager.ttflist}
    return [family for family in families if family in names]


def drawable(labels: Sequence[str]) -> list[str]:
    """The labels of a plot, or their numbers where the fonts here can't draw them."""
    from matplotlib import font_manager, ft2font

    families = [*_installed(_FONTS), "DejaVu Sans"]
    fonts = [ft2font.FT2Font(font_manager.findfont(family)) for family in families]
    glyphs = {code for font in fonts for code in font.get_charmap()}
    if all(ord(letter) in glyphs for label in labels for letter in label):
        return list(labels)
    return [str(number) for number in range(1, len(labels) + 1)]


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
