"""The delay penalty: its definition by enumeration, in every loss, layout and backend."""

import itertools
import math

import pytest
import torch

from asr_ascend.losses import (
    RNNTLoss,
    joiner_rnnt_loss,
    rnnt_loss,
    rnnt_loss_and_grad,
    simple_rnnt_loss,
)
from tests.support import joiner_batch, oracles
from tests.support.simple_batch import BLANK, defined, make_batch

PENALTY = 0.3


def a_case(dtype=torch.float32, blank=3, windows=None):
    sizes = [(5, 3), (4, 4), (1, 2), (3, 0)]
    return oracles.make_case(sizes, 7, blank=blank, dtype=dtype, seed=1)


def by_definition(case, fused_log_softmax=True, penalty=PENALTY):
    """Costs from every alignment: each label adds penalty * ((T - 1) / 2 - t)."""
    log_probs = case.logits.log_softmax(-1) if fused_log_softmax else case.logits
    costs = []
    for rows, frames, num_labels, labels in case.samples():
        block = log_probs[rows].reshape(frames, num_labels + 1, -1)
        paths = [
            oracles.path_score(block, emitting, labels, case.blank_index)
            + penalty * sum((frames - 1) / 2 - t for t in emitting)
            for emitting in itertools.combinations_with_replacement(range(frames), num_labels)
        ]
        costs.append(-torch.logsumexp(torch.stack(paths), 0))
    return torch.stack(costs)


def gradient_of(case, loss, upstream=None):
    leaf = case.logits.double().requires_grad_()
    costs = loss(case.with_logits(leaf))
    (gradient,) = torch.autograd.grad(costs, leaf, torch.ones_like(costs))
    return costs.detach(), gradient


@oracles.each_backend
@oracles.each_dtype
@pytest.mark.parametrize("blank", [0, 3, -1])
@pytest.mark.parametrize("fused_log_softmax", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_value_and_gradient_are_those_of_the_definition(
    padded, fused_log_softmax, blank, dtype, backend
):
    case = a_case(dtype, blank)
    if not fused_log_softmax:
        case = case.with_logits(case.logits.double().log_softmax(-1).to(dtype))
    want, expected = gradient_of(case, lambda c: by_definition(c, fused_log_softmax))
    rows = case.padded_logits(float("nan"), 1, 1) if padded else None
    options = {"delay_penalty": PENALTY, "fused_log_softmax": fused_log_softmax}
    costs, gradient = oracles.run(case, backend, padded=rows, **options)
    if padded:
        assert (case.outside_lattice(gradient) == 0).all()
        gradient = case.take_packed(gradient)
    oracles.assert_costs(costs, want, dtype)
    oracles.assert_gradient(gradient, expected, dtype)


@oracles.each_backend
def test_zero_changes_no_bit(backend):
    case = a_case()
    oracles.assert_same_bits(
        oracles.run(case, backend, delay_penalty=0.0)[1], oracles.run(case, backend)[1]
    )


@oracles.each_backend
def test_early_labels_gain_what_late_ones_lose(backend):
    """One label in five frames, all of equal probability."""
    rows = torch.zeros(10, 2, dtype=torch.float64)
    arguments = rows, torch.tensor([[1]]), torch.tensor([5]), torch.tensor([1])
    cost = rnnt_loss(*arguments, blank=0, delay_penalty=0.2, backend=backend)
    bonuses = torch.tensor([0.4, 0.2, 0.0, -0.2, -0.4], dtype=torch.float64)
    torch.testing.assert_close(cost, 6 * math.log(2.0) - bonuses.logsumexp(0))


@oracles.each_backend
def test_the_cost_may_be_negative(backend):
    rows = torch.tensor([[-50.0, 0.0], [0.0, -50.0], [0.0, -50.0], [0.0, -50.0]]).double()
    rows = torch.cat([rows, torch.zeros(2, 2)])  # (t, u): the label comes in frame 0 of three
    arguments = rows, torch.tensor([[1]]), torch.tensor([3]), torch.tensor([1])
    cost = rnnt_loss(*arguments, blank=0, delay_penalty=5.0, backend=backend)
    assert cost < -3.0


@oracles.each_backend
@pytest.mark.parametrize(
    "options",
    [
        {"clamp": 0.2},
        {"fastemit_lambda": 0.5},
        {"fastemit_lambda": 0.5, "clamp": 0.2},
        {"fastemit_lambda": 0.5, "fused_log_softmax": False},
    ],
)
def test_with_fastemit_clamp_and_log_probabilities(options, backend):
    case = a_case(torch.float64)
    if not options.get("fused_log_softmax", True):
        case = case.with_logits(case.logits.log_softmax(-1))
    fused = options.get("fused_log_softmax", True)
    logits = case.logits.clone().requires_grad_()
    log_probs = logits.log_softmax(-1) if fused else logits * 1
    given = log_probs.detach().requires_grad_()
    costs = by_definition(case.with_logits(given), fused_log_softmax=False)
    (share,) = torch.autograd.grad(costs.sum(), given)
    is_label = torch.arange(case.vocab) != case.blank_index
    share = share * (1 + options.get("fastemit_lambda", 0.0) * is_label)
    (want,) = torch.autograd.grad(log_probs, logits, share)
    if "clamp" in options:
        want = want.clamp(-options["clamp"], options["clamp"])
    _, gradient = oracles.run(case, backend, delay_penalty=PENALTY, **options)
    torch.testing.assert_close(gradient, want, rtol=1e-9, atol=1e-11)


def test_windows_bands_and_blank_among_the_targets_agree_with_the_reference():
    """Each against the reference, whose gradient rests on autograd alone."""
    case = a_case(torch.float64)
    windows = torch.tensor([[0, 2], [0, 3], [1, 4], [2, 4]]).expand(4, 4, 2)
    for changed in (
        {"emission_windows": windows},
        {"blank_in_targets": "allow"},
        {"emission_windows": windows, "fastemit_lambda": 0.3, "clamp": 0.4},
    ):
        case_ = case
        if "blank_in_targets" in changed:
            case_ = oracles.replace(case, targets=case.targets.clone())
            case_.targets[0, 1] = case_.targets[1, 0] = case_.blank_index
        arguments = case_.logits, case_.targets, case_.logit_lengths, case_.target_lengths
        got, want = (
            rnnt_loss_and_grad(
                *arguments, blank=case_.blank, delay_penalty=PENALTY, backend=backend, **changed
            )
            for backend in oracles.BACKENDS
        )
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12)


