"""Tables from results, the READMEs that hold them, and the cost curve."""

import copy
import dataclasses
import functools
import json
from pathlib import Path

import pytest
import torch

from benchmarks import (
    checks,
    cost_curve,
    floor,
    machine,
    measuring,
    readme,
    specification,
    tables,
)
from benchmarks.cases import Case
from benchmarks.implementations import OURS


def entry(name, threads, median, **changes):
    return {
        "implementation": name,
        "title": f"the {name}",
        "threads": threads,
        "milliseconds": {
            "median": median,
            "quartiles": [0.9 * median, 1.1 * median],
            "extremes": [0.5 * median, 2 * median],
            "repetitions": 15,
        },
        "warmed_up": True,
        "ratio_to_ours": median / 80,
        "ratio_to_floor": median / 40,
        "speed_up": 120 / median,
        "peak_extra_bytes": 16_200_000,
        "peak_extra_per_logits": 0.02,
        "numbers": {"gradient_error": 1.8e-7},
        **changes,
    }


CASE = {
    "name": "S2",
    "shape": "8 x 500 x 100 x 500",
    "rows": 404_000,
    "vocab": 500,
    "logits_bytes": 808_000_000,
    "floor": {
        "1": {"median": 60.0, "quartiles": [59.0, 61.0], "repetitions": 15},
        "2": {"median": 40.0, "quartiles": [39.0, 44.0], "repetitions": 15},
    },
    "no_floor": None,
    "results": [
        {"implementation": "torch", "skipped": "needs 26.9 GB, 12.4 GB are free"},
        {"implementation": "fast_rnnt", "refused": "the value is off"},
        entry("in-place", 1, 120.0),
        entry("in-place", 2, 80.0),
        entry("torchaudio", 1, 9500.0),
        entry("torchaudio", 2, 9124.0, warmed_up=False, peak_extra_per_logits=2.02),
    ],
}
CASE["results"][-1]["milliseconds"]["repetitions"] = 1
RESULTS = {
    "date": "2026-11-29T10:00:00+00:00",
    "commit": "0123456789abcdef",
    "uncommitted_files": 0,
    "machine": {
        "processor": "a processor",
        "cores": 2,
        "memory_bytes": 25_000_000_000,
        "load_average": [0.05, 0.1, 0.1],
        "instruction_set": "avx512",
    },
    "versions": {"python": "3.11.7", "torch": "2.14.1"},
    "settings": {"threads": [1, 2]},
    "absent": {"warprnnt_pytorch": "not installed"},
    "cases": [CASE],
}
MACHINE = (
    "2026-11-29, 2 cores of a processor, 25 GB, avx512; python 3.11.7, torch 2.14.1; "
    "commit 0123456789ab; load 0.1 before the start."
)


def rows(table):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_a_case_has_a_row_for_each_implementation_and_the_floor():
    header, _, floor, ours, torch, torchaudio, refused = rows(tables.case_table(CASE, [1, 2]))
    assert header == [
        *("", "1 thread, ms", "2 threads, ms", "speed-up", "of ours", "of the floor"),
        *("extra memory", "gradient error", "timed"),
    ]
    assert floor == [
        *(
            "memory floor",
            "60.0 (59.0 to 61.0)",
            "40.0 (39.0 to 44.0)",
            "1.50",
            "",
            "1",
            "",
            "",
            "15",
        ),
    ]
    assert ours == [
        *("the in-place", "120 (108 to 132)", "80.0 (72.0 to 88.0)", "1.50", "1.00", "2.00"),
        *("16 MB (0.02)", "1.8e-07", "15"),
    ]
    assert torch[:2] == ["plain torch", "skipped: needs 26.9 GB, 12.4 GB are free"]
    assert torchaudio == [
        *("the torchaudio", "9,500 (8,550 to 10,450)", "9,124", "0.01", "114", "228"),
        *("16 MB (2.02)", "1.8e-07", "1 to 15, no warm-up"),
    ]
    assert refused[:2] == ["fast_rnnt", "refused: the value is off"]


def test_tables_have_even_columns():
    widths = {
        len(line) for line in tables.aligned(["a", "b"], [["1", "222"], ["33", "4"]]).split("\n")
    }
    assert len(widths) == 1


