"""kernels/verify: what it measures, that wrong numbers fail, and what it writes."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from asr_ascend.losses.backends import cpu_library
from kernels.rnnt_loss_fused.time_model import shapes
from kernels.verify import machine as verify_machine
from kernels.verify import oracles, profiling, report, rows, times
from tests.support.made_up_machine import REPOSITORY, compiled, write

VERIFY = REPOSITORY / "kernels" / "verify"
CPU = rows.Target("cpu")


def run(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(VERIFY), "--device=cpu", "--quick", f"--out={folder}", *options]
    variables = {
        "ASR_ASCEND_LIBRARY": str(cpu_library._library_path()),
        **os.environ,
        **environment,
    }
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


# From end to end, on the CPU in place of an NPU


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    folder = tmp_path_factory.mktemp("verify")
    ended = run(folder, "--skip", "emulator")
    text = (folder / "verify.md").read_text()
    return SimpleNamespace(
        ended=ended, text=text, **json.loads((folder / "verify.json").read_text())
    )


def test_everything_is_right_on_the_cpu(results: SimpleNamespace) -> None:
    assert results.ended.returncode == 0, results.ended.stderr
    assert results.verdict == "passed"
    assert results.schema_version == 1
    assert results.skipped_sections == ["emulator"]
    assert {row["pass"] for row in results.rows} == {True}
    assert results.ended.stdout == results.text + "\n"


def test_without_a_chip_it_says_so(results: SimpleNamespace) -> None:
    assert results.on_a_chip is False
    lines = results.text.splitlines()
    assert lines[0] == "# RNN-T loss on a CPU: passed"
    assert (
        "**Made without a 910B**, on a CPU: times mean nothing here, and no row says anything "
        "about a chip." in lines
    )


def test_rows_have_what_was_measured_and_what_must_be(results: SimpleNamespace) -> None:
    precision = results.rows[0]
    assert (precision["section"], precision["name"]) == ("precision", "float16_B2_V64")
    assert abs(precision["measured"] - precision["expected"]) <= precision["tolerance"] < 1e-3
    assert results.rows[1]["detail"] == "the specification allows 0.001"
    counts = dict.fromkeys(("precision", "cases", "options", "behaviour"), 0)
    for row in results.rows:
        counts[row["section"]] += 1
    assert counts == {"precision": 2, "cases": 30, "options": 8, "behaviour": 3}


def test_times_have_median_and_spread_beside_the_model(results: SimpleNamespace) -> None:
    first, *others = results.times
    assert first["shape"] == "4 x 200 x 50 x 50"
    assert first["rows"] == 4 * 200 * 51
    assert first["numbers"] == "right"
    assert sorted(first["model"]) == ["cheapest", "dearest", "hbm_limit", "model"]
    for measured in first["milliseconds"].values():
        least, most = measured["extremes"]
        lower, upper = measured["quartiles"]
        assert 0 < least <= measured["median"] <= most and lower <= upper
        assert measured["repetitions"] == 3
    assert [entry["skipped"] for entry in others] == [
        "left to a chip: too large for this" for _ in others
    ]
    assert "16 x 1000 x 200 x 500" in [entry["shape"] for entry in others]


def test_versions_and_machine(results: SimpleNamespace) -> None:
    assert results.versions["torch"] == metadata.version("torch")
    assert len(results.versions["commit"] or "0" * 40) == 40
    assert results.machine["processors"] == os.cpu_count()


def test_a_section_that_breaks_costs_no_other_its_results(tmp_path: Path) -> None:
    broken = write(tmp_path / "libasr_ascend_cpu.so", "no library")
    ended = run(
        tmp_path, "--skip", *("precision", "cases", "behaviour", "emulator"),
        ASR_ASCEND_LIBRARY=str(broken),
    )  # fmt: skip
    assert ended.returncode == 1
    written = json.loads((tmp_path / "verify.json").read_text())
    assert written["verdict"] == "failed"
    (row,) = written["rows"]
    assert row["pass"] is None
    assert row["detail"].startswith(f"RuntimeError: the CPU library at {broken} can't be loaded")
    assert written["times"][0]["numbers"].startswith("not measured: RuntimeError: the CPU library")


def test_a_section_that_hangs_is_ended(tmp_path: Path) -> None:
    ended = run(tmp_path, "--timeout=0.01", "--skip", *rows.SECTIONS)
    assert ended.returncode == 1
    (entry,) = json.loads((tmp_path / "verify.json").read_text())["times"]
    assert entry["numbers"] == (
        "not measured: the process did not end within 0.01 s; see times.log"
    )


def test_no_npu(tmp_path: Path) -> None:
    ended = run(tmp_path, "--device=npu", "--skip", "emulator", "cases", "precision", "times")
    assert ended.returncode == 1
    written = json.loads((tmp_path / "verify.json").read_text())
    assert {row["pass"] for row in written["rows"]} == {None}
    assert written["machine"]["device"] == "an NPU that torch can't use"
    assert written["profile"] == {"skipped": "msprof is not in PATH"}


def test_the_kit_needs_no_tests(tmp_path: Path) -> None:
    """What is shipped to a 910B works where there is no folder named tests."""
    repository = tmp_path / "repository"
    without = shutil.ignore_patterns("tests", "__pycache__", "*.so")
    for part in ("asr_ascend", "kernels"):
        shutil.copytree(REPOSITORY / part, repository / part, ignore=without)
    command = [sys.executable, str(repository / "kernels" / "verify"), "--device=cpu", "--quick"]
    command += [f"--out={tmp_path}", "--skip", *rows.SECTIONS.keys() - {"cases"}, "times"]
    variables = {"ASR_ASCEND_LIBRARY": str(cpu_library._library_path()), **os.environ}
    variables["PYTHONPATH"] = str(repository)
    ended = subprocess.run(
        command, env=variables, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    written = json.loads((tmp_path / "verify.json").read_text())
    assert {row["section"] for row in written["rows"]} == {"cases"}
    assert {row["pass"] for row in written["rows"]} == {True}


def test_nothing_of_the_kit_names_the_tests_or_reads_a_document() -> None:
    kernels = REPOSITORY / "kernels"
    kit = [kernels / "build.sh", kernels / "verify_910b.sh"]
    for folder in ("verify", "build_npu", "torch_binding", "emulator/emulator", "cann_standin"):
        kit += [path for path in (kernels / folder).rglob("*") if path.suffix != ".md"]
    kit += (kernels / "rnnt_loss_fused" / "emulated").glob("*")
    for path in kit:
        if not path.is_file() or path.suffix == ".pyc":
            continue
        text = path.read_text()
        assert not re.search(r"^\s*(from|import) tests\b", text, re.MULTILINE), path
        assert not re.search(r"[/\"]tests[/\"]", text), path
        assert not re.search(r"\.md\W.*read_text", text), path


# Wrong numbers fail


class Wrong(rows.Target):
    """A device that adds to one cost and to one gradient."""

    def run(self, case: oracles.Case, **options: object) -> tuple[torch.Tensor, ...]:
        costs, grad = super().run(case, **options)
        costs[-1] += 0.01 + 1e-4 * costs[-1].abs()
        grad[3, 1] += 0.05
        return costs, grad


@pytest.mark.parametrize("section", [rows.case_rows, rows.option_rows])
def test_a_wrong_cost_and_a_wrong_gradient_fail(section) -> None:
    found = [row for row in section(Wrong("cpu"), True) if "no_labels" not in row.name]
    assert {row.passed for row in found} == {False}
    assert {row.passed for row in section(CPU, True)} == {True}


class Restless(rows.Target):
    """A device whose results change from call to call."""

    def run(self, case: oracles.Case, **options: object) -> tuple[torch.Tensor, ...]:
        costs, grad = super().run(case, **options)
        return costs * (1 + 1e-3 * torch.rand(1)), grad.nan_to_num()


def test_results_that_change_and_nan_that_gets_lost_fail() -> None:
    torch.manual_seed(0)
    found = {row.quantity: row.passed for row in rows.behaviour_rows(Restless("cpu"), True)}
    assert found == {
        "same bits 3 times over": False,
        "its sample is NaN": False,
        "other samples keep their bits": False,
    }


@pytest.mark.parametrize("measured", [float("nan"), 1.1, float("inf")])
def test_within(measured: float) -> None:
    row = rows.within("s", "n", "q", measured, 1.0, 0.05)
    assert row.passed is False
    assert json.dumps(row.to_json(), allow_nan=False)
    assert rows.within("s", "n", "q", 1.04, 1.0, 0.05).passed is True
    assert rows.within("s", "n", "q", float("inf"), float("inf"), 0.05).passed is True


def test_the_emulator_is_compared_bit_by_bit_or_with_a_tolerance() -> None:
    expected = torch.tensor([1000.0, float("nan"), 2.0])
    near = expected.nextafter(torch.tensor(2000.0))
    for actual, exact, passed, detail in (
        (expected.clone(), True, True, "same bits"),
        (near, True, False, "0.00% of the elements are equal"),
        (near, False, True, "0.00% of the elements are equal"),
        (expected + 1.0, False, False, "0.00% of the elements are equal"),
        (torch.tensor([1000.0, 1.0, 2.0]), False, False, "66.67% of the elements are equal"),
    ):
        row = rows.emulator_row("name", "costs", actual, expected, exact)
        assert (row.passed, row.detail) == (passed, detail)


def test_no_times_for_wrong_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = shapes.Shape(((20, 5),) * 2, 30)
    assert times.time_shape(shape, CPU, 2, {})["numbers"] == "right"
    real = times.rnnt_loss_and_grad

    def wrong(*arguments, **options):
        costs, grad = real(*arguments, **options)
        return costs, grad if options.get("backend") else grad + 1e-3

    monkeypatch.setattr(times, "rnnt_loss_and_grad", wrong)
    entry = times.time_shape(shape, CPU, 2, {})
    assert entry["numbers"].startswith("wrong: a gradient is 0.001")
    assert "milliseconds" not in entry
    assert not report.is_right(entry)


# The model and the profile


def test_every_timed_shape_has_its_model() -> None:
    model = times.modelled_milliseconds()
    for shape in (*shapes.SHAPES, *shapes.PRECISION_ROWS):
        entry = model[str(shape)]
        assert 0 < entry["hbm_limit"] < entry["model"]
        assert entry["cheapest"] <= entry["model"] <= entry["dearest"]


def test_shapes_that_a_chip_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        torch, "npu", SimpleNamespace(mem_get_info=lambda: (int(6e10), int(6.4e10))), raising=False
    )
    chip = rows.Target("npu")
    reasons = [times.reason_to_skip(shape, chip) for shape in shapes.TOO_LARGE]
    assert reasons[0] == "needs 128.8 GB of the device's 60.0 that are free"
    assert times.reason_to_skip(shapes.SHAPES[0], chip) is None


SUMMARY = """Op Name,OP Type,Task Duration(us),Block Dim,aiv_vec_ratio
aclnnRnntLossForward_RnntLossForward,RnntLossForward,812.5,40,0.61
aclnnAdd_AddAiCore,Add,3.1,8,0.2
"""


def msprof(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    write(folder / "bin" / "msprof", f"#!/bin/sh\n{script}").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")


def test_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = write(tmp_path / "summary.csv", SUMMARY)
    place = "${1#--output=}/PROF_1/mindstudio_profiler_output"
    copy = f'mkdir -p "{place}" && cp {summary} "{place}/op_summary_1.csv"'
    msprof(tmp_path, monkeypatch, copy)
    found = profiling.profile(tmp_path / "out")
    assert found["operators"] == [
        {
            "Op Name": "aclnnRnntLossForward_RnntLossForward",
            "OP Type": "RnntLossForward",
            "Task Duration(us)": "812.5",
            "Block Dim": "40",
            "aiv_vec_ratio": "0.61",
        }
    ]
    assert report.profile_lines(found)[-2] == (
        "| aclnnRnntLossForward_RnntLossForward | RnntLossForward | 812.5 | 40 | 0.61 |"
    )


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 3", "msprof ended with status 3: see {out}/msprof.log"),
        ("true", "msprof left no op_summary*.csv in {out}"),
        (
            "printf 'Op Name\\nAdd\\n' > ${{1#--output=}}/op_summary.csv",
            "no operator of {out}/op_summary.csv is named RnntLoss",
        ),
    ],
)
def test_profiles_that_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    msprof(tmp_path, monkeypatch, script.replace("{{", "{").replace("}}", "}"))
    out = tmp_path / "out"
    assert profiling.profile(out) == {"failed": reason.format(out=out)}


def test_the_stand_in_is_known_by_its_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ctypes.CDLL
    for source, answer in (
        (None, False),
        ("int aclInit;", False),
        ("int AsrAscendStandInReadCounters;", True),
    ):
        folder = tmp_path / str(len(source or ""))
        folder.mkdir()
        if source is not None:
            (folder / "libascendcl.so").write_bytes(compiled(source))
        monkeypatch.setattr(ctypes, "CDLL", lambda name, folder=folder: real(str(folder / name)))
        assert verify_machine.is_stand_in() is answer