@oracles.each_backend
@oracles.each_dtype
def test_a_band(dtype, backend):
    """The full lattice, with labels closed where the band ends."""
    batch = make_batch([(6, 3), (4, 2)], seed=4)
    band = torch.tensor(
        [[[0, 1], [0, 2], [1, 2], [1, 3], [2, 3], [3, 3]], [[0, 2]] * 4 + [[2, 2]] * 2]
    )
    band[1, 3] = torch.tensor([1, 2])
    count = 2 + 3 + 2 + 3 + 2 + 1 + 9 + 2
    rows = torch.randn(count, 6, generator=torch.Generator().manual_seed(1)).to(dtype)
    arguments = batch.targets, batch.logit_lengths, batch.target_lengths, BLANK
    options = {"delay_penalty": PENALTY, "band": band}
    costs, gradient = rnnt_loss_and_grad(rows, *arguments, backend=backend, **options)
    want = rnnt_loss_and_grad(rows.double(), *arguments, backend="reference", **options)
    oracles.assert_costs(costs, want[0], dtype)
    oracles.assert_gradient(gradient, want[1], dtype)
    # Alignments written out: in sample 1 the band leaves out (3, 0) alone.
    cells = rows.double()[13:].log_softmax(-1)
    log_probs = torch.full((4, 3, 6), -math.inf, dtype=torch.float64)
    log_probs[:3] = cells[:9].reshape(3, 3, 6)
    log_probs[3, 1:] = cells[9:]
    labels = batch.targets[1, :2].tolist()
    paths = [
        oracles.path_score(log_probs, emitting, labels, BLANK)
        + PENALTY * sum(1.5 - t for t in emitting)
        for emitting in itertools.combinations_with_replacement(range(4), 2)
        if emitting[0] < 3
    ]
    exact = -torch.logsumexp(torch.stack(paths), 0)
    torch.testing.assert_close(costs[1].double(), exact, rtol=3e-7, atol=0)


