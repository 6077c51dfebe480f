"""Batches without workers: made ahead on a thread where torch has one, and in turn elsewhere."""

import threading

import pytest
import torch

from asr_ascend.data.dataset import collate
from asr_ascend.data.loader import BatchLoader


class Indices:
    """Five batches of an index each, as a sampler of epoch 3."""

    epoch, consumed = 3, 0

    def __len__(self):
        return 5

    def __iter__(self):
        return iter([[0], [1], [2], [3], [4]])


class Recorder:
    """A dataset that notes which thread makes what, and fails where it is told to."""

    def __init__(self, fails_at=None):
        self.begun = [threading.Event() for _ in range(5)]
        self.threads = {}
        self.fails_at = fails_at

    def __getitem__(self, work):
        epoch, (index,) = work
        assert epoch == 3
        self.threads[index] = threading.current_thread()
        self.begun[index].set()
        if index == self.fails_at:
            raise OSError(f"no audio for {index}")
        features = torch.full((2, 7), float(index))
        return collate([features], [[index]], [str(index)], {}, 7)


@pytest.fixture
def threads():
    """Sets torch's number of threads for a test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def ids(batches):
    return [batch.ids for batch in batches]


def test_the_next_batch_is_made_while_the_last_is_in_use(threads):
    threads(1)
    dataset = Recorder()
    batches = iter(BatchLoader(dataset, Indices()))
    assert not dataset.threads  # nothing before the first batch is asked for
    for index in range(4):
        assert next(batches).ids == [str(index)]
        assert dataset.begun[index + 1].wait(60)
        assert index + 2 not in dataset.threads  # one ahead, and no more
    assert next(batches).ids == ["4"]
    assert next(batches, None) is None
    assert threading.current_thread() not in dataset.threads.values()
    assert len(set(dataset.threads.values())) == 1


def test_where_torch_has_threads_batches_are_made_in_turn(threads):
    threads(2)
    dataset = Recorder()
    batches = iter(BatchLoader(dataset, Indices()))
    for index in range(5):
        assert next(batches).ids == [str(index)]
        assert list(dataset.threads) == list(range(index + 1))
    assert set(dataset.threads.values()) == {threading.current_thread()}


def test_an_error_comes_when_its_batch_is_asked_for(threads):
    threads(1)
    batches = iter(BatchLoader(Recorder(fails_at=2), Indices()))
    assert ids([next(batches), next(batches)]) == [["0"], ["1"]]
    with pytest.raises(OSError, match=r"^no audio for 2$"):
        next(batches)


def test_an_iterator_left_early_ends_its_thread_and_counts_what_was_taken(threads):
    threads(1)
    dataset = Recorder()
    sampler = Indices()
    batches = iter(BatchLoader(dataset, sampler))
    assert ids([next(batches), next(batches)]) == [["0"], ["1"]]
    assert sampler.consumed == 2
    batches.close()
    assert not dataset.threads[0].is_alive()
    assert 3 not in dataset.threads
