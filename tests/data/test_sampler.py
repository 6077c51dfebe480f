"""Lattice-cost batches: bounds, coverage, order, ranks, position."""

import random
import re

import pytest

from asr_ascend.data.sampler import LatticeCostBatchSampler, UtteranceCost

VOCAB = 50


def make_costs(count=200, seed=0):
    draw = random.Random(seed)
    costs = []
    for number in range(count):
        seconds = draw.uniform(0.5, 6.0)
        frames = int(seconds * 25)
        costs.append(UtteranceCost(f"u{number}", seconds, frames, draw.randint(1, frames // 3)))
    return costs


def make_sampler(costs, **changes):
    arguments = {"vocab_size": VOCAB, "max_lattice_bytes": 3_000_000, "max_batch_seconds": 20.0}
    return LatticeCostBatchSampler(costs, **{**arguments, **changes})


def contents_of(batches):
    return {tuple(sorted(batch)) for batch in batches}


@pytest.mark.parametrize("epoch", [0, 1, 7, 100])
def test_every_utterance_once_within_both_bounds(epoch):
    costs = make_costs()
    sampler = make_sampler(costs)
    batches = sampler.batches(epoch)
    assert len(batches) == sampler.num_batches == len(sampler)
    assert sorted(i for batch in batches for i in batch) == list(range(200))
    for batch in batches:
        lattice = sum(costs[i].encoder_frames * (costs[i].tokens + 1) * VOCAB * 4 for i in batch)
        assert lattice <= 3_000_000
        assert len(batch) * max((costs[i].seconds for i in batch), default=0) <= 20.0


def test_known_batches_without_shuffle():
    # Lattices of 10 * (4 + 1) * 2 * 4 = 400 bytes: two fit into 800, and 3 s three times into 9 s.
    costs = [UtteranceCost(str(i), seconds, 10, 4) for i, seconds in enumerate([3, 1, 2, 3, 1])]
    by_bytes = make_sampler(costs, vocab_size=2, max_lattice_bytes=800, shuffle=False)
    assert by_bytes.batches(0) == by_bytes.batches(5) == [[1, 4], [2, 0], [3]]
    by_seconds = make_sampler(costs, vocab_size=2, max_batch_seconds=6.0, shuffle=False)
    assert by_seconds.batches(0) == [[1, 4, 2], [0, 3]]
    halves = make_sampler(costs, vocab_size=2, max_lattice_bytes=800, bytes_per_logit=2)
    assert max(len(batch) for batch in halves.batches(0)) == 4


def test_batches_hold_similar_lengths():
    costs = make_costs()
    for batch in make_sampler(costs).batches(3):
        seconds = [costs[i].seconds for i in batch]
        assert max(seconds) - min(seconds) < 1.2


def test_order_is_a_function_of_seed_and_epoch():
    costs = make_costs()
    first, second = make_sampler(costs), make_sampler(costs)
    second.batches(9)
    assert first.batches(4) == second.batches(4)
    assert first.batches(4) != first.batches(5)
    assert first.batches(4) != make_sampler(costs, seed=1).batches(4)
    # Contents change as well, not only the order,
    contents = contents_of(first.batches(4))
    assert contents != contents_of(first.batches(5))
    assert contents != contents_of(make_sampler(costs, seed=1).batches(4))
    # and the order where contents can't: each utterance has a batch of its own.
    long = [UtteranceCost(str(i), 15.0 + i, 10, 3) for i in range(8)]
    alone = make_sampler(long, max_batch_seconds=25.0)
    assert contents_of(alone.batches(4)) == contents_of(alone.batches(5))
    assert alone.batches(4) != alone.batches(5)
    assert alone.batches(4) != make_sampler(long, max_batch_seconds=25.0, seed=1).batches(4)


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_share_an_epoch_evenly(world_size):
    costs = make_costs(101)
    samplers = [make_sampler(costs, rank=r, world_size=world_size) for r in range(world_size)]
    shares = [sampler.rank_batches(2) for sampler in samplers]
    assert len({len(share) for share in shares} | {len(s) for s in samplers}) == 1
    assert sorted(i for share in shares for b in share for i in b) == list(range(101))


@pytest.mark.parametrize("epoch", [0, 3, 40])
def test_ranks_have_the_batches_of_one_rank_some_split(epoch):
    costs = make_costs(101)
    one = contents_of(make_sampler(costs).batches(epoch))
    for world_size in (2, 3, 4):
        batches = make_sampler(costs, world_size=world_size).batches(epoch)
        split = [set(batch) for batch in batches if tuple(sorted(batch)) not in one]
        assert all(any(batch < set(whole) for whole in one) for batch in split)
        # Every split makes one batch more, and their number grows to a multiple of the ranks.
        assert len(batches) - len(one) < world_size
        assert len(batches) % world_size == 0


def test_more_ranks_than_utterances_get_empty_batches():
    costs = make_costs(2)
    samplers = [make_sampler(costs, rank=rank, world_size=4) for rank in range(4)]
    batches = [sampler.rank_batches(0) for sampler in samplers]
    assert sorted(len(batch) for (batch,) in batches) == [0, 0, 1, 1]


def test_no_utterances():
    sampler = make_sampler([])
    assert (len(sampler), sampler.batches(0)) == (0, [])


def test_position_moves_with_consumed_and_epoch():
    sampler = make_sampler(make_costs())
    whole = sampler.batches(0)
    sampler.consumed = 3
    assert list(sampler) == whole[3:]
    sampler.set_epoch(0)
    assert sampler.consumed == 3
    sampler.set_epoch(1)
    assert (sampler.consumed, list(sampler)) == (0, sampler.batches(1))


def test_state_takes_up_the_position():
    sampler = make_sampler(make_costs())
    sampler.set_epoch(5)
    sampler.consumed = 4
    other = make_sampler(make_costs())
    other.load_state_dict(sampler.state_dict())
    assert list(other) == sampler.batches(5)[4:]


def test_other_data_can_be_taken_up_between_epochs_only():
    sampler = make_sampler(make_costs(200))
    other = make_sampler(make_costs(150))
    sampler.set_epoch(2)
    sampler.consumed = len(sampler)
    other.load_state_dict(sampler.state_dict())
    assert (other.epoch, list(other)) == (2, [])
    sampler.consumed = 3
    message = (
        "`state` must come from the same data, bounds, seed and number of ranks to resume in the "
        f"middle of an epoch, but epoch 2 was left after 3 of its {len(sampler)} batches with "
        "others."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        other.load_state_dict(sampler.state_dict())
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make_sampler(make_costs(200), seed=3).load_state_dict(sampler.state_dict())


def test_description_states_the_bounds():
    costs = [UtteranceCost(str(i), 3.0, 64, 15) for i in range(4)]  # 64 * 16 * 256 * 4 = 1 MiB
    sampler = make_sampler(costs, vocab_size=256, max_lattice_bytes=2 * 2**20)
    assert sampler.describe() == (
        "4 utterances (0.00 h) in 2 batches an epoch; a batch is at most 20 s of padded audio and "
        "2.0 MiB of joiner output (largest of the first epoch: 2.0 MiB)"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"max_lattice_bytes": 100},
            "`max_lattice_bytes` must be at least 10000 for utterance 'a', but is 100.",
        ),
        (
            {"max_batch_seconds": 1.5},
            "`max_batch_seconds` must be at least 2 for utterance 'a', but is 1.5.",
        ),
        ({"rank": 2, "world_size": 2}, "`rank` must be in [0, 1], but is 2."),
    ],
)
def test_errors(changes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make_sampler([UtteranceCost("a", 2.0, 10, 4)], **changes)
