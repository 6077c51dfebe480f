"""Error rates and emission delays: values worked out by hand, and a plain edit distance."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asr_ascend.config.frames import frame_end_ms
from asr_ascend.decoding.metrics import (
    EmissionDelays,
    ErrorCounts,
    TokenDelay,
    align,
    character_errors,
    collapse_whitespace,
    emission_delays,
)


def steps(reference, hypothesis):
    return [
        (op.kind[0], op.reference_index, op.hypothesis_index) for op in align(reference, hypothesis)
    ]


def test_alignment_by_hand():
    assert steps("断路器", "断路器") == [("c", 0, 0), ("c", 1, 1), ("c", 2, 2)]
    assert steps("abc", "axc") == [("c", 0, 0), ("s", 1, 1), ("c", 2, 2)]
    assert steps("abc", "ac") == [("c", 0, 0), ("d", 1, None), ("c", 2, 1)]
    assert steps("ac", "abc") == [("c", 0, 0), ("i", None, 1), ("c", 1, 2)]
    assert steps("", "ab") == [("i", None, 0), ("i", None, 1)]
    assert steps("ab", "") == [("d", 0, None), ("d", 1, None)]
    assert steps("", "") == []
    assert steps([3, 1, 4], (3, 1, 5)) == [("c", 0, 0), ("c", 1, 1), ("s", 2, 2)]


def test_ties_pair_the_last_symbols_first():
    assert steps("aa", "a") == [("d", 0, None), ("c", 1, 0)]
    assert steps("a", "aa") == [("i", None, 0), ("c", 0, 1)]


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        new = [i]
        for j, y in enumerate(b, 1):
            new.append(min(row[j] + 1, new[-1] + 1, row[j - 1] + (x != y)))
        row = new
    return row[-1]


@settings(max_examples=200, deadline=None)
@given(st.text("abc", max_size=12), st.text("abcd", max_size=12))
def test_alignment_has_the_fewest_errors(reference, hypothesis):
    ops = align(reference, hypothesis)
    assert sum(op.kind != "correct" for op in ops) == edit_distance(reference, hypothesis)
    refs = [op.reference_index for op in ops if op.reference_index is not None]
    hyps = [op.hypothesis_index for op in ops if op.hypothesis_index is not None]
    assert refs == list(range(len(reference)))
    assert hyps == list(range(len(hypothesis)))
    for kind, i, j in ops:
        assert (i is None, j is None) == (kind == "insertion", kind == "deletion")
        if i is not None and j is not None:
            assert (reference[i] == hypothesis[j]) == (kind == "correct")


def test_character_errors_by_kind():
    # 合上三号开关 -> 合三号刀关啊: 上 deleted, 开 for 刀, 啊 inserted.
    counts = character_errors("合上三号开关", "合三号刀关啊")
    assert counts == ErrorCounts(1, 1, 1, 6)
    assert counts.errors == 3
    assert counts.cer == 0.5


def test_whitespace_is_collapsed():
    assert collapse_whitespace("  a \t b\n\u3000c ") == "a b c"
    assert character_errors(" open  the\tswitch ", "open the switch") == ErrorCounts(0, 0, 0, 15)
    assert character_errors("open the", "openthe") == ErrorCounts(0, 1, 0, 8)


def test_counts_add_up():
    total = sum([ErrorCounts(1, 2, 3, 10), ErrorCounts(0, 1, 0, 4)], ErrorCounts())
    assert total == ErrorCounts(1, 3, 3, 14)
    assert total.cer == 0.5


def test_cer_without_reference():
    assert ErrorCounts().cer == 0.0
    assert character_errors("", "a").cer == math.inf
    assert character_errors("a", "abc").cer == 2.0


def test_frame_end():
    for frame in (0, 1, 17):
        samples = (4 * frame + 6) * 160 + 400  # of 16 kHz: the last window that the frame sees
        assert frame_end_ms(frame) == samples / 16


def test_delays_by_hand():
    # a: 0-200 ms, b: 200-400 ms, c: 400-500 ms. Frame t ends at 40 t + 85 ms.
    delays = emission_delays("abc", "abc", [4, 2, 12], [0.0, 200.0, 400.0], 500.0)
    assert delays.tokens == (
        TokenDelay(0, 245.0 - 200.0, 0.0, False),
        TokenDelay(1, 165.0 - 400.0, 0.0, True),
        TokenDelay(2, 565.0 - 500.0, 0.0, False),
    )
    assert delays.median_ms == 45.0
    assert delays.share_before_onset == pytest.approx(1 / 3)


def test_only_correct_tokens_count():
    delays = emission_delays("abcd", "axdd", [1, 2, 3, 4], [0.0, 100.0, 200.0, 300.0], 400.0)
    assert [t.reference_index for t in delays.tokens] == [0, 3]
    assert [t.delay_ms for t in delays.tokens] == [125.0 - 100.0, 245.0 - 400.0]


def test_waiting_for_the_chunk_is_apart():
    frames = [0, 7, 8, 17]
    starts = [0.0, 300.0, 350.0, 600.0]
    plain = emission_delays("abcd", "abcd", frames, starts, 700.0)
    chunked = emission_delays("abcd", "abcd", frames, starts, 700.0, 8)
    assert [t.delay_ms for t in chunked.tokens] == [t.delay_ms for t in plain.tokens]
    assert [t.chunk_wait_ms for t in chunked.tokens] == [280.0, 0.0, 280.0, 240.0]
    assert chunked.median_chunk_wait_ms == 260.0
    ended = emission_delays("abcd", "abcd", frames, starts, 700.0, 8, num_frames=19)
    assert [t.chunk_wait_ms for t in ended.tokens] == [280.0, 0.0, 280.0, 40.0]
    ahead = emission_delays("abcd", "abcd", frames, starts, 700.0, 8, 19, look_ahead_frames=4)
    assert [t.chunk_wait_ms for t in ahead.tokens] == [440.0, 160.0, 400.0, 40.0]


def test_onset_at_the_frame_end_is_not_before():
    exact = emission_delays("a", "a", [0], [85.0], 100.0)
    assert exact.share_before_onset == 0.0
    assert emission_delays("a", "a", [0], [85.5], 100.0).share_before_onset == 1.0


def test_delays_join():
    one = emission_delays("a", "a", [0], [0.0], 100.0)
    two = emission_delays("a", "a", [5], [0.0], 100.0)
    both = sum([one, two], EmissionDelays())
    assert [t.delay_ms for t in both.tokens] == [-15.0, 185.0]
    assert both.median_ms == 85.0


def test_no_token():
    nothing = emission_delays("abc", "", [], [0.0, 1.0, 2.0], 3.0)
    assert nothing.tokens == ()
    assert math.isnan(nothing.median_ms)
    assert math.isnan(nothing.median_chunk_wait_ms)
    assert math.isnan(nothing.share_before_onset)


def test_lengths_that_do_not_fit():
    message = r"^`frames` must have one entry per symbol of `hypothesis` \(1\), but has 2\.$"
    with pytest.raises(ValueError, match=message):
        emission_delays("a", "a", [0, 1], [0.0], 1.0)
    message = r"^`token_start_ms` must have one entry per symbol of `reference` \(2\), but has 1\.$"
    with pytest.raises(ValueError, match=message):
        emission_delays("ab", "a", [0], [0.0], 1.0)
