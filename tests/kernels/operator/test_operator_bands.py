"""Bands in the emulated operator: value and gradient are those of the full lattice with -inf."""

from __future__ import annotations

import ctypes
import math
import random
import re
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.support import banded_cases as bands
from tests.support import emulated_operator as emulated
from tests.support import oracles

each_dtype = pytest.mark.parametrize("dtype", emulated.DTYPES, ids=["float32", "float16", "bf16"])
OK = emulated.STATUS_OK

SIZES = {
    "one": [(1, 0)],
    "one_frame": [(1, 4)],
    "no_labels": [(6, 0)],
    "small": [(4, 2), (7, 5)],
    "ragged": [(9, 3), (1, 1), (14, 11), (3, 0), (30, 9)],
    "more_labels": [(3, 8)],
    "long": [(300, 60)],
    "high": [(20, 150)],
}


def check(
    library: ctypes.CDLL, case: oracles.Case, band: Tensor, *, entry: str = "fused", **options
) -> emulated.Result:
    machine = {name: options.pop(name) for name in ("cores", "seed") if name in options}
    result = emulated.call(library, case, band=band, entry=entry, **options, **machine)
    costs, gradient = bands.exact(case, band, **options)
    emulated.assert_costs(result.costs, costs)
    upstream = options.get("upstream")
    scale = 1.0 if upstream is None else float(upstream.abs().max())
    scale *= 1.0 + options.get("fastemit_lambda", 0.0)
    oracles.assert_gradient(result.gradient, gradient, case.logits.dtype, scale)
    assert result.status.tolist() == [OK] * len(costs)
    costs_alone = emulated.call(
        library,
        case,
        band=band,
        entry="forward",
        fused_log_softmax=options.get("fused_log_softmax", True),
        **machine,
    ).costs
    oracles.assert_same_bits(costs_alone, result.costs)
    return result


@each_dtype
@pytest.mark.parametrize("widest", [0, 1, 3, 40])
@pytest.mark.parametrize("name", SIZES)
def test_random_bands(operator: ctypes.CDLL, name: str, widest: int, dtype: torch.dtype) -> None:
    for seed in range(2):
        band = bands.random_bands(SIZES[name], widest, seed, spare_frames=seed)
        case = bands.make_banded_case(SIZES[name], 11, band, blank=3, dtype=dtype, seed=seed)
        check(operator, case, band, cores=3 + seed, seed=seed)


@each_dtype
@pytest.mark.parametrize("vocab", [70, 600, 2000, 24449])
def test_rows_of_every_width(operator: ctypes.CDLL, vocab: int, dtype: torch.dtype) -> None:
    sizes = [(9, 4), (5, 7), (2, 2)]
    band = bands.random_bands(sizes, 1, seed=vocab)
    case = bands.make_banded_case(sizes, vocab, band, blank=5, dtype=dtype)
    check(operator, case, band, cores=5)


@each_dtype
@pytest.mark.parametrize(
    "options",
    [
        {"clamp": 0.05},
        {"fastemit_lambda": 0.3},
        {"clamp": 0.1, "fused_log_softmax": False},
        {"upstream": torch.tensor([1.0, -2.0, 0.5, 3.0, 0.0]), "clamp": 0.2},
    ],
    ids=str,
)
def test_options(operator: ctypes.CDLL, options: dict, dtype: torch.dtype) -> None:
    sizes = SIZES["ragged"]
    band = bands.random_bands(sizes, 2, seed=4)
    case = bands.make_banded_case(sizes, 13, band, blank=12, dtype=dtype)
    if not options.get("fused_log_softmax", True):
        case = case.with_logits(case.logits.double().log_softmax(-1).to(dtype))
    check(operator, case, band, entry="split", cores=4, **options)


def test_blank_in_targets(operator: ctypes.CDLL) -> None:
    sizes = SIZES["ragged"]
    band = bands.random_bands(sizes, 2, seed=5)
    case = bands.make_banded_case(sizes, 6, band, blank=1)
    targets = case.targets.clone()
    targets[:, ::2] = 1
    case = replace(case, targets=targets)
    result = emulated.call(operator, case, band=band, blank_in_targets=True)
    costs, gradient = bands.exact(case, band)
    emulated.assert_costs(result.costs, costs)
    oracles.assert_gradient(result.gradient, gradient, torch.float32)


@each_dtype
def test_the_full_band_is_no_band_bit_for_bit(operator: ctypes.CDLL, dtype: torch.dtype) -> None:
    sizes = [(9, 3), (1, 4), (14, 11), (3, 0), (40, 35), (1, 0)]
    case = oracles.make_case(sizes, 21, blank=0, dtype=dtype)
    for entry in ("fused", "split", "forward"):
        without = emulated.call(operator, case, entry=entry, cores=3)
        full = emulated.call(operator, case, band=bands.full_bands(sizes), entry=entry, cores=3)
        oracles.assert_same_bits(full.costs, without.costs)
        if entry != "forward":
            oracles.assert_same_bits(full.gradient, without.gradient)


