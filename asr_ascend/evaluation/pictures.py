"""Pictures of a report: the training's curves, one utterance heard in noise, and TensorBoard's."""

from __future__ import annotations

import csv
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from asr_ascend.config.train_options import TrainOptions
from asr_ascend.data.noise.pictures import spectrogram_db
from asr_ascend.system.atomic import naming_errors
from asr_ascend.system.figures import drawable, picture
from asr_ascend.system.streams import escaped

_RANGE_DB = 60.0
_WINDOW_MS = 25.0
_TITLE_CHARACTERS = 90
# Steps over which the drawn losses are averaged, as a share of the run.
_SMOOTHED = 0.01


def draw_training(metrics: Path, path: Path) -> bool:
    """Draws losses and validation CER by optimiser step.

    Args:
        metrics: a run's metrics.csv.
        path: the picture to write.

    Returns:
        False, and no picture, where there is no such file or it has no step.
    """
    from matplotlib.ticker import LogFormatter

    if not metrics.is_file():
        return False
    with metrics.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    curves = {name: _curve(rows, name) for name in ("rnnt_loss", "ctc_loss", "valid_cer")}
    if not curves["ctc_loss"][0]:
        return False
    with picture(path, (9, 5.4), dpi=120) as figure:
        losses, errors = figure.subplots(2, 1, sharex=True)
        for name, title in (("rnnt_loss", "RNN-T"), ("ctc_loss", "CTC")):
            steps, values = curves[name]
            if steps:
                width = max(1, round(_SMOOTHED * len(values)))
                losses.plot(steps[width - 1 :], _running_mean(values, width), label=title, lw=1)
        losses.set(ylabel="nats", yscale="log", title="loss")
        for ticks in (losses.yaxis.set_major_formatter, losses.yaxis.set_minor_formatter):
            ticks(LogFormatter(minor_thresholds=(2, 0.5)))
        losses.legend(frameon=False)
        steps, values = curves["valid_cer"]
        errors.plot(steps, [100 * value for value in values], "o-", ms=4, color="C2")
        errors.set(xlabel="optimiser step", ylabel="CER in %", title="validation")
        errors.set_ylim(bottom=-0.03 * errors.get_ylim()[1])  # a CER of 0 is seen
        errors.set_xlim(left=0)
        for axes in (losses, errors):
            axes.grid(alpha=0.3)
    return True


def training_caption(options: TrainOptions) -> str:
    """Returns a caption for a run's curves: where they jump, and what was validated.

    Args:
        options: what the run was trained with.
    """
    data, trainer, loss = options.data, options.trainer, options.loss
    per = "token" if loss.normalize_by == "tokens" else "utterance"
    sentences = [
        f"Losses are nats per {per}, drawn as means over {100 * _SMOOTHED:g}% of the steps."
    ]
    if loss.ctc_first:
        sentences.append(f"The first {100 * loss.ctc_first:g}% of the steps train CTC alone.")
    if trainer.ramp_epochs and data.noise_probability:
        sentences.append(
            f"Noise rises over the first {trainer.ramp_epochs} epochs"
            + (" and SpecAugment follows" if data.spec_augment else "")
            + ", so the losses rise, too."
        )
    snr_db, chunk = data.valid_snr_db, trainer.val_chunk_ms
    heard = "clean" if snr_db is None else f"at {snr_db:g} dB"
    stream = "with full context" if chunk == "full" else f"in chunks of {chunk} ms"
    sentences.append(f"The validation set is {heard}, decoded {stream}.")
    return " ".join(sentences)


def draw_example(
    path: Path,
    speech: Tensor,
    noisy: Tensor,
    snr_db: float,
    sample_rate_hz: int,
    said: str = "",
    heard: str = "",
) -> None:
    """Draws spectrograms of one utterance: the clean speech above, the noisy speech below.

    Args:
        path: the picture to write.
        speech, noisy: (samples,) waveforms of one length.
        snr_db: SNR of `noisy`, for its title.
        sample_rate_hz: rate of both.
        said, heard: the texts, written into the titles where the fonts have their characters.
    """
    titles = ["speech", f"the same at {snr_db:g} dB, as the model hears it"]
    if said and drawable((said, heard)):
        told = (f"said: {said}", f"heard: {heard}" if heard else "heard: nothing")
        titles = [f"{title}; {text}" for title, text in zip(titles, told, strict=True)]
    with picture(path, (9, 4.6), dpi=110) as figure:
        places = figure.subplots(2, 1, sharex=True)
        for axes, wave, title in zip(places, (speech, noisy), titles, strict=True):
            levels, frequencies = spectrogram_db(wave, sample_rate_hz, _WINDOW_MS)
            times = _WINDOW_MS / 2000 + torch.arange(levels.shape[1]) * _WINDOW_MS / 8000
            drawn = axes.pcolormesh(
                times.numpy(),
                frequencies.numpy() / 1000,
                (levels - levels.max()).numpy(),
                vmin=-_RANGE_DB,
                vmax=0,
                cmap="magma",
            )
            axes.set(ylabel="frequency in kHz")
            axes.set_title("\n".join(textwrap.wrap(title, _TITLE_CHARACTERS)), parse_math=False)
            figure.colorbar(drawn, ax=axes, label="dB below the loudest", pad=0.01)
        places[-1].set_xlabel("time in s")


def log_to_tensorboard(
    folder: Path, summary: Mapping[str, Any], pictures: Sequence[Path], text: str
) -> None:
    """Writes an evaluation into its own TensorBoard folder, in place of an earlier one.

    Args:
        folder: created if it doesn't exist.
        summary: from `report.summarise`; its CERs, and a baseline's, become scalars at its step.
        pictures: PNG files, each shown under its stem.
        text: Markdown.
    """
    from matplotlib.image import imread
    from torch.utils.tensorboard import SummaryWriter

    for old in folder.glob("events.out.tfevents.*"):
        old.unlink()
    step = int(summary["step"])
    with naming_errors(folder), SummaryWriter(str(folder)) as writer:
        rows = {"cer": summary["cer"]}
        if "baseline" in summary:
            rows["cer_before"] = summary["baseline"]["cer"]
        for head, row in ((head, row) for head, rows_ in rows.items() for row in rows_):
            name = f"{head}/{row['set']}/{row['context']}/{row['snr_db']}".replace(" ", "_")
            writer.add_scalar(escaped(name), row["cer"], step)
        for picture in pictures:
            image = np.asarray(imread(picture))[..., :3]
            writer.add_image(picture.stem, image, step, dataformats="HWC")
        writer.add_text("report", escaped(text), step)


def _curve(rows: Sequence[Mapping[str, str]], name: str) -> tuple[list[int], list[float]]:
    held = [row for row in rows if row.get(name)]
    return [int(row["step"]) for row in held], [float(row[name]) for row in held]


def _running_mean(values: Sequence[float], width: int) -> np.ndarray:
    return np.convolve(values, np.full(width, 1 / width), mode="valid")
