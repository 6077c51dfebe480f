"""Languages that write spaces: word errors and the times of words."""

from asr_ascend.decoding.metrics import ErrorCounts, character_errors, word_errors
from asr_ascend.decoding.words import word_times
from asr_ascend.evaluation import report

ABOUT = {
    "checkpoint": "a.ckpt",
    "step": 1,
    "decoder": "greedy",
    "chunk_ms": 320,
    "noise_kinds": ["hum"],
    "unseen_noise_kinds": [],
    "noise_seed": 7,
}


def decoded(set_name, reference, hypothesis):
    return report.Decoded(
        id=reference,
        set_name=set_name,
        snr_db=None,
        context=report.STREAMING,
        noise="none",
        reference=reference,
        hypothesis=hypothesis,
        errors=character_errors(reference, hypothesis),
    )


def test_word_errors_count_words():
    assert word_errors(" load the  breaker", "load a breaker now") == ErrorCounts(1, 0, 1, 3)
    assert word_errors("", "a") == ErrorCounts(0, 0, 1, 0)


def test_wer_stands_next_to_cer_where_texts_have_spaces():
    results = [
        decoded("english", "load the breaker", "load the breakers"),
        decoded("english", "stop", "stop"),
        decoded("中文", "油温正常", "油温正"),
    ]
    summary = report.summarise(results, ABOUT, worst=3)
    rates = {row["set"]: (row["cer"], row.get("wer")) for row in summary["cer"]}
    assert rates == {"english": (1 / 20, 1 / 4), "中文": (1 / 4, None)}
    assert report.table(summary).splitlines()[-3:] == [
        "WER in % by SNR in dB",
        f"{'':34}   clean",
        "english     streaming 320 ms         25.00",
    ]
    text = report.markdown(summary)
    assert "## Word error rate in %" in text
    assert "| english | streaming | 25.00 |" in text


def test_a_report_without_spaces_says_nothing_of_words():
    summary = report.summarise([decoded("中文", "油温", "油温")], ABOUT, worst=3)
    assert "WER" not in report.table(summary)
    assert "Word" not in report.markdown(summary)


def token(text, end_ms):
    return {"token": text, "end_ms": end_ms, "emitted_ms": end_ms + 5}


def test_a_word_ends_with_its_last_token():
    pieces = ["t", "he", " oil", " ", "f", "an", " is a", "t "]
    words = word_times(token(piece, 40 * number) for number, piece in enumerate(pieces))
    assert words == [
        {"word": "the", "end_ms": 40, "emitted_ms": 45},
        {"word": "oil", "end_ms": 80, "emitted_ms": 85},
        {"word": "fan", "end_ms": 200, "emitted_ms": 205},
        {"word": "is", "end_ms": 240, "emitted_ms": 245},
        {"word": "at", "end_ms": 280, "emitted_ms": 285},
    ]
    assert word_times([]) == []