@each_dtype
def test_same_bits_for_any_number_of_cores(operator: ctypes.CDLL, dtype: torch.dtype) -> None:
    sizes = [(30, 9), (7, 20), (1, 3), (50, 12), (4, 0)]
    band = bands.random_bands(sizes, 3, seed=2)
    case = bands.make_banded_case(sizes, 17, band, dtype=dtype)
    first = emulated.call(operator, case, band=band, cores=1)
    for seed, cores in enumerate([1, 2, 3, 7, 40, 48]):
        result = emulated.call(operator, case, band=band, cores=cores, seed=seed)
        oracles.assert_same_bits(result.costs, first.costs)
        oracles.assert_same_bits(result.gradient, first.gradient)
    machine = {"entry": "split", "cores": 5, "backward_cores": 11}
    for options in ({"in_place": True}, {"offset": 4}, {"offset": 36}):
        split = emulated.call(operator, case, band=band, **machine, **options)
        oracles.assert_same_bits(split.costs, first.costs)
        oracles.assert_same_bits(split.gradient, first.gradient)


def test_many_samples(operator: ctypes.CDLL) -> None:
    """More than the cores, and than the schedule sorts at a time."""
    sizes = [(1 + i % 7, i % 5) for i in range(300)]
    band = bands.random_bands(sizes, 1, seed=3)
    check(operator, bands.make_banded_case(sizes, 5, band, blank=2), band, cores=3)


def test_labels_beyond_the_longest_diagonal(operator: ctypes.CDLL) -> None:
    """Where the band is narrow, only memory limits the labels."""
    band = torch.full((2, 1500, 2), 0)
    column = torch.arange(1500).clamp(max=1400)
    band[0] = torch.stack([(column - 1).clamp(min=0), (column + 1).clamp(max=1400)], -1)
    band[1, :3] = torch.tensor([[0, 1100], [1100, 1100], [1100, 1100]])
    lengths = torch.tensor([1500, 3]), torch.tensor([1400, 1100])
    rows = int((band[0, :, 1] - band[0, :, 0] + 1).sum()) + 1103
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, 3, generator=generator)
    targets = torch.randint(1, 3, (2, 1400), generator=generator)
    case = oracles.Case(logits, targets, *lengths, blank=0)
    result = emulated.call(operator, case, band=band, cores=4)
    assert result.status.tolist() == [OK, OK]
    expected = loss_of_reference(case, band)
    emulated.assert_costs(result.costs, expected[0])
    oracles.assert_gradient(result.gradient, expected[1], torch.float32)


def loss_of_reference(case: oracles.Case, band: Tensor) -> tuple[Tensor, Tensor]:
    from asr_ascend.losses import rnnt_loss_and_grad

    arguments = case.targets, case.logit_lengths, case.target_lengths, case.blank
    return rnnt_loss_and_grad(case.logits.double(), *arguments, band=band, backend="cpu")


GAP = torch.tensor([[[0, 1], [2, 3], [3, 3]], [[0, 3], [0, 3], [1, 3]]])
GAP_SIZES = [(3, 3), (3, 3)]


def test_a_band_without_a_path_costs_infinity(operator: ctypes.CDLL) -> None:
    """Frames 0 and 1 of the first sample meet at a step of one label."""
    case = bands.make_banded_case(GAP_SIZES, 5, GAP, blank=0)
    for entry in ("fused", "split"):
        result = check(operator, case, GAP, entry=entry, cores=2)
        assert result.costs[0] == math.inf and result.costs[1].isfinite()
        assert (result.gradient[:5] == 0).all() and (result.gradient[5:] != 0).any()


@pytest.mark.parametrize("nan_rule", range(3), ids=["drop", "second", "propagate"])
@pytest.mark.parametrize("poison", [math.nan, math.inf], ids=["nan", "inf"])
def test_poison_stays_in_its_sample(operator: ctypes.CDLL, poison: float, nan_rule: int) -> None:
    """In any row, on both sides of a step that no path takes too."""
    sizes = [(6, 3), *GAP_SIZES, (5, 4)]
    band = bands.random_bands(sizes, 1, seed=8)
    band[1, :3] = GAP[0]
    case = bands.make_banded_case(sizes, 5, band, blank=0)
    options = {"band": band, "nan_rule": nan_rule, "cores": 3}
    clean = emulated.call(operator, case, **options)
    rows = bands.samples_of(case, band)
    for spoiled in (1, 2):
        for row in range(rows[spoiled].start, rows[spoiled].stop):
            logits = case.logits.clone()
            logits[row, 4] = poison
            result = emulated.call(operator, case.with_logits(logits), **options)
            assert result.costs.isnan().tolist() == [b == spoiled for b in range(4)]
            assert result.status.tolist() == [OK] * 4
            for b in range(4):
                if b == spoiled:
                    assert result.gradient[rows[b]].isnan().all()
                else:
                    oracles.assert_same_bits(result.gradient[rows[b]], clean.gradient[rows[b]])


