"""The evaluation of a tiny model: table, report, files, errors."""

import json

import pytest
import soundfile
import torch

from asr_ascend.evaluate import speech_end_ms
from tests.support.tiny_runs import TEXTS, run

SETTINGS = ("snr_db=[clean,40,-30]", "noise_kinds=[hum]", "progress_bar=false", "num_threads=1")


@pytest.fixture(scope="module")
def evaluation(tiny_run):
    arguments = (f"checkpoint={tiny_run.checkpoint}", f"manifest={tiny_run.manifest}")
    return run("evaluate", *arguments, *SETTINGS, "out_dir=report, 1", folder=tiny_run.folder)


@pytest.fixture(scope="module")
def folder(tiny_run, evaluation):
    assert evaluation.returncode == 0, evaluation.stderr
    return tiny_run.folder / "report, 1"


def test_the_table_goes_to_stdout(evaluation, folder):
    lines = evaluation.stdout.splitlines()
    assert evaluation.stderr == ""
    assert lines[0] == "CER in % by SNR in dB (8 utterances, greedy)"
    assert lines[1].split() == ["clean", "40", "-30"]
    assert lines[2].split()[:5] == ["tones", "streaming", "320", "ms", "0.00"]
    assert lines[3].split()[:3] == ["full", "context", "0.00"]
    assert lines[4].startswith("Emission delay, streaming: median ")
    assert lines[5] == f"Example at 5 dB: report, 1/example.wav, said: {TEXTS[0]}"
    assert lines[6] == "Report: report, 1/report.md  plot: report, 1/cer_by_snr.png"


def test_the_report_counts_every_utterance_in_every_condition(folder):
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert (report["utterances"], report["step"], report["chunk_ms"]) == (8, 260, 320)
    rows = {(row["context"], row["snr_db"]): row for row in report["cer"]}
    conditions = [(c, s) for s in ("clean", "40", "-30") for c in ("streaming", "full context")]
    assert sorted(rows) == sorted(conditions)
    characters = sum(map(len, TEXTS))
    for row in rows.values():
        assert (row["utterances"], row["reference_length"]) == (8, characters)
        errors = row["substitutions"] + row["deletions"] + row["insertions"]
        assert row["cer"] == pytest.approx(errors / characters)
    assert rows["streaming", "clean"]["cer"] == 0.0
    assert rows["streaming", "-30"]["cer"] > 0.5
    noise = [(row["set"], row["snr_db"], row["utterances"]) for row in report["cer_by_noise"]]
    assert sorted(noise) == [
        ("known kinds of noise", "-30", 4),
        ("known kinds of noise", "40", 4),
        ("unseen kinds of noise", "-30", 4),
        ("unseen kinds of noise", "40", 4),
    ]


def test_emission_delays_are_of_the_correct_tokens(folder):
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    clean = report["emission_by_snr"][0]
    assert (clean["snr_db"], clean["tokens"]) == ("clean", sum(map(len, TEXTS)))
    # A tone lasts 240 ms and the next begins 120 ms later: no token comes a whole token late.
    assert -360 < clean["median_delay_ms"] < 360
    assert 0 <= clean["median_chunk_wait_ms"] <= 280
    assert clean["share_before_onset"] == 0.0


def test_utterances_are_listed_with_what_was_said_and_decoded(folder):
    lines = (folder / "utterances.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert len(records) == 8 * 3 * 2
    clean = [r for r in records if (r["snr_db"], r["context"]) == ("clean", "streaming")]
    assert {r["id"]: r["hypothesis"] for r in clean} == {
        f"tone-{number}": text for number, text in enumerate(TEXTS)
    }
    assert {r["noise"] for r in clean} == {"none"}


def test_the_markdown_report_has_tables_plot_and_worst_utterances(folder):
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert "| set | context | clean | 40 dB | -30 dB |" in text
    assert "| tones | streaming | 0.00 |" in text
    assert "![CER by SNR](cer_by_snr.png)" in text
    assert "| id | SNR | CER in % | said | decoded |" in text
    worst = [line for line in text.splitlines() if line.startswith("| tone-")]
    assert worst and all("| -30 dB |" in line or "| 40 dB |" in line for line in worst)
    assert (folder / "cer_by_snr.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_example_is_audio_with_its_text(folder):
    example = json.loads((folder / "example.json").read_text(encoding="utf-8"))
    assert (example["text"], example["snr_db"]) == (TEXTS[0], 5.0)
    info = soundfile.info(folder / "example.wav")
    assert (info.samplerate, info.channels) == (16000, 1)
    assert info.duration == pytest.approx(0.12 + 3 * 0.36)


def test_full_context_and_beam(tiny_run, tmp_path):
    arguments = (f"checkpoint={tiny_run.checkpoint}", f"manifest={tiny_run.manifest}")
    more = ("snr_db=[clean]", "chunk_ms=full", "decoder=beam", "progress_bar=false")
    done = run("evaluate", *arguments, *more, f"out_dir={tmp_path}", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "CER in % by SNR in dB (8 utterances, beam)"
    assert lines[2].split() == ["tones", "full", "context", "0.00"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["checkpoint=no.ckpt"], "The checkpoint no.ckpt is not a file."),
        (
            ["manifest=no.jsonl"],
            "{folder}/no.jsonl has 1 problem:\n  it cannot be read: No such file or directory",
        ),
        (
            ["noise_kinds=[buzz]"],
            "Kinds of noise must be one or more of hum, fan, impulse, corona, or of the equipment "
            "oil_transformer, converter_transformer, filter_reactor, capacitor_bank, cooler_fans, "
            "line_corona, tap_changer, circuit_breaker, but are ['buzz'].",
        ),
        (
            ["noise_banks=[nowhere]"],
            "The noise bank nowhere is not a folder.",
        ),
        (
            ["manifest=[a/tones.jsonl,b/tones.jsonl]"],
            "The manifests must have distinct names, but are tones, tones.",
        ),
    ],
)
def test_bad_input_exits_2_with_one_sentence(tiny_run, tmp_path, arguments, sentence):
    usual = (f"checkpoint={tiny_run.checkpoint}", f"manifest={tiny_run.manifest}")
    kept = [a for a in usual if a.split("=")[0] != arguments[0].split("=")[0]]
    done = run("evaluate", *kept, *arguments, folder=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"Error: {sentence.format(folder=tmp_path)}\n"


def test_speech_ends_with_its_last_loud_20_ms():
    speech = torch.zeros(16000)
    speech[3200:8000] = 0.5
    speech[8000:9600] = 0.5 * 10 ** (-50 / 20)
    assert speech_end_ms(speech, 16000) == 500.0
    assert speech_end_ms(torch.zeros(100), 16000) == 6.25


def test_a_baseline_is_heard_in_the_same_noise(tiny_run, tmp_path):
    arguments = (f"checkpoint={tiny_run.checkpoint}", f"manifest={tiny_run.manifest}")
    more = ("snr_db=[clean,5,-30]", "progress_bar=false", f"baseline={tiny_run.checkpoint}")
    done = run("evaluate", *arguments, *more, f"out_dir={tmp_path}", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert report["baseline"] == {
        "checkpoint": str(tiny_run.checkpoint),
        "step": 260,
        "cer": report["cer"],
        "cer_all_sets": report["cer_all_sets"],
    }
    assert "Clean speech pays nothing: the CER stays 0.00%." in done.stdout.splitlines()
    assert "## Before and after" in (tmp_path / "report.md").read_text(encoding="utf-8")
