"""Spectrograms to look at: logarithmic frequency, levels in dB, multiples of the mains marked."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from asr_ascend.system.figures import picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOWEST_HZ = 40.0
_RANGE_DB = 70.0
_TICKS_HZ = (50, 100, 200, 500, 1000, 2000, 4000, 8000)


def spectrogram_db(wave: Tensor, sample_rate_hz: int, window_ms: float) -> tuple[Tensor, Tensor]:
    """Computes the power of a Hann-windowed Fourier transform in dB.

    Returns it as (bins, frames), and the frequencies of the bins in Hz as (bins,). A sine of
    amplitude 1 in the middle of a bin gives -3 dB, its mean square.
    """
    length = 2 * round(window_ms * sample_rate_hz / 2000)
    window = torch.hann_window(length)
    hop = max(1, length // 8)
    wave = torch.nn.functional.pad(wave, (0, max(0, length - len(wave))))
    spectrum = torch.stft(wave, length, hop, window=window, center=False, return_complex=True)
    power = spectrum.abs().square() * 2 / window.sum() ** 2
    frequencies = torch.fft.rfftfreq(length, 1 / sample_rate_hz)
    return 10 * torch.log10(power.clamp(min=1e-20)), frequencies


def draw_profile(
    path: Path,
    title: str,
    wave: Tensor,
    sample_rate_hz: int,
    mains_hz: float,
    events: bool,
) -> None:
    """Draws one sound: a tenth of a second of its pressure, its spectrogram, its mean spectrum.

    Args:
        path: of the png.
        title: above it.
        wave: (samples,) in pascal.
        sample_rate_hz: rate.
        mains_hz: 50 or 60; lines of the mean spectrum at its even multiples.
        events: whether the sound lasts some tens of milliseconds; the window is then short.
    """
    with picture(path, (15, 4.2), dpi=90) as figure:
        figure.suptitle(title, fontsize=11)
        places: Any = figure.subplots(1, 3, width_ratios=(1.0, 1.7, 1.0))
        _draw_sound(figure, places, wave, sample_rate_hz, mains_hz, events)


def _draw_sound(
    figure: Figure,
    axes: Sequence[Any],
    wave: Tensor,
    sample_rate_hz: int,
    mains_hz: float,
    events: bool,
) -> None:
    span = round((0.3 if events else 0.1) * sample_rate_hz)
    start = max(0, int(wave.abs().argmax()) - span // 4)
    piece = wave[start : start + span]
    if events:  # only the event, in half a second
        wave = wave[max(0, start - span // 3) :][: sample_rate_hz // 2]
    milliseconds = 1000 * torch.arange(len(piece)) / sample_rate_hz
    axes[0].plot(milliseconds.numpy(), piece.numpy(), linewidth=0.6)
    axes[0].set(title="around its peak", xlabel="time in ms", ylabel="sound pressure in Pa")
    axes[0].margins(x=0)
    _draw_spectrogram(axes[1], wave, sample_rate_hz, 16.0 if events else 128.0, figure)
    axes[1].set_title("spectrogram around it" if events else "spectrogram")
    _draw_spectrum(axes[2], wave, sample_rate_hz, mains_hz, 64.0 if events else 256.0)


def draw_overview(
    path: Path, title: str, sounds: Mapping[str, tuple[Tensor, bool]], sample_rate_hz: int
) -> None:
    """Draws spectrograms side by side.

    `sounds` maps a title to its samples (samples,) and whether they are short events.
    """
    rows = -(-len(sounds) // 2)
    with picture(path, (11, 2.3 * rows + 0.4), dpi=80) as figure:
        figure.suptitle("\n".join(textwrap.wrap(title, 110)), fontsize=11)
        places: Any = figure.subplots(rows, 2, squeeze=False).flatten()
        for place, (name, (wave, events)) in zip(places, sounds.items(), strict=False):
            _draw_spectrogram(place, wave, sample_rate_hz, 24.0 if events else 128.0, figure)
            place.set_title(name, fontsize=9)
        for place in places[len(sounds) :]:
            place.set_visible(False)


def _draw_spectrogram(
    axes: Axes, wave: Tensor, sample_rate_hz: int, window_ms: float, figure: Any
) -> None:
    levels, frequencies = spectrogram_db(wave, sample_rate_hz, window_ms)
    levels = levels - levels.max()
    times = window_ms / 2000 + torch.arange(levels.shape[1]) * window_ms / 8000
    shown = frequencies >= min(_LOWEST_HZ, float(frequencies[1]))
    image = axes.pcolormesh(
        times.numpy(),
        frequencies[shown].numpy(),
        levels[shown].numpy(),
        vmin=-_RANGE_DB,
        vmax=0,
        cmap="magma",
    )
    _log_frequency(axes.yaxis, axes.set_yscale, axes.set_ylim, sample_rate_hz)
    axes.set(xlabel="time in s", ylabel="frequency in Hz")
    figure.colorbar(image, ax=axes, label="dB below the loudest", pad=0.01)


def _draw_spectrum(
    axes: Axes, wave: Tensor, sample_rate_hz: int, mains_hz: float, window_ms: float
) -> None:
    levels, frequencies = spectrogram_db(wave, sample_rate_hz, window_ms)
    mean = 10 * torch.log10((10 ** (levels / 10)).mean(1))
    mean = mean - mean.max()
    for multiple in range(2, 27, 2):
        axes.axvline(multiple * mains_hz, color="0.85", linewidth=0.8, zorder=0)
    axes.plot(frequencies[1:].numpy(), mean[1:].numpy(), linewidth=0.8)
    axes.set_ylim(-_RANGE_DB - 10, 5)
    _log_frequency(axes.xaxis, axes.set_xscale, axes.set_xlim, sample_rate_hz)
    axes.set(
        title="mean spectrum; lines: 2f to 26f",
        xlabel="frequency in Hz",
        ylabel="dB below the loudest",
    )


def _log_frequency(axis: Any, set_scale: Any, set_limits: Any, sample_rate_hz: int) -> None:
    set_scale("log")
    set_limits(_LOWEST_HZ, sample_rate_hz / 2)
    ticks = [hz for hz in _TICKS_HZ if hz <= sample_rate_hz / 2]
    axis.set_ticks(ticks, labels=[f"{hz // 1000}k" if hz >= 1000 else str(hz) for hz in ticks])
    axis.set_minor_locator(_null_locator())


def _null_locator() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()
