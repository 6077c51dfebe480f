"""What is measured, in which order, and what is left out for which reason."""

import dataclasses
import json
from types import SimpleNamespace

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import cases, machine, measuring
from benchmarks.cases import CASES, Case
from benchmarks.implementations import IMPLEMENTATIONS, OURS
from benchmarks.measuring import Settings, measure_case


def replaced(name, **changes):
    return dataclasses.replace(IMPLEMENTATIONS[name], **changes)


def test_a_tiny_case_is_measured_whole(tiny, quick):
    names = ["in-place", "no-reuse", "float16", "bfloat16", "torch", "torchaudio"]
    result = measure_case(tiny, [IMPLEMENTATIONS[name] for name in names], quick)
    assert (result["name"], result["shape"]) == ("tiny", "3 x 5..9 x 0..3 x 11")
    assert (result["rows"], result["vocab"], result["logits_bytes"]) == (54, 11, 54 * 11 * 4)
    assert result["no_floor"] is None and set(result["floor"]) == {"1", "2"}
    keys = [(entry["implementation"], entry["threads"]) for entry in result["results"]]
    assert keys == [(name, threads) for name in names for threads in (1, 2)]
    ours = {entry["threads"]: entry for entry in result["results"][:2]}
    floor = min(times["median"] for times in result["floor"].values())
    for entry in result["results"]:
        times = entry["milliseconds"]
        assert times["repetitions"] == 3 and entry["warmed_up"]
        low, high = times["quartiles"]
        assert times["extremes"][0] <= low <= times["median"] <= high <= times["extremes"][1]
        own = ours[entry["threads"]]["milliseconds"]["median"]
        assert entry["ratio_to_ours"] == pytest.approx(times["median"] / own)
        if entry["threads"] == 2:
            assert entry["ratio_to_floor"] == pytest.approx(times["median"] / floor)
        assert entry["peak_extra_bytes"] >= 0
        assert entry["numbers"]["gradient_error"] <= entry["numbers"]["gradient_error_allowed"]
    assert ours[1]["speed_up"] == 1.0


def test_what_does_not_fit_is_skipped_with_the_reason(tiny, quick, monkeypatch):
    monkeypatch.setattr(machine, "available_bytes", lambda: 20_000)
    result = measure_case(tiny, [IMPLEMENTATIONS["torch"]], quick)
    assert result["results"] == [
        {"implementation": "torch", "skipped": "needs 0.0 GB, 0.0 GB are free"}
    ]
    assert result["no_floor"] == "nothing fits" and result["floor"] == {}


def test_the_reason_has_the_sizes(quick):
    huge = Case.uniform("huge", 32, 2000, 500, 50000)
    result = measure_case(huge, [IMPLEMENTATIONS[OURS]], quick)
    (entry,) = result["results"]
    assert entry["skipped"].startswith("needs 7855.7 GB, ")
    assert entry["skipped"].endswith(" GB are free")


def test_what_is_slow_is_skipped_unless_asked_for(monkeypatch):
    monkeypatch.setattr(cases, "SMALL_ELEMENTS", 2000)
    case = Case.uniform("middle", 2, 20, 9, 30)
    assert not case.is_small
    settings = Settings(threads=(1,), repetitions=2, seconds=1.0, slowest=0.0)
    (entry,) = measure_case(case, [IMPLEMENTATIONS[OURS]], settings)["results"]
    assert entry["skipped"] == "a call would take about 0 s; --slow runs it"
    settings = dataclasses.replace(settings, slowest=float("inf"))
    (entry,) = measure_case(case, [IMPLEMENTATIONS[OURS]], settings)["results"]
    assert entry["milliseconds"]["repetitions"] == 2


def test_what_takes_long_is_timed_once_and_says_so(tiny):
    settings = Settings(threads=(1,), repetitions=5, seconds=0.0)
    (entry,) = measure_case(tiny, [IMPLEMENTATIONS[OURS]], settings)["results"]
    assert entry["warmed_up"] is False and entry["milliseconds"]["repetitions"] == 1


def test_one_that_raises_says_why_and_stops_no_other(tiny, quick):
    def prepare(indices):
        def call(logits):
            raise RuntimeError("no kernel for this\nand a trace")

        return call

    broken = replaced("torchaudio", prepare=prepare)
    results = measure_case(tiny, [broken, IMPLEMENTATIONS[OURS]], quick)["results"]
    assert results[0] == {"implementation": "torchaudio", "failed": "no kernel for this"}
    assert results[1]["implementation"] == OURS and "milliseconds" in results[1]


def test_repetitions_are_interleaved_and_rotate(tiny, monkeypatch):
    calls = []

    def spy(name):
        one = IMPLEMENTATIONS[OURS]

        def prepare(indices):
            call = one.prepare(indices)

            def counted(logits):
                calls.append((name, torch.get_num_threads()))
                return call(logits)

            return counted

        return replaced(name, prepare=prepare, layout="packed")

    monkeypatch.setattr(measuring, "SHORT_CALLS", 1)
    settings = Settings(threads=(1, 2), repetitions=3, seconds=60.0)
    measure_case(tiny, [spy("torch"), spy("torchaudio")], settings)
    jobs = [("torch", 1), ("torch", 2), ("torchaudio", 1), ("torchaudio", 2)]
    warm_up, *rounds = (calls[i : i + 4] for i in range(0, len(calls), 4))
    assert warm_up == jobs
    assert rounds == [jobs, jobs[1:] + jobs[:1], jobs[2:] + jobs[:2]]