def test_the_summary_has_a_column_for_each_case():
    assert rows(tables.summary_table(RESULTS)) == [
        ["", "S2: 8 x 500 x 100 x 500"],
        ["-" * 16, "-" * 25],
        ["memory floor", "40.0"],
        ["ours, in place", "80.0"],
        ["plain torch", "does not fit"],
        ["torchaudio", "9,124 (114x)"],
        ["fast_rnnt", "refused: wrong numbers"],
    ]


def test_the_machine_is_told_in_a_line():
    assert tables.machine_line(RESULTS) == MACHINE
    changed = {**RESULTS, "uncommitted_files": 3, "commit": None}
    assert "commit unknown and 3 changed files;" in tables.machine_line(changed)
    changed = {**RESULTS, "machine": {**RESULTS["machine"], "load_average": [2.0, 1.0, 1.0]}}
    assert tables.machine_line(changed).endswith(
        "load 2.0 before the start: **a busy machine, so these times are too long**."
    )


def test_the_specifications_figures_stand_beside_the_measured_ones():
    _, _, first, second, third, fourth = rows(specification.table(RESULTS))
    assert first[:4] == ["4 x 200 x 50 x 50", "0.00816 GB", "12.74", "0.28"]
    assert first[4:6] == ["not measured", "not measured"]
    assert second == [
        *("8 x 500 x 100 x 500", "0.808 GB", "13.44", "0.28", "9,124 ms", "80.0 ms", "1.51 ms"),
    ]
    assert third == [
        *("16 x 1000 x 200 x 5000", "64.3 GB", "92.27", "0.48"),
        *("does not fit", "does not fit", "121 ms"),
    ]
    assert fourth == [
        *("32 x 2000 x 500 x 50000", "6,413 GB", "35993.4", "8.22"),
        *("does not fit", "does not fit", "12,024 ms"),
    ]


def test_a_figure_that_was_skipped_is_not_measured():
    results = copy.deepcopy(RESULTS)
    results["cases"][0]["results"][-2:] = [{"implementation": "torchaudio", "skipped": "slow"}]
    assert rows(specification.table(results))[3][4] == "not measured"


CURVE = {
    **RESULTS,
    "threads": 2,
    "points": [
        {"rows": 1000, "vocab": 32, "loss_ns_per_cell": 150.0, "floor_ns_per_cell": 10.0},
        {"rows": 10**6, "vocab": 500, "loss_ns_per_cell": 130.0, "floor_ns_per_cell": 100.0},
    ],
}


def test_the_curve_as_a_table():
    header, _, *lines = rows(cost_curve.table(CURVE))
    counts = "1,000", "10,000", "100,000", "1,000,000", "10,000,000"
    assert header == ["V", *(f"N = {count}" for count in counts)]
    assert [line[0] for line in lines] == ["32", "128", "500", "2,000", "10,000", "50,000"]
    assert lines[0][1:] == ["150 (15.0)", "-", "-", "-", "-"]
    assert lines[2][1:] == ["-", "-", "-", "130 (1.30)", "-"]


def test_the_curve_has_every_batch_that_fits():
    for count, lattice in cost_curve.LATTICES.items():
        assert Case.uniform("", *lattice, 2).rows == count
    fitting = {(case.rows, case.vocab) for case in cost_curve.points(2 * 10**9)}
    assert (10**7, 32) in fitting and (10**6, 500) in fitting and (10**4, 50000) in fitting
    assert not any(4 * N * V > 2 * 10**9 for N, V in fitting)
    assert len(cost_curve.points(10**18)) == 30


