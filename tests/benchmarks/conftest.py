"""What the tests of the benchmarks share: their package, and a small batch to measure."""

import pytest
import torch


@pytest.fixture
def tiny():
    """Ragged, 5 * 4 + 9 * 3 + 7 * 1 = 54 rows."""
    from benchmarks.cases import Case

    return Case("tiny", (5, 9, 7), (3, 2, 0), 11)


@pytest.fixture
def quick():
    from benchmarks.measuring import Settings

    return Settings(threads=(1, 2), repetitions=3, seconds=60.0)


@pytest.fixture(autouse=True)
def threads_as_before():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    from benchmarks import checks, measuring

    monkeypatch.setattr(measuring, "SETTLING_SECONDS", 0.0)
    yield
    checks.forget()
