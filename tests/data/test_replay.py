"""Older data mixed back: its share, its turns, its batches, and that it stays clean."""

import re
from collections import Counter

import pytest
import torch

from asr_ascend.data.manifest import load_manifest, write_manifest
from asr_ascend.data.replay import replay_count, rotation
from tests.data.test_batches import CLEAN, TEXTS, batches_by_id, make_module
from tests.data.test_sampler import make_costs, make_sampler


@pytest.mark.parametrize(
    ("share", "count", "expected"), [(0.2, 80, 20), (0.5, 7, 7), (0.1, 9, 1), (0.01, 3, 1)]
)
def test_the_share_is_of_the_whole_epoch(share, count, expected):
    assert replay_count(share, count) == expected


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1])
def test_a_share_out_of_range_is_one_sentence(share):
    message = f"`replay_share` must be above 0 and below 1, but is {share}."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        replay_count(share, 10)


def test_groups_go_through_all_of_it_in_turn():
    groups = rotation(10, 4, seed=3)
    assert [len(group) for group in groups] == [4, 4, 4]
    order = [index for group in groups for index in group]
    assert sorted(order[:10]) == list(range(10))
    assert order[10:] == order[:2]  # the last group is filled up from the start
    assert groups == rotation(10, 4, seed=3) != rotation(10, 4, seed=4)


def test_what_is_there_is_repeated_where_more_is_wanted():
    (only,) = rotation(3, 6, seed=0)
    assert Counter(only) == {0: 2, 1: 2, 2: 2}
    groups = rotation(3, 4, seed=0)
    assert [len(group) for group in groups] == [4, 4, 4]
    assert Counter(i for group in groups for i in group) == {0: 4, 1: 4, 2: 4}


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_every_epoch_has_all_new_utterances_once_and_its_group(world_size):
    groups = [[150 + i for i in group] for group in rotation(50, 37, seed=1)]
    samplers = [
        make_sampler(make_costs(200), rotation=groups, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    for epoch in range(7):
        shares = [sampler.rank_batches(epoch) for sampler in samplers]
        assert {len(share) for share in shares} == {len(samplers[0])}
        seen = Counter(i for share in shares for batch in share for i in batch)
        assert seen == Counter([*range(150), *groups[epoch % len(groups)]])


def test_groups_are_part_of_what_a_position_depends_on():
    groups = [[0, 1], [2, 3]]
    sampler = make_sampler(make_costs(20), rotation=groups)
    sampler.consumed = 1
    with pytest.raises(ValueError, match="in the middle of an epoch"):
        make_sampler(make_costs(20)).load_state_dict(sampler.state_dict())
    again = make_sampler(make_costs(20), rotation=groups)
    again.load_state_dict(sampler.state_dict())
    assert list(again) == sampler.batches(0)[1:]


def test_the_description_says_how_many_are_replayed():
    sampler = make_sampler(make_costs(20), rotation=[[0, 1], [2, 3]])
    assert sampler.describe().startswith("18 utterances (0.02 h, 2 of them replayed) in ")


@pytest.fixture
def manifests(tone_corpus):
    return tone_corpus("train", TEXTS), tone_corpus("valid", ["ab", "bx"])


def replaying(manifests, **changes):
    settings = {"replay_manifest": str(manifests[0]), "replay_share": 0.2, **changes}
    return make_module(*manifests, **settings)


def test_replayed_utterances_get_no_noise(manifests):
    clean = make_module(*manifests)
    whole = batches_by_id([clean.train_dataset[(0, range(8))]])
    noise = {**CLEAN, "noise_probability": 1.0, "snr_db": (0.0, 0.0)}
    module = replaying(manifests, **noise, cmvn=clean.cmvn)
    assert "10 utterances (0.00 h, 2 of them replayed)" in module.describe()
    assert "Skipped of" not in module.describe()  # a line that would say nothing
    replayed = set()
    for epoch in range(4):
        loader = module.train_dataloader()
        loader.sampler.set_epoch(epoch)
        found = batches_by_id(loader)
        assert len(found) == 10
        for name, features in found.items():
            older = name.startswith("replay/")
            assert torch.equal(features, whole[name.removeprefix("replay/")]) == older
            replayed |= {name} if older else set()
    assert sorted(replayed) == [f"replay/train{number}" for number in range(8)]


def test_their_texts_are_part_of_the_vocabulary_and_their_losses_are_counted(manifests, tmp_path):
    older = [u for u in load_manifest(manifests[1]) if u.text == "bx"]
    write_manifest(tmp_path / "older.jsonl", older)
    module = replaying(manifests, replay_manifest=str(tmp_path / "older.jsonl"))
    assert "x" in module.tokenizer.pieces
    known = make_module(*manifests).tokenizer
    message = re.escape(
        "`replay_manifest` must have a usable utterance, but skipped 1 (1 character unknown to the "
        f"tokenizer) of 1 utterances of {tmp_path / 'older.jsonl'}."
    )
    with pytest.raises(ValueError, match=f"^{message}$"):
        replaying(manifests, replay_manifest=str(tmp_path / "older.jsonl"), tokenizer=known)
