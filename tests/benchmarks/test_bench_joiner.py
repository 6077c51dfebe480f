"""The benchmark of the joiner's loss: what it prints, refuses, and how it counts."""

import json

import pytest

from benchmarks import joiner, joiner_bands, joiner_dropping, machine

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
    figures = json.loads((tmp_path / "out.json").read_text())
    results = figures["speed"]["results"]
    assert [len(row["seconds"]) for row in results.values()] == [2, 2, 2]
    described = machine.describe()
    assert {key: figures[key] for key in ("commit", "versions")} == {
        key: described[key] for key in ("commit", "versions")
    }
    assert figures["machine"]["processor"] == described["machine"]["processor"]


def test_ways_are_checked_then_take_turns(monkeypatch):
    steps = []
    original = joiner.Problem.step

    def step(problem, name):
        steps.append(name)
        return original(problem, name)

    monkeypatch.setattr(joiner.Problem, "step", step)
    monkeypatch.setattr(joiner, "peak", lambda *case: 10_800)
    run(monkeypatch, "speed", *SMALL)
    ways = ["packed", "fused", "chunked"]
    assert steps == [*ways, *ways, *ways[1:], ways[0]]


def test_bands_have_a_row_for_each_way(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(joiner_bands, "peak", lambda *case: 3_000_000)
    monkeypatch.setattr(joiner_bands.importlib.util, "find_spec", lambda name: None)
    run(monkeypatch, "bands", *SMALL, "--json", str(tmp_path / "out.json"))
    without, title, cells, *rows = capsys.readouterr().out.splitlines()
    assert without == "fast_rnnt is not installed: pruning is compared with nothing"
    assert title == "B, T, U, V = [3, 12, 4, 30], H = 8, 1 threads"
    assert cells == "The windows leave 99 of 180 cells."
    ways = ["products", "windows_band", "windows_every_cell", "pruned"]
    assert [row.split()[0] for row in rows] == ways
    assert all(row.endswith(" s          3 MB at the peak") for row in rows[1:])
    figures = json.loads((tmp_path / "out.json").read_text())["bands"]
    assert (figures["rows"], figures["every_row"]) == (99, 180)
    assert figures["results"]["windows_band"]["peak_bytes"] == 3_000_000


def test_no_speed_of_a_band_with_wrong_numbers(monkeypatch):
    original = joiner.Problem.windows_band
    monkeypatch.setattr(joiner.Problem, "windows_band", lambda p: wrong_value(original(p), p))
    with pytest.raises(SystemExit, match="windows_every_cell"):
        run(monkeypatch, "bands", *SMALL)


def wrong_value(loss, problem):
    return loss + 0.001 * loss.detach()


def wrong_gradient(loss, problem):
    """Of the weight alone; the value stays."""
    total = problem.weight.sum()
    return loss + 0.01 * (total - total.detach())


@pytest.mark.parametrize("wrong", [wrong_value, wrong_gradient])
def test_no_speed_for_wrong_numbers(wrong, monkeypatch, capsys):
    original = joiner.Problem.fused
    monkeypatch.setattr(joiner.Problem, "fused", lambda p: wrong(original(p), p))
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


@pytest.fixture
def dropping(monkeypatch, tmp_path):
    """Runs the measurement on random inputs, which a checkpoint's stand for; returns its result."""
    problem = joiner.Problem([3, 12, 4, 30], 8)
    inputs = list(problem.inputs), list(problem.indices), 0
    monkeypatch.setattr(joiner_dropping, "joiner_inputs", lambda arguments: inputs)

    def measure():
        json_file = tmp_path / "out.json"
        plot = ("--plot", str(tmp_path / "curve.png"), "--json", str(json_file))
        run(monkeypatch, "dropping", "--repeats", "1", "--threads", "1", *plot)
        return json.loads(json_file.read_text())["dropping"]

    return measure


def test_the_curve_of_dropped_mass(dropping, tmp_path, capsys):
    result = dropping()
    assert result["rows"] == 3 * 12 * 5
    points = {point["mass"]: point for point in result["points"]}
    assert list(points) == list(joiner_dropping.MASSES)
    assert points[0.0]["errors"] == [0.0] * 4 and points[0.0]["speedup"] == 1.0
    assert 0.0 < max(points[1e-1]["errors"]) < 1.0
    assert max(points[1e-6]["errors"]) < 1e-4
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown[2:-1]] == [
        "0",
        "1e-06",
        "1e-05",
        "0.0001",
        "0.001",
        "0.01",
        "0.1",
    ]


def test_no_curve_for_wrong_numbers(dropping, monkeypatch, capsys):
    original = joiner_dropping.joiner_rnnt_loss
    wrong = lambda *a, **o: 1.001 * original(*a, **o)  # noqa: E731
    monkeypatch.setattr(joiner_dropping, "joiner_rnnt_loss", wrong)
    with pytest.raises(SystemExit, match="fused and packed gradients differ by"):
        dropping()
    assert capsys.readouterr().out == ""
