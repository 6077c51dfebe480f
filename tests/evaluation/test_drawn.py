"""What the pictures of a report show, read from the figures before they are files."""

import itertools
from contextlib import contextmanager

import pytest
import torch
from matplotlib.figure import Figure

from asr_ascend.evaluation import lattice_picture, pictures, tables
from asr_ascend.system import figures


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were drawn; none becomes a file."""
    kept = []

    @contextmanager
    def keep(path, size, dpi):
        kept.append(Figure(figsize=size))
        yield kept[-1]

    for module in (lattice_picture, pictures, tables):
        monkeypatch.setattr(module, "picture", keep)
    return kept


def row(set_name, context, snr_db, cer):
    return {"set": set_name, "context": context, "snr_db": snr_db, "cer": cer}


def test_curves_of_equal_values_stand_side_by_side(drawn, tmp_path):
    rows = [
        row(name, context, snr, 0.0)
        for name in ("b", "a")
        for context in ("streaming", "full context")
        for snr in ("clean", "5")
    ]
    tables.draw_cer({"cer": rows, "chunk_ms": 320}, tmp_path / "cer.png")
    (axes,) = drawn[0].axes
    assert [line.get_label() for line in axes.lines] == [
        "b, streaming 320 ms",
        "b, full context",
        "a, streaming 320 ms",
        "a, full context",
    ]
    places = [line.get_xdata()[0] for line in axes.lines]
    assert all(right - left > 0.02 for left, right in itertools.pairwise(places))
    assert sum(places) == pytest.approx(0)  # around the tick
    assert axes.get_ylim()[0] < 0  # the line at 0 is not the frame


def test_loss_and_validation_have_one_axis_of_steps(drawn, tmp_path):
    metrics = tmp_path / "metrics.csv"
    metrics.write_text(
        "step,rnnt_loss,ctc_loss,valid_cer\n1,,9,\n100,8,7,\n150,,,0.5\n200,6,5,\n200,,,0.0\n"
    )
    assert pictures.draw_training(metrics, tmp_path / "training.png")
    losses, errors = drawn[0].axes
    assert losses.get_xlim() == errors.get_xlim()
    assert list(errors.lines[0].get_xdata()) == [150, 200]
    boxes = [axes.get_position() for axes in (losses, errors)]
    assert (boxes[0].x0, boxes[0].x1) == (boxes[1].x0, boxes[1].x1)


def test_the_alignment_has_title_legend_and_a_glyph_for_space(drawn, tmp_path):
    tokens = torch.tensor([2, 0, 3])
    logits = torch.randn(30, 4, 5, generator=torch.Generator().manual_seed(1))
    pieces = ["▁the", " ", "$x"]
    lattice_picture.plot_alignment(
        tmp_path / "a.png", logits, tokens, 1, pieces, title="one\udcff $", emitted=[3, 9, 20]
    )
    axes, bar = drawn[0].axes
    assert axes.get_title() == "one\\udcff $"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["␣the", "␣", "$x"]
    assert bar.get_ylabel() == "share of alignments"
    (legend,) = drawn[0].legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "likeliest alignment",
        "given by the stream",
    ]


def test_the_example_shows_its_texts(drawn, tmp_path):
    wave = torch.zeros(8000)
    pictures.draw_example(tmp_path / "a.png", wave, wave, 5.0, 16000, "load the $1", "")
    pictures.draw_example(tmp_path / "a.png", wave, wave, 5.0, 16000, "a", "b")
    pictures.draw_example(tmp_path / "a.png", wave, wave, 5.0, 16000)
    assert [[axes.get_title() for axes in figure.axes[:2]] for figure in drawn] == [
        ["speech; said: load the $1", "the same at 5 dB, as the model hears it; heard: nothing"],
        ["speech; said: a", "the same at 5 dB, as the model hears it; heard: b"],
        ["speech", "the same at 5 dB, as the model hears it"],
    ]


def test_texts_without_glyphs_stay_out_of_the_picture(drawn, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "_CHINESE", ())
    wave = torch.zeros(8000)
    pictures.draw_example(tmp_path / "a.png", wave, wave, 5.0, 16000, "油温", "")
    assert drawn[0].axes[0].get_title() == "speech"
