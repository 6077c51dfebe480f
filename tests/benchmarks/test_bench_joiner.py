"""The benchmark of the joiner's loss: what it prints, refuses, and how it counts."""

import json

import pytest

from benchmarks import joiner

SMALL = ["--shape", "3", "12", "4", "30", "--hidden", "8", "--repeats", "2", "--threads", "1"]


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["joiner", *arguments])
    joiner.main()


def test_speed_has_a_row_for_each_way(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(joiner, "peak", lambda *case: 10_800)
    run(monkeypatch, "speed", *SMALL, "--json", str(tmp_path / "out.json"))
    title, _, *rows = capsys.readouterr().out.splitlines()
    assert title == "B, T, U, V = [3, 12, 4, 30], H = 8, 1 threads"
    assert [row.split()[0] for row in rows] == ["packed", "fused", "chunked"]
    # 3 * 12 * 5 * 30 * 4 = 21,600 bytes of logits, 7,200 of one sample's
    assert all(row.split()[-2:] == ["0.500", "1.500"] for row in rows)
    results = json.loads((tmp_path / "out.json").read_text())["speed"]["results"]
    assert [len(row["seconds"]) for row in results.values()] == [2, 2, 2]


def test_no_speed_for_wrong_numbers(monkeypatch, capsys):
    original = joiner.Problem.fused
    monkeypatch.setattr(joiner.Problem, "fused", lambda problem: 1.001 * original(problem))
    with pytest.raises(SystemExit, match="fused gives"):
        run(monkeypatch, "speed", *SMALL)
    assert capsys.readouterr().out == ""


def test_capacity_counts_what_fits_and_extrapolates_the_fused_ways(monkeypatch, capsys):
    def peak(name, shape, *rest):
        first, further = {"torchaudio": (0, 1.9), "packed": (0.2, 1.0)}.get(name, (1.0, 0.01))
        return int((first + further * shape[0]) * joiner.GIBIBYTE)

    monkeypatch.setattr(joiner, "peak", peak)
    run(monkeypatch, "capacity")
    lines = capsys.readouterr().out.splitlines()
    assert "torchaudio: 2" in lines
    assert "packed: 3" in lines
    (fused,) = (line for line in lines if line.startswith("fused: "))
    assert fused == (
        "fused: 10.74 MB for each further utterance, so about 300 (extrapolated from 2 and 8)"
    )


def test_the_peak_is_that_of_a_process_of_its_own():
    shape = [3, 60, 40, 2500]
    one_sample = 60 * 41 * 2500 * 4  # 25 MB: too much to share a buffer
    assert joiner.peak("packed", shape, 8, True, 1) > 2.9 * one_sample
    assert joiner.peak("fused", shape, 8, True, 1) < 1.5 * one_sample
    assert one_sample < joiner.peak("packed", shape, 8, True, 1, one_sample) < 3.5 * one_sample
