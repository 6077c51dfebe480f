"""How `make test` shares the tests out to two workers."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("xdist")

from tests.support import two_workers

ROOT = Path(__file__).resolve().parents[2]


def test_a_file_stays_with_one_worker_and_the_stand_in_with_one_process() -> None:
    assert two_workers.unit("tests/data/test_noise.py::test_a[x::y]") == "tests/data/test_noise.py"
    values, traffic = "test_npu_values.py::test_a", "test_npu_traffic.py::test_b"
    folder = "tests/kernels/standin"
    assert {two_workers.unit(f"{folder}/{test}") for test in (values, traffic)} == {folder}


def test_what_takes_long_starts_first() -> None:
    units = ["tests/config/test_config_errors.py", *reversed(two_workers.LONG_FIRST)]
    assert sorted(units, key=two_workers.place) == [*two_workers.LONG_FIRST, units[0]]


@pytest.mark.parametrize("path", dict.fromkeys([*two_workers.LONG_FIRST, *two_workers.TOGETHER]))
def test_what_is_named_is_there(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize(
    ("arguments", "workers"),
    [
        (["tests"], min(2, len(os.sched_getaffinity(0)))),
        (["tests/config", __file__], min(2, len(os.sched_getaffinity(0)))),
        ([__file__], 0),
        ([f"{__file__}::test_what_takes_long_starts_first", __file__], 0),
    ],
)
def test_chosen_files_need_no_worker(
    arguments: list[str], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    config = SimpleNamespace(args=arguments)
    assert two_workers.number_of_workers(config) == workers
