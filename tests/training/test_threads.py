"""Training's threads: how many by default, and what is said when they wait for each other."""

from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import Callback

import asr_ascend.train
from asr_ascend.config.composing import compose_config
from asr_ascend.models import build_transducer
from asr_ascend.training.threads import (
    ThreadWatch,
    denormals_are_zero,
    set_threads,
    time_of_work,
)

DEMO = compose_config("train", ["experiment=demo"])
ON_CPU = SimpleNamespace(device=torch.device("cpu"))


@pytest.fixture(autouse=True)
def threads():
    """Sets torch's number of threads, 3 at the start of a test."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield torch.set_num_threads
    torch.set_num_threads(before)


class Run:
    """A training under a clock of its own; `work` is what the comparison of threads finds."""

    def __init__(self, *, work=(0.010, 0.010)):
        self.now, self.told, self.compared = 0.0, [], []
        self.work = work
        self.watch = ThreadWatch(128, self.told.append, lambda: self.now, self._compare)
        self.watch.on_train_start(None, ON_CPU)

    def _compare(self, threads, dim):
        self.compared.append((threads, dim))
        return self.work

    def steps(self, count, seconds):
        for _ in range(count):
            self.now += 0.5  # waiting for the batch, which is not part of the step
            self.watch.on_train_batch_start(None, ON_CPU, None, 0)
            self.now += seconds
            self.watch.on_train_batch_end(None, ON_CPU, None, None, 0)


def test_steps_that_slow_down_as_threads_wait_are_told_once():
    run = Run()
    run.steps(65, 0.2)
    assert run.told == []
    run.work = (0.0512, 0.0101)
    run.steps(60, 0.71)
    assert run.told == [
        "Steps now take 0.71 s; this run's first took 0.20 s. The same work takes 51.2 ms on "
        "training's 3 threads and 10.1 ms on one: another process keeps a core busy, and every "
        "thread waits for it. trainer.num_threads=1 makes training faster then."
    ]
    assert run.compared == [(3, 128), (3, 128)]


def test_threads_that_wait_from_the_start_are_told_before_the_first_step():
    run = Run(work=(0.020, 0.010))
    assert run.told == [
        "The same work takes 20.0 ms on training's 3 threads and 10.0 ms on one: another process "
        "keeps a core busy, and every thread waits for it. trainer.num_threads=1 makes training "
        "faster then."
    ]
    run.steps(25, 0.2)
    run.steps(60, 2.0)
    assert len(run.told) == len(run.compared) == 1


def test_steps_that_slow_down_for_another_reason_are_looked_into_and_not_told():
    run = Run()
    run.steps(25, 0.2)
    run.steps(60, 0.7)
    assert run.told == []
    assert len(run.compared) == 1 + 3  # at the start, and once in twenty slow steps


def test_a_few_slow_steps_and_slow_first_ones_count_for_nothing():
    run = Run()
    run.work = (0.05, 0.01)
    run.steps(5, 9.0)
    for _ in range(10):
        run.steps(11, 0.2)
        run.steps(9, 3.0)
    run.steps(60, 0.59)
    assert run.told == []
    run.steps(20, 0.61)
    assert len(run.told) == 1


def test_one_thread_is_never_compared(threads):
    threads(1)
    run = Run(work=(0.05, 0.01))
    run.steps(25, 0.2)
    run.steps(60, 2.0)
    assert run.told == run.compared == []


def test_the_comparison_leaves_threads_and_random_numbers_as_they_are(threads):
    threads(2)
    torch.manual_seed(0)
    state = torch.get_rng_state()
    together, alone = time_of_work(2, 16)
    assert together > 0 and alone > 0
    assert torch.get_num_threads() == 2
    assert torch.equal(torch.get_rng_state(), state)


def test_a_small_model_gets_one_thread_and_a_larger_one_torchs_choice():
    small = build_transducer(100, 0, DEMO.model)
    large = torch.nn.Linear(2500, 2001)
    set_threads(None, "cpu", large)
    assert torch.get_num_threads() == 3
    set_threads(None, "npu", small)
    assert torch.get_num_threads() == 3
    set_threads(2, "cpu", small)
    assert torch.get_num_threads() == 2
    set_threads(None, "cpu", small)
    assert torch.get_num_threads() == 1


def test_the_demo_trains_on_one_thread_by_default():
    assert DEMO.trainer.num_threads is None
    size = sum(p.numel() for p in build_transducer(106, 0, DEMO.model).parameters())
    assert 1_000_000 < size < 5_000_000


def test_training_watches_its_threads(tmp_path, capsys):
    data = SimpleNamespace(train_dataset=SimpleNamespace(noise=None, spec_augment=None))
    trainer = asr_ascend.train.build_trainer(DEMO, tmp_path, data, [Callback()])
    (watch,) = [callback for callback in trainer.callbacks if isinstance(callback, ThreadWatch)]
    assert (watch.dim, watch.work) == (128, time_of_work)
    watch.tell("One sentence.")
    assert capsys.readouterr() == ("", "One sentence.\n")


def test_denormal_numbers_are_zero_while_training_and_no_longer(monkeypatch):
    tiny = torch.tensor([1e-30])
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU has no mode in which denormal numbers are zero")
    torch.set_flush_denormal(False)
    with denormals_are_zero():
        assert (tiny * 1e-10).item() == 0
    assert (tiny * 1e-10).item() == pytest.approx(1e-40, rel=1e-4)
    seen = []
    monkeypatch.setattr(torch, "set_flush_denormal", seen.append)
    with pytest.raises(ValueError), denormals_are_zero():
        raise ValueError
    assert seen == [True, False]
