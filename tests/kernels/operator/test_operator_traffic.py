"""Bytes between global memory and UB, as the emulator counts them."""

from __future__ import annotations

import ctypes

import pytest
import torch

from tests.support import banded_cases as bands
from tests.support import emulated_operator as emulated
from tests.support import oracles

BATCHES = {
    "B1": [(300, 40)],
    "B64": [(30 + b % 3, 20 - b % 2) for b in range(64)],
    "B64_ragged": [(10 + b % 30, 5 + b % 17) for b in range(64)],
}


def flag_bytes(cores: int, entry: str = "fused") -> int:
    """32 bytes that each core writes about its labels and every core reads.

    The backward entry reads one more from the forward's.
    """
    return 32 * (cores + cores * cores) + (32 * (1 + cores) if entry == "split" else 0)


each_batch = pytest.mark.parametrize("lengths", BATCHES.values(), ids=BATCHES)


@each_batch
@pytest.mark.parametrize("entry", ["fused", "split"])
def test_two_reads_and_one_write_of_the_logits_and_little_else(
    operator: ctypes.CDLL, lengths: list[tuple[int, int]], entry: str
) -> None:
    """Blocks rounded up to 32 bytes, and the lattice state still at most 96 bytes a row."""
    case = oracles.make_case(lengths, 500)
    traffic = emulated.call(operator, case, cores=40, entry=entry).traffic
    rows, logits_bytes = case.logits.shape[0], case.logits.numel() * 4
    assert traffic.logits_read == 2 * logits_bytes
    assert traffic.grad_written == logits_bytes
    assert traffic.state_charged - flag_bytes(40, entry) <= 96 * rows
    assert traffic.total_charged <= 1.05 * 3 * logits_bytes


@pytest.mark.parametrize("labels", [0, 1, 4, 9, 20, 31, 32, 33, 60, 120])
def test_state_of_targets_of_any_length(operator: ctypes.CDLL, labels: int) -> None:
    """Short anti-diagonals are written many at a time, long ones one by one."""
    case = oracles.make_case([(6000 // (labels + 1), labels)], 16)
    traffic = emulated.call(operator, case, cores=40).traffic
    assert traffic.state_charged - flag_bytes(40) <= 96 * case.logits.shape[0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bf16"])
def test_half_types_move_half_the_bytes(operator: ctypes.CDLL, dtype: torch.dtype) -> None:
    case = oracles.make_case([(100, 30)], 200, dtype=dtype)
    traffic = emulated.call(operator, case, cores=8).traffic
    assert traffic.logits_read == 2 * case.logits.numel() * 2
    assert traffic.grad_written == case.logits.numel() * 2


def test_rows_of_several_windows_are_read_twice_too(operator: ctypes.CDLL) -> None:
    case = oracles.make_case([(5, 3)], 30000)
    traffic = emulated.call(operator, case, cores=3).traffic
    assert traffic.logits_read == 2 * case.logits.numel() * 4


def test_log_probabilities_are_read_once(operator: ctypes.CDLL) -> None:
    """Their gradient doesn't depend on them."""
    case = oracles.make_case([(20, 5)], 100)
    traffic = emulated.call(
        operator, case.with_logits(case.logits.log_softmax(-1)), fused_log_softmax=False
    ).traffic
    assert traffic.logits_read == case.logits.numel() * 4


@each_batch
def test_all_cores_have_an_equal_share_of_the_rows(
    operator: ctypes.CDLL, lengths: list[tuple[int, int]]
) -> None:
    """In the phases that move the logits, whatever the batch."""
    case = oracles.make_case(lengths, 500)
    traffic = emulated.call(operator, case, cores=40).traffic
    for phase in (0, 2):
        assert traffic.phase_bytes_least[phase] >= 0.97 * traffic.phase_bytes_most[phase]


BANDED = {
    "B1": ([(2000, 500)], 2),
    "B8": ([(250, 50)] * 8, 2),
    "B16_one_column": ([(100, 20)] * 16, 0),
    "B4_wide": ([(60, 30)] * 4, 20),
}


@pytest.mark.parametrize(("sizes", "widest"), BANDED.values(), ids=BANDED)
@pytest.mark.parametrize("entry", ["fused", "split"])
def test_a_band_moves_what_its_rows_take(
    operator: ctypes.CDLL, sizes: list[tuple[int, int]], widest: int, entry: str
) -> None:
    """Not what the whole lattice would: the band's rows alone, and its small table."""
    band = bands.random_bands(sizes, widest)
    rows = sum(
        int((limits[:frames, 1] - limits[:frames, 0] + 1).sum())
        for limits, (frames, _) in zip(band, sizes, strict=True)
    )
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, 500, generator=generator)
    lengths = torch.tensor(sizes).unbind(1)
    targets = torch.randint(1, 500, (len(sizes), int(lengths[1].max())), generator=generator)
    case = oracles.Case(logits, targets, *lengths, blank=0)
    result = emulated.call(operator, case, band=band, cores=40, entry=entry)
    assert (result.status == emulated.STATUS_OK).all()
    traffic, logits_bytes = result.traffic, logits.numel() * 4
    assert traffic.logits_read == 2 * logits_bytes
    assert traffic.grad_written == logits_bytes
    flags = flag_bytes(40, entry)
    assert traffic.total_charged - flags <= 1.10 * 3 * logits_bytes + 96 * rows
    # The state of a row, 8 bytes a frame, and blocks that are not full.
    assert traffic.state_charged - flags <= (96 + 32) * rows + 64 * len(sizes)
    if entry == "fused":
        for phase in (1, 3):
            assert traffic.phase_bytes_least[phase] >= 0.9 * traffic.phase_bytes_most[phase]