def test_the_curve_is_measured_and_drawn(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(cost_curve, "SECONDS", 0.0)
    paths = tmp_path / "new" / "curve.json", tmp_path / "pictures" / "curve.png"
    options = ["--max-gb", "0.0006", "--threads", "1", "--json", str(paths[0])]
    assert cost_curve.main([*options, "--png", str(paths[1])]) == 0
    results = json.loads(paths[0].read_text())
    points = [(point["rows"], point["vocab"], point["repetitions"]) for point in results["points"]]
    assert points == [(1000, 32, 3), (1000, 128, 3)]
    assert all(point["loss_ns_per_cell"] > 0 for point in results["points"])
    assert paths[1].read_bytes()[:4] == b"\x89PNG"
    assert "| 32     | " in capsys.readouterr().out


def test_no_curve_for_wrong_numbers(monkeypatch, capsys):
    ours = cost_curve.IMPLEMENTATIONS[OURS]

    def prepare(indices):
        call = ours.prepare(indices)

        def spoiled(logits):
            value, gradient = call(logits)
            return 1.001 * value, gradient

        return spoiled

    wrong = dataclasses.replace(ours, prepare=prepare)
    monkeypatch.setattr(cost_curve, "IMPLEMENTATIONS", {OURS: wrong})
    with pytest.raises(checks.WrongNumbersError, match=r"^the value is "):
        cost_curve.main(["--threads", "1", "--max-gb", "0.0003"])
    assert "N =" not in capsys.readouterr().out


def test_the_curves_floor_is_the_faster_of_one_thread_and_all(tiny, monkeypatch):
    milliseconds = {"floor of one": 2.0, "floor": 3.0, "loss": 12.0}

    def timed(call, make_logits, threads):
        if isinstance(call, functools.partial):
            return milliseconds["floor of one"]
        return milliseconds["floor" if call is floor.run else "loss"]

    monkeypatch.setattr(measuring, "timed", timed)
    arena = measuring.Arena(tiny.logits_bytes("packed", torch.float32))
    point = cost_curve.measure(tiny, arena, 2)
    assert point["floor_ns_per_cell"] == pytest.approx(2e6 / 54)
    assert point["loss_ns_per_cell"] == pytest.approx(12e6 / 54)


def test_the_curve_does_not_start_what_does_not_fit(monkeypatch, capsys):
    monkeypatch.setattr(machine, "available_bytes", lambda: 10**9)
    with pytest.raises(SystemExit):
        cost_curve.main(["--max-gb", "2"])
    assert "--max-gb must be well under the 1.0 GB that are free." in capsys.readouterr().err


def test_a_document_gets_its_table_and_keeps_the_rest():
    document = "before\n<!-- cases -->\nold\n<!-- end -->\nafter <!-- end -->\n"
    expected = "before\n<!-- cases -->\n| new |\n<!-- end -->\nafter <!-- end -->\n"
    assert readme.replaced(document, "cases", "| new |\n") == expected
    assert readme.replaced(expected, "cases", "| new |") == expected


@pytest.mark.parametrize("document", ["nothing", "<!-- cases -->\nno end"])
def test_a_document_without_the_place_is_an_error(document):
    with pytest.raises(ValueError) as caught:
        readme.replaced(document, "cases", "")
    assert str(caught.value) == (
        "the document must have <!-- cases --> and then <!-- end -->, but has not."
    )


def test_the_readmes_are_filled_by_one_command(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    for name in ("README.md", "README.zh-CN.md", "benchmarks/README.md"):
        (tmp_path / name).write_text((machine.REPOSITORY / name).read_text())
    for name, results in {"loss": RESULTS, "curve": CURVE}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(results))
    options = [f"--{name}={tmp_path / name}.json" for name in ("loss", "curve")]
    assert readme.main([*options, f"--root={tmp_path}"]) == 0
    project = (tmp_path / "README.md").read_text()
    assert MACHINE in project and "| torchaudio     | 9,124 (114x)" in project
    own = (tmp_path / "benchmarks/README.md").read_text()
    assert "**S2**: B x T x U x V = 8 x 500 x 100 x 500, 404,000 rows, 808 MB" in own
    assert "Not measured, since not installed there: warprnnt_pytorch." in own
    assert "| 8 x 500 x 100 x 500     | 0.808 GB   | 13.44" in own and "150 (15.0)" in own


def test_the_readmes_hold_what_was_measured(tmp_path):
    """The tables are those of the results that are kept beside them."""
    (tmp_path / "benchmarks").mkdir()
    documents = [Path("README.md"), Path("README.zh-CN.md"), Path("benchmarks/README.md")]
    for name in documents:
        (tmp_path / name).write_text((machine.REPOSITORY / name).read_text())
    readme.main([f"--root={tmp_path}"])
    for name in documents:
        assert (tmp_path / name).read_text() == (machine.REPOSITORY / name).read_text()
