"""Two finished evaluations side by side: table, headline, picture, and what can't be compared."""

import json

import pytest

from asr_ascend.decoding.metrics import ErrorCounts
from asr_ascend.evaluation import report, two_reports

ABOUT = {"step": 20, "decoder": "greedy", "chunk_ms": 320, "left_chunks": 4}
ABOUT |= {"noise_seed": 7, "noise_kinds": ["hum"], "unseen_noise_kinds": []}


def write_report(folder, errors, contexts=(report.STREAMING,), **about):
    """An evaluation of one set of 100 characters, with so many errors at each SNR."""
    results = [
        report.Decoded(
            id=f"{set_name}-0",
            set_name=set_name,
            snr_db=snr,
            context=context,
            noise="none" if snr is None else "known",
            reference="甲",
            hypothesis="乙",
            errors=ErrorCounts(substitutions=count, reference_length=100),
        )
        for context in contexts
        for (set_name, snr), count in errors.items()
    ]
    about = {**ABOUT, "checkpoint": f"{folder.name}.ckpt", **about}
    report.write(report.summarise(results, about, 3), results, folder)


BEFORE = {("a", None): 2, ("a", 5.0): 60, ("a", 0.0): 80}
AFTER = {("a", None): 3, ("a", 5.0): 10, ("a", 20.0): 4}


@pytest.fixture
def folders(tmp_path):
    both = (report.STREAMING, report.FULL)
    write_report(tmp_path / "before", BEFORE, both)
    write_report(tmp_path / "after", AFTER, chunk_ms=640)
    return tmp_path / "before", tmp_path / "after"


def test_what_both_have_is_compared(folders, capsys):
    before, after = folders
    assert two_reports.main([str(before), str(after / "report.json")]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "CER in % by SNR in dB (1 utterances)",
        "clean 5",
        "a streaming before 2.00 60.00",
        "after 3.00 10.00",
        "change +1.00 -50.00",
        "At 5 dB the CER falls from 60.00% to 10.00%.",
        "Clean speech pays 1.00 points: the CER rises from 2.00% to 3.00%.",
        "`chunk_ms` is 320 before, 640 after.",
        f"Comparison: {after / 'comparison.md'} plot: {after / 'cer_before_after.png'}",
    ]
    text = (after / "comparison.md").read_text(encoding="utf-8")
    assert "Before: `before.ckpt` (step 20). After: `after.ckpt` (step 20)." in text
    assert "| a | streaming | change | +1.00 | -50.00 |" in text
    assert "\n`chunk_ms` is 320 before, 640 after.\n" in text
    assert (after / "cer_before_after.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_it_gives_what_an_evaluation_with_a_baseline_gives(folders, tmp_path):
    before, after = (json.loads((f / "report.json").read_text("utf-8")) for f in folders)
    summary = two_reports.compared(before, {**after, "baseline": {"old": 1}})
    assert summary["baseline"]["checkpoint"] == "before.ckpt"
    assert {row["snr_db"] for row in summary["cer"]} == {"clean", "5"}
    assert [row["cer"] for row in summary["baseline"]["cer_all_sets"]] == [0.02, 0.6]


def test_what_did_not_hear_the_same_is_listed(folders, tmp_path, capsys):
    write_report(tmp_path / "other", {**AFTER, ("b", None): 1}, noise_seed=8)
    data = json.loads((tmp_path / "other" / "report.json").read_text("utf-8"))
    data["cer"] = [{**row, "utterances": 2} for row in data["cer"]]
    (tmp_path / "other" / "report.json").write_text(json.dumps(data), "utf-8")
    assert two_reports.main([str(folders[0]), str(tmp_path / "other")]) == 2
    assert capsys.readouterr().err == (
        "Error: The two evaluations didn't hear the same:\n"
        "  `noise_seed` is 7 before, 8 after\n"
        "  the set a has 1 utterances of 100 characters before, 2 utterances of 100 characters "
        "after\n"
        "  the set b has nothing before, 2 utterances of 100 characters after\n"
    )


def test_nothing_in_common_is_one_sentence(folders, tmp_path, capsys):
    write_report(tmp_path / "other", {("a", 10.0): 1})
    assert two_reports.main([str(folders[0]), str(tmp_path / "other")]) == 2
    sentence = "Error: The two evaluations have no SNR and context in common.\n"
    assert capsys.readouterr().err == sentence


def test_a_missing_or_foreign_report_is_one_sentence(folders, tmp_path, capsys):
    assert two_reports.main([str(folders[0]), str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"Error: {tmp_path / 'report.json'} is not there; python -m asr_ascend.evaluate "
        "checkpoint=... writes it.\n"
    )
    foreign = tmp_path / "foreign.json"
    for text in ("[]", "3", "{", '{"checkpoint": 1}'):
        foreign.write_text(text, encoding="utf-8")
        assert two_reports.main([str(folders[0]), str(foreign)]) == 2
        sentence = f"Error: {foreign} is not a report.json of asr_ascend.evaluate.\n"
        assert capsys.readouterr().err == sentence