def test_the_label_that_leads_out_of_the_band_is_not_read(operator: ctypes.CDLL) -> None:
    """A NaN there, among log-probabilities, changes nothing."""
    case = BASE.with_logits(BASE.logits.log_softmax(-1))
    options = {"band": BASE_BAND, "fused_log_softmax": False, "entry": "split"}
    clean = emulated.call(operator, case, **options)
    logits = case.logits.clone()
    logits[1, case.targets[0, 1]] = math.nan  # cell (0, 1) of sample 0, whose frame ends there
    result = emulated.call(operator, case.with_logits(logits), **options)
    oracles.assert_same_bits(result.costs, clean.costs)
    oracles.assert_same_bits(result.gradient, clean.gradient)


def test_large_and_impossible_logits(operator: ctypes.CDLL) -> None:
    sizes = SIZES["ragged"]
    band = bands.random_bands(sizes, 1, seed=9)
    case = bands.make_banded_case(sizes, 7, band, blank=2, scale=1e4)
    logits = case.logits.clone()
    logits[3, 5] = -math.inf
    check(operator, case.with_logits(logits), band)


BASE_SIZES = [(4, 2), (3, 2), (5, 1)]
BASE_BAND = torch.tensor(
    [
        [[0, 1], [0, 2], [1, 2], [2, 2], [0, 0]],
        [[0, 1], [0, 2], [1, 2], [0, 0], [0, 0]],
        [[0, 1], [0, 1], [0, 1], [1, 1], [1, 1]],
    ]
)
BASE = bands.make_banded_case(BASE_SIZES, 6, BASE_BAND, blank=0)
BAND, TOTAL, FRAMES = emulated.BAND, emulated.ROW_TOTAL, emulated.LOGIT_LENGTH
MALFORMED = {
    "above_the_last_column": (1, 1, [0, 3]),
    "last_before_first": (1, 1, [2, 1]),
    "below_column_0": (1, 0, [-1, 1]),
    "without_column_0": (1, 0, [1, 1]),
    "a_first_column_that_falls": (0, 3, [0, 2]),
    "a_last_column_that_falls": (0, 2, [1, 1]),
    "a_gap": (0, 1, [3, 3]),
    "without_the_last_column": (1, 2, [1, 1]),
    "huge": (2, 2, [0, 2**31 - 1]),
    "most_negative": (2, 2, [-(2**31), 1]),
}


@pytest.mark.parametrize("cores", [1, 4, 40])
@pytest.mark.parametrize("entry", ["fused", "split"])
@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_bands_are_reported_and_touch_nothing_else(
    operator: ctypes.CDLL, name: str, entry: str, cores: int
) -> None:
    """The emulator fails on any access outside a tensor; all losses are NaN, gradients zero."""
    sample, frame, limits = MALFORMED[name]
    band = BASE_BAND.clone()
    band[sample, frame] = torch.tensor(limits)
    result = emulated.call(operator, BASE, band=band, entry=entry, cores=cores)
    assert result.costs.isnan().all() and (result.gradient == 0).all()
    assert result.status.tolist() == [BAND if b == sample else TOTAL for b in range(3)]


def test_frames_that_lie_apart(operator: ctypes.CDLL) -> None:
    """No other rule is broken: columns never fall, and both corners are there."""
    band = BASE_BAND.clone()
    band[0, :4] = torch.tensor([[0, 0], [2, 2], [2, 2], [2, 2]])
    result = emulated.call(operator, BASE, band=band, entry="fused")
    assert result.costs.isnan().all() and (result.gradient == 0).all()
    assert result.status.tolist() == [BAND, TOTAL, TOTAL]


@pytest.mark.parametrize("entry", ["fused", "split"])
def test_lengths_that_do_not_fit_the_band(operator: ctypes.CDLL, entry: str) -> None:
    for changes, expected in (
        ({"logit_lengths": [4, 3, 6]}, [TOTAL, TOTAL, FRAMES]),
        ({"logit_lengths": [4, 0, 5]}, [TOTAL, FRAMES, TOTAL]),
        ({"logit_lengths": [4, 2, 5]}, [TOTAL] * 3),  # too few rows: its frame 1 has column 2
        ({"target_lengths": [2, 3, 1]}, [TOTAL, emulated.TARGET_LENGTH, TOTAL]),
        ({"target_lengths": [2, 1, 1]}, [TOTAL, BAND, TOTAL]),
    ):
        fields = {name: torch.tensor(value) for name, value in changes.items()}
        result = emulated.call(operator, replace(BASE, **fields), band=BASE_BAND, entry=entry)
        assert result.costs.isnan().all() and (result.gradient == 0).all()
        assert result.status.tolist() == expected
    more = BASE.with_logits(torch.zeros(BASE.logits.shape[0] + 1, 6))
    result = emulated.call(operator, more, band=BASE_BAND, entry=entry)
    assert result.status.tolist() == [TOTAL] * 3 and (result.gradient == 0).all()


