"""What a report says in words, from results with known errors."""

import pytest

from asr_ascend.decoding.metrics import ErrorCounts
from asr_ascend.evaluation import report
from asr_ascend.evaluation.sections import emission_part, headline, worst_part
from asr_ascend.evaluation.tables import markdown_table

ABOUT = {"checkpoint": "a.ckpt", "step": 20, "decoder": "greedy", "chunk_ms": "full"}
ABOUT |= {"noise_seed": 7, "noise_kinds": ["hum"], "unseen_noise_kinds": ["corona"]}


def summary(errors, context=report.FULL, worst=20):
    """Of one utterance of ten characters at each SNR; noise is unseen, then known."""
    results = [
        report.Decoded(
            id="u",
            set_name="a",
            snr_db=snr,
            context=context,
            noise="none" if snr is None else ("unseen" if snr > 0 else "known"),
            reference="甲乙",
            hypothesis="a|b\n*c*",
            errors=ErrorCounts(substitutions=count, reference_length=10),
        )
        for snr, count in errors.items()
    ]
    return report.summarise(results, ABOUT, worst)


def test_a_report_without_a_stream_lists_what_full_context_got_wrong():
    text = report.markdown(summary({None: 1, 5.0: 4, 0.0: 2}))
    assert text.split("\n\n")[2] == (
        "**Character error rate, full context, all sets together: 40.00% at 5 dB, 20.00% at 0 dB, "
        "10.00% on clean speech.**"
    )
    assert "## Worst utterances, full context\n\n3 of 3 that are wrong in some way" in text
    assert "| u | 5 dB | 40 | 甲乙 | a\\|b \\*c\\* |" in text
    assert "By kind of noise, full context. Known: hum," in text
    assert "| known kinds of noise |  | 20.00 |\n| unseen kinds of noise | 40.00 |  |" in text
    assert "Emission delay" not in text


def test_other_snrs_are_the_headline_where_the_usual_are_missing():
    assert headline(summary({20.0: 1, 10.0: 2}, report.STREAMING)) == (
        "**Character error rate, streaming, all sets together: 10.00% at 20 dB, 20.00% at 10 dB.**"
    )


@pytest.mark.parametrize(
    ("errors", "worst", "sentence"),
    [
        ({None: 0, 5.0: 0}, 20, "Every utterance was right, at every SNR."),
        (
            {None: 1, 5.0: 2},
            0,
            "2 are wrong in some way, counted at every SNR; none is listed.",
        ),
    ],
)
def test_nothing_wrong_is_not_nothing_listed(errors, worst, sentence):
    assert worst_part(summary(errors, worst=worst)) == sentence


def test_no_delay_is_minus_zero():
    row = {"snr_db": "5", "tokens": 4, "median_delay_ms": -0.2, "p90_delay_ms": -0.4}
    row |= {"share_before_onset": 0.0, "share_guessed": 0.0, "median_chunk_wait_ms": 120.0}
    part = emission_part({"emission": row, "emission_by_snr": [row]})
    assert part[1].splitlines()[-1] == "| 5 dB | 4 | 0 | 0 | 0.00 | 0.00 |"


def test_text_keeps_to_its_cell():
    assert markdown_table(["a"], [["x\n| y_1 <b> [z] `q` \\"]]).splitlines()[-1] == (
        "| x \\| y\\_1 \\<b> \\[z] \\`q\\` \\\\ |"
    )