@pytest.mark.parametrize(
    ("seconds", "calls", "expected"), [((0.004, 0.003, 0.002), 3, 2.0), ((0.006,), 1, 6.0)]
)
def test_of_short_calls_the_last_counts(monkeypatch, seconds, calls, expected):
    made, seen, now = [], [], [0.0]
    clock = SimpleNamespace(sleep=lambda _: None, perf_counter=lambda: now[0])
    monkeypatch.setattr(measuring, "time", clock)

    def call(logits):
        now[0] += seconds[len(seen)]
        seen.append((logits, torch.get_num_threads()))

    def make():
        made.append(torch.get_num_threads())
        return len(made)

    milliseconds = measuring.timed(call, make, 2)
    assert seen == [(n, 2) for n in range(1, calls + 1)] and made == [1] * calls
    assert milliseconds == pytest.approx(expected)


def test_peak_memory_is_that_of_the_call():
    def call(size):
        return torch.ones(size, dtype=torch.uint8).max()

    _, extra = machine.with_peak_extra_bytes(call, 200_000_000)
    assert 195e6 < extra < 230e6
    _, extra = machine.with_peak_extra_bytes(call, 10)
    assert extra < 20e6


def test_quartiles_never_leave_what_was_seen():
    assert measuring.spread([3.0, 1.0])["quartiles"] == [1.0, 3.0]
    assert measuring.spread([2.0])["quartiles"] == [2.0, 2.0]
    assert measuring.spread([1.0, 2.0, 3.0, 4.0, 5.0]) == {
        "median": 3.0,
        "quartiles": [1.5, 4.5],
        "extremes": [1.0, 5.0],
        "repetitions": 5,
    }


def test_the_command_prints_a_table_and_writes_json(tiny, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(CASES, "tiny", tiny)
    path = tmp_path / "new" / "out.json"
    options = ["--cases", "tiny", "--implementations", "in-place,torch", "--threads", "1"]
    assert command.main([*options, "--repetitions", "2", "--json", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "**tiny**: B x T x U x V = 3 x 5..9 x 0..3 x 11, 54 rows" in printed
    starts = [line.split("|")[1].strip() for line in printed.splitlines() if line.startswith("|")]
    assert starts[:5] == ["", "-" * 16, "memory floor", "ours, in place", "plain torch"]
    results = json.loads(path.read_text())
    assert set(results) == {
        *("schema_version", "date", "commit", "uncommitted_files", "machine", "versions"),
        *("settings", "absent", "cases"),
    }
    assert set(results["machine"]) == {
        *("processor", "cores", "memory_bytes", "load_average", "system", "instruction_set"),
    }
    assert results["versions"]["torch"] and results["date"][:2] == "20"
    assert results["settings"] == {
        "threads": [1],
        "repetitions": 2,
        "seconds": 3.0,
        "slow": False,
    }
    assert [entry["implementation"] for entry in results["cases"][0]["results"]] == [
        "in-place",
        "torch",
    ]


def test_wrong_numbers_end_in_status_1(tiny, monkeypatch, capsys):
    def prepare(indices):
        return lambda logits: (torch.tensor(1.0), logits)

    monkeypatch.setitem(CASES, "tiny", tiny)
    monkeypatch.setitem(IMPLEMENTATIONS, "torch", replaced("torch", prepare=prepare))
    options = ["--cases", "tiny", "--implementations", "torch", "--threads", "1"]
    assert command.main(options) == 1
    assert "| plain torch  | refused: the value is 1 instead of " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cases", "S9"], "argument --cases: `S9` is no case; there are S1, S2, S3, S4, RAG."),
        (
            ["--threads", "0"],
            "argument --threads: must be a whole number above 0, but is '0'.",
        ),
        (["--implementations", "k2"], "argument --implementations: `k2` is no implementation; "),
    ],
)
def test_bad_options_end_in_one_sentence(options, message, capsys):
    with pytest.raises(SystemExit) as caught:
        command.main(options)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_an_implementation_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(command.implementations, "absent", lambda: {"fast_rnnt": "not installed"})
    with pytest.raises(SystemExit) as caught:
        command.main(["--implementations", "fast_rnnt"])
    assert str(caught.value) == "fast_rnnt is not installed."


@pytest.mark.bench
def test_ours_is_faster_than_plain_torch():
    settings = Settings(threads=(1,), repetitions=5, seconds=3.0)
    ones = [IMPLEMENTATIONS[name] for name in (OURS, "torch")]
    entries = measure_case(CASES["S1"], ones, settings)["results"]
    assert entries[1]["ratio_to_ours"] > 3