def test_diagonals_that_do_not_fit(operator: ctypes.CDLL) -> None:
    """A band as wide as a lattice of 1,025 columns, and as high."""
    rows = 1025 * 1025
    lengths = torch.tensor([1025]), torch.tensor([1024])
    case = oracles.Case(torch.zeros(rows, 2), torch.ones(1, 1024).long(), *lengths, blank=0)
    result = emulated.call(operator, case, band=bands.full_bands([(1025, 1024)]), cores=2)
    assert result.status.tolist() == [emulated.BAND_WIDTH]
    assert result.costs.isnan().all() and (result.gradient == 0).all()


def test_another_band_in_the_backward_pass_stays_inside_of_the_tensors(
    operator: ctypes.CDLL,
) -> None:
    """What it computes is of no use; rows may be written twice, but nothing outside of them."""
    draws = random.Random(0)
    twice = re.compile(r"DataCopyPad: `dst` \(GM `grad`\) is written .* earlier write")
    for _ in range(200):
        band = torch.tensor([[[draws.randint(-3, 9) for _ in range(2)] for _ in range(5)]] * 3)
        try:
            options = {"band": BASE_BAND, "backward_band": band, "entry": "split", "cores": 1}
            emulated.call(operator, BASE, **options)
        except emulated.Violation as violation:
            assert twice.match(str(violation))


def test_wrong_numbers_anywhere(operator: ctypes.CDLL) -> None:
    """The emulator fails on any access outside a tensor, whatever lengths and band say."""
    draws = random.Random(1)
    ran = {True: 0, False: 0}
    for seed in range(150):
        sizes = [(draws.randint(1, 6), draws.randint(0, 4)) for _ in range(3)]
        band = bands.random_bands(sizes, 1, seed)
        case = bands.make_banded_case(sizes, 5, band, blank=1, seed=seed)
        fields = [band.clone(), case.logit_lengths.clone(), case.target_lengths.clone()]
        for _ in range(draws.randint(1, 2)):
            field = draws.choice(fields).view(-1)
            value = draws.choice([*range(-3, 9), 2**31 - 1, -(2**31)])
            field[draws.randrange(len(field))] = value
        wrong = replace(case, logit_lengths=fields[1], target_lengths=fields[2])
        options = {"band": fields[0], "entry": draws.choice(["fused", "split"])}
        result = emulated.call(operator, wrong, cores=draws.randint(1, 5), seed=seed, **options)
        valid = bool((result.status == OK).all())
        ran[valid] += 1
        if not valid:
            assert (result.status != OK).all()
            assert result.costs.isnan().all() and (result.gradient == 0).all()
        else:
            emulated.assert_costs(result.costs, bands.exact(wrong, fields[0])[0])
    assert min(ran.values()) > 10


def test_windows_in_a_band_and_without(operator: ctypes.CDLL) -> None:
    sizes = [(7, 3), (4, 2), (6, 3)]
    windows = torch.tensor(
        [[[0, 2], [1, 4], [3, 6]], [[0, 1], [2, 3], [0, 0]], [[1, 9], [2, 3], [3, 5]]]
    )
    for vocab in (11, 600, 20001):
        case = replace(oracles.make_case(sizes, vocab, blank=3, seed=1), emission_windows=windows)
        options = {"clamp": 0.3, "fastemit_lambda": 0.2}
        costs, gradient = oracles.exact(case, **options)
        result = emulated.call(operator, case, entry="split", cores=3, **options)
        emulated.assert_costs(result.costs, costs)
        oracles.assert_gradient(result.gradient, gradient, torch.float32, 1.2)
        band = lattice_band_of(case)
        inside = bands.banded(case, band)
        result = emulated.call(operator, inside, band=band, entry="split", cores=3, **options)
        emulated.assert_costs(result.costs, costs)
        lengths = case.logit_lengths, case.target_lengths
        expected = gradient[bands.places_in_full_lattice(*lengths, band)]
        oracles.assert_gradient(result.gradient, expected, torch.float32, 1.2)


def lattice_band_of(case: oracles.Case) -> Tensor:
    from asr_ascend.losses import lattice_band

    return lattice_band(case.emission_windows, case.logit_lengths, case.target_lengths)