@pytest.mark.parametrize("way", joiner_batch.EACH_WAY, ids=["sample_by_sample", "chunk_by_chunk"])
@pytest.mark.parametrize("reduction", ["sum", "mean", "none"])
def test_the_joiners_loss(reduction, way):
    given = joiner_batch.make_batch()
    options = {"reduction": reduction, "delay_penalty": PENALTY, "fastemit_lambda": 0.1}
    batch = given.as_leaves(torch.float32)
    got = joiner_batch.value_and_gradients(joiner_batch.fused, batch, **options, **way)
    batch = given.as_leaves(torch.float64)
    want = joiner_batch.value_and_gradients(joiner_batch.apart, batch, **options)
    torch.testing.assert_close(got[0].double(), want[0], rtol=1e-6, atol=0)
    assert max(joiner_batch.relative_errors(got[1], want[1])) < 1e-5
    plain = joiner_batch.fused(given, reduction=reduction)
    assert not torch.allclose(got[0], plain)


def test_a_negative_cost_of_the_joiners_loss():
    batch = joiner_batch.make_batch(((9, 4),))
    costs = [
        joiner_rnnt_loss(*batch, delay_penalty=20.0, reduction="none", **way)
        for way in joiner_batch.EACH_WAY
    ]
    assert costs[0] < 0
    torch.testing.assert_close(*costs)


@oracles.each_backend
def test_the_simple_joiners_loss(backend):
    batch = make_batch()
    got, want = batch.tables(), batch.tables()
    options = {"delay_penalty": PENALTY, "reduction": "none"}
    costs, occupancies = simple_rnnt_loss(
        *got, *batch[2:], lm_only_scale=0.2, return_occupancies=True, backend=backend, **options
    )
    wanted = defined(batch, *want, 0.2, **options)
    torch.testing.assert_close(costs, wanted, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad(costs.sum(), got),
        torch.autograd.grad(wanted.sum(), want),
        rtol=1e-10,
        atol=1e-12,
    )
    _, plain = simple_rnnt_loss(*batch, return_occupancies=True, lm_only_scale=0.2)
    frame = torch.arange(occupancies.label.shape[1])[:, None]
    assert (occupancies.label[0] * frame).sum() < (plain.label[0] * frame).sum()  # sooner


def test_the_module_hands_it_on():
    case = a_case()
    arguments = case.logits, case.targets, case.logit_lengths, case.target_lengths
    module = RNNTLoss(blank=case.blank, delay_penalty=PENALTY)
    want = rnnt_loss(*arguments, blank=case.blank, delay_penalty=PENALTY)
    assert module(*arguments) == want != rnnt_loss(*arguments, blank=case.blank)
    assert torch.jit.script(module)(*arguments) == want


@oracles.each_backend
def test_no_path_and_nan_stay_what_they_are(backend):
    case = a_case(torch.float64)
    logits = case.logits.clone()
    logits[3, 2] = math.nan  # of sample 0
    rows = slice(20, 40)  # of sample 1
    logits[rows, case.targets[1, 0]] = -math.inf
    costs, gradient = oracles.run(case.with_logits(logits), backend, delay_penalty=PENALTY)
    assert costs[0].isnan() and costs[1] == math.inf and costs[2:].isfinite().all()
    assert gradient[:20].isnan().all() and not gradient[rows].any()
    assert gradient[40:].isfinite().all()


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, 1e7])
def test_out_of_range(value):
    case = a_case()
    arguments = case.logits, case.targets, case.logit_lengths, case.target_lengths
    with pytest.raises(ValueError) as raised:
        rnnt_loss(*arguments, blank=case.blank, delay_penalty=value)
    assert str(raised.value) == f"`delay_penalty` must be in [0, 1e+06], but is {value}."


def test_the_largest_one():
    case = a_case(torch.float64)
    arguments = case.logits, case.targets, case.logit_lengths, case.target_lengths
    got, want = (
        rnnt_loss_and_grad(*arguments, blank=case.blank, delay_penalty=1e6, backend=backend)
        for backend in oracles.BACKENDS
    )
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)
