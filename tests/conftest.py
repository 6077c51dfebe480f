from __future__ import annotations

import signal
from typing import Any

import pytest
import torch

# A shell that starts the tests in the background has Ctrl-C ignored in all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    from tests.support.two_workers import number_of_workers

    return number_of_workers(config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.support.two_workers import FileByFile

    return FileByFile(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        from tests.support.two_workers import place, unit

        items.sort(key=lambda item: place(unit(item.nodeid)))


@pytest.fixture(scope="session", autouse=True)
def uninitialized_memory_is_nan():
    """torch.empty returns NaN, so output that nobody wrote can't pass a comparison."""
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.empty(3).isnan().all()


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Tensors this small only wait for a second thread; tests of threads set their own number."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    """A model with blank last that has learnt eight tone utterances by heart."""
    from tests.support.tiny_runs import BLANK_LAST, TINY, TinyRun, run, write_corpus

    folder = tmp_path_factory.mktemp("tiny")
    manifest = write_corpus(folder / "corpus")
    done = run("train", *TINY, *BLANK_LAST, "data.train_manifest=corpus/tones.jsonl", folder=folder)
    assert done.returncode == 0, done.stderr
    checkpoint = folder / "outputs" / "smoke" / "checkpoints" / "last.ckpt"
    return TinyRun(folder, manifest, checkpoint, done.stdout, done.stderr)
