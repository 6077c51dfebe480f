"""Before and after: headline, table, Markdown, picture, from results with known errors."""

import pytest

from asr_ascend.decoding.metrics import ErrorCounts
from asr_ascend.evaluation import comparison, report

ABOUT = {"checkpoint": "after.ckpt", "step": 20, "decoder": "greedy", "chunk_ms": 320}
ABOUT |= {"noise_seed": 7, "noise_kinds": ["hum"], "unseen_noise_kinds": []}
# Errors of 100 characters by set and SNR: the sets have the same length.
BEFORE = {("a", None): 2, ("b", None): 4, ("a", 5.0): 60, ("b", 5.0): 70, ("a", 0.0): 80}
BEFORE |= {("b", 0.0): 80}
AFTER = {("a", None): 3, ("b", None): 6, ("a", 5.0): 10, ("b", 5.0): 21, ("a", 0.0): 80}
AFTER |= {("b", 0.0): 80}


def results(errors):
    return [
        report.Decoded(
            id=f"{name}-{snr}",
            set_name=name,
            snr_db=snr,
            context=report.STREAMING,
            noise="none" if snr is None else "known",
            reference="甲",
            hypothesis="乙",
            errors=ErrorCounts(substitutions=count, reference_length=100),
        )
        for (name, snr), count in errors.items()
    ]


@pytest.fixture
def summary():
    before = results(BEFORE), {"checkpoint": "before.ckpt", "step": 10}
    return report.summarise(results(AFTER), ABOUT, 3, before)


def test_the_headline_is_what_noise_won_and_what_clean_speech_pays(summary):
    assert comparison.headline(summary) == [
        "At 5 dB the CER falls from 65.00% to 15.50%.",
        "At 0 dB the CER stays 80.00%.",
        "Clean speech pays 1.50 points: the CER rises from 3.00% to 4.50%.",
    ]


def test_other_snrs_take_its_place_where_those_are_missing():
    pairs = {("a", None): 5, ("a", 20.0): 7}
    before = results(pairs), {"checkpoint": "before.ckpt", "step": 10}
    summary = report.summarise(results({("a", None): 4, ("a", 20.0): 8}), ABOUT, 3, before)
    assert comparison.headline(summary) == [
        "At 20 dB the CER rises from 7.00% to 8.00%.",
        "Clean speech pays nothing: the CER falls from 5.00% to 4.00%.",
    ]


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (100, 100, "Neither model recognises clean speech: the CER stays 100.00%."),
        (85, 90, "Neither model recognises clean speech: the CER rises from 85.00% to 90.00%."),
        (100, 20, "Clean speech pays nothing: the CER falls from 100.00% to 20.00%."),
        (20, 100, "Clean speech pays 80.00 points: the CER rises from 20.00% to 100.00%."),
    ],
)
def test_clean_speech_pays_only_where_it_was_recognised(before, after, sentence):
    was = results({("a", None): before}), {"checkpoint": "before.ckpt", "step": 10}
    summary = report.summarise(results({("a", None): after}), ABOUT, 3, was)
    assert comparison.headline(summary)[-1] == sentence


def test_the_table_has_both_models_by_set_and_snr(summary):
    lines = [line.split() for line in comparison.table(summary)]
    assert lines[0] == ["clean", "5", "0"]
    assert lines[1:10] == [
        ["a", "streaming", "before", "2.00", "60.00", "80.00"],
        ["after", "3.00", "10.00", "80.00"],
        ["change", "+1.00", "-50.00", "0.00"],
        ["b", "streaming", "before", "4.00", "70.00", "80.00"],
        ["after", "6.00", "21.00", "80.00"],
        ["change", "+2.00", "-49.00", "0.00"],
        ["all", "streaming", "before", "3.00", "65.00", "80.00"],
        ["after", "4.50", "15.50", "80.00"],
        ["change", "+1.50", "-49.50", "0.00"],
    ]
    assert report.table(summary).splitlines()[0] == "CER in % by SNR in dB (6 utterances, greedy)"
    assert report.table(summary).splitlines()[-3:] == comparison.headline(summary)


def test_the_report_has_headline_table_and_curves(summary, tmp_path):
    report.write(summary, results(AFTER), tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "Before: `before.ckpt` (step 10). After: `after.ckpt` (step 20)." in text
    assert "- **At 5 dB the CER falls from 65.00% to 15.50%.**\n- **At 0 dB" in text
    assert "| set | context | model | clean | 5 dB | 0 dB |" in text
    assert "| all | streaming | after | 4.50 | 15.50 | 80.00 |" in text
    assert (tmp_path / "cer_by_snr.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_plot_has_a_curve_before_and_after_for_each_set(summary):
    from asr_ascend.evaluation.tables import curves

    assert [curve[1:] for curve in curves(summary)] == [
        ("a", "streaming", "C0o:", "a, before"),
        ("a", "streaming", "C0o-", "a, after"),
        ("b", "streaming", "C1o:", "b, before"),
        ("b", "streaming", "C1o-", "b, after"),
    ]
    assert curves(summary)[0][0] is summary["baseline"]["cer"]
    del summary["baseline"]
    assert [curve[4] for curve in curves(summary)] == [
        *("a, streaming 320 ms", "a, full context", "b, streaming 320 ms", "b, full context")
    ]


def test_without_a_baseline_nothing_is_compared():
    summary = report.summarise(results(AFTER), ABOUT, 3)
    assert "baseline" not in summary
    assert "Before and after" not in report.markdown(summary)


@pytest.mark.parametrize(
    ("points", "shown"), [(0.0, "0.00"), (-0.001, "0.00"), (0.004, "0.00"), (0.5, "+0.50")]
)
def test_no_change_has_no_sign(points, shown):
    assert comparison._signed(points) == shown
