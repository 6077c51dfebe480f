"""The simple joiner's loss: its value and gradient are those of its definition, dense and slow."""

import math

import pytest
import torch

from asr_ascend.losses import Occupancies, rnnt_loss, simple_rnnt_loss
from tests.support import oracles
from tests.support.simple_batch import BLANK, LENGTHS, V, defined, dense_log_probs, make_batch

SCALES = [(0.0, 0.0), (0.25, 0.0), (0.0, 0.3), (0.25, 0.3), (1.0, 0.0), (0.0, 1.0), (0.4, 0.6)]
EACH_SCALE = pytest.mark.parametrize("scales", SCALES)


def of_batch(batch, am=None, lm=None, scales=(0.0, 0.0), **options):
    tables = (batch.am, batch.lm) if am is None else (am, lm)
    options = {
        "reduction": "none",
        "lm_only_scale": scales[0],
        "am_only_scale": scales[1],
        **options,
    }
    return simple_rnnt_loss(*tables, *batch[2:], **options)


@oracles.each_backend
@EACH_SCALE
def test_value_and_gradient_are_those_of_the_definition(scales, backend):
    for seed, lengths in enumerate([LENGTHS, [(1, 0)], [(2, 5)], [(6, 6), (6, 6)]]):
        batch = make_batch(lengths, seed, scale=2.0)
        upstream = torch.linspace(1.0, -2.0, len(lengths), dtype=torch.float64)
        got, want = batch.tables(), batch.tables()
        costs = of_batch(batch, *got, scales, backend=backend)
        wanted = defined(batch, *want, *scales)
        torch.testing.assert_close(costs, wanted, rtol=1e-12, atol=1e-12)
        gradients = [
            torch.autograd.grad(of, tables, upstream, materialize_grads=True)
            for of, tables in ((costs, got), (wanted, want))
        ]
        torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


def test_value_by_enumeration():
    batch = make_batch([(4, 3)], extra=(0, 0))
    (log_probs,) = dense_log_probs(batch, batch.am, batch.lm)
    labels = batch.targets[0].tolist()
    paths = [
        oracles.path_score(log_probs, emitting, labels, BLANK)
        for emitting in oracles.itertools.combinations_with_replacement(range(4), 3)
    ]
    want = -torch.logsumexp(torch.stack(paths), 0)
    torch.testing.assert_close(of_batch(batch)[0], want, rtol=1e-13, atol=0)


@EACH_SCALE
def test_gradcheck(scales):
    batch = make_batch([(4, 2), (2, 3)], extra=(0, 0))
    am, lm = (t.nan_to_num(0.0).requires_grad_() for t in batch[:2])
    assert torch.autograd.gradcheck(lambda *tables: of_batch(batch, *tables, scales), (am, lm))


@oracles.each_backend
@EACH_SCALE
def test_occupancies_are_the_derivatives_by_the_log_probabilities(scales, backend):
    batch = make_batch()
    _, occupancies = of_batch(batch, scales=scales, backend=backend, return_occupancies=True)
    assert isinstance(occupancies, Occupancies)
    log_probs = dense_log_probs(batch, batch.am, batch.lm, *scales).requires_grad_()
    costs = rnnt_loss(
        log_probs, *batch[2:], reduction="sum", fused_log_softmax=False, backend="reference"
    )
    (derivatives,) = torch.autograd.grad(costs, log_probs)
    torch.testing.assert_close(occupancies.blank, -derivatives[..., BLANK])
    for b, (_, labels) in enumerate(LENGTHS):
        index = batch.targets[b, :labels].expand(log_probs.shape[1], -1)[..., None]
        want = -derivatives[b, :, :labels].gather(2, index)[..., 0]
        torch.testing.assert_close(occupancies.label[b, :, :labels], want)
        assert not occupancies.label[b, :, labels:].any()


def test_occupancies_count_a_blank_in_each_frame_and_each_label_once():
    batch = make_batch(dtype=torch.float32)
    loss, (blank, label) = of_batch(batch, return_occupancies=True, reduction="sum")
    assert loss.dtype == blank.dtype == label.dtype == torch.float32
    assert not blank.requires_grad
    for b, (frames, labels) in enumerate(LENGTHS):
        torch.testing.assert_close(blank[b, :frames].sum(1), torch.ones(frames))
        torch.testing.assert_close(label[b, :, :labels].sum(0), torch.ones(labels))
        assert not blank[b, frames:].any() and not label[b, frames:].any()


def test_occupancies_do_not_change_the_gradient():
    batch = make_batch()
    for reduction in ("sum", "mean"):
        got, want = batch.tables(), batch.tables()
        loss, _ = of_batch(batch, *got, return_occupancies=True, reduction=reduction)
        other = of_batch(batch, *want, reduction=reduction)
        assert torch.equal(loss, other)
        assert all(
            map(torch.equal, torch.autograd.grad(loss, got), torch.autograd.grad(other, want))
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dtypes(dtype):
    batch = make_batch(seed=3)
    am, lm = batch.tables(dtype)
    costs = of_batch(batch, am, lm, (0.2, 0.1))
    exact = (
        batch.am.to(dtype).double().requires_grad_(),
        batch.lm.to(dtype).double().requires_grad_(),
    )
    want = defined(batch, *exact, 0.2, 0.1)
    assert costs.dtype == torch.float32
    torch.testing.assert_close(costs.double(), want, rtol=2e-6, atol=0)
    step = max(torch.finfo(dtype).eps, 3e-6)
    for got, wanted in zip(
        torch.autograd.grad(costs.sum(), (am, lm)),
        torch.autograd.grad(want.sum(), exact),
        strict=True,
    ):
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), wanted, rtol=step, atol=step)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("distance", [60.0, 400.0, 3e4])
def test_tables_whose_large_values_never_meet(distance, dtype):
    """Every term of a cell's sum underflows once the tables are shifted to their maxima."""
    batch = make_batch([(5, 3), (2, 2)], dtype=dtype)
    ridge = torch.arange(V) < V // 2
    am, lm = batch.tables(dtype)
    far = tuple(
        (t - distance * r).detach().requires_grad_() for t, r in ((am, ridge), (lm, ~ridge))
    )
    exact = tuple(t.detach().double().requires_grad_() for t in far)
    costs, want = of_batch(batch, *far), defined(batch, *exact)
    rtol = 2e-6 if dtype == torch.float32 else 1e-11
    torch.testing.assert_close(costs.double(), want, rtol=rtol, atol=0)
    for got, wanted in zip(
        torch.autograd.grad(costs.sum(), far), torch.autograd.grad(want.sum(), exact), strict=True
    ):
        # float32 holds no more than its step of numbers of this size
        atol = max(1e-5, 4e-7 * distance) if dtype == torch.float32 else 1e-9
        torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=atol)


def test_masked_symbols():
    batch = make_batch([(4, 2)])
    am, lm = batch.tables()
    with torch.no_grad():
        am[:, 1, BLANK + 1] = -math.inf
        lm[:, 1, 0] = -math.inf
    costs, want = of_batch(batch, am, lm), defined(batch, am, lm)
    torch.testing.assert_close(costs, want, rtol=1e-12, atol=0)
    for gradient in torch.autograd.grad(costs.sum(), (am, lm)):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("value", [math.nan, math.inf])
@EACH_SCALE
def test_nan_and_infinity_touch_their_own_sample_alone(scales, value):
    clean = make_batch([(4, 2), (4, 2), (4, 2)])
    for table in ("am", "lm"):
        batch = clean._replace(**{table: getattr(clean, table).clone()})
        getattr(batch, table)[1, 1, 3] = value
        am, lm = batch.tables()
        costs = of_batch(batch, am, lm, scales)
        uses = scales[1 if table == "lm" else 0] < 1.0  # the other table alone doesn't know it
        assert costs[1].isnan() == uses
        assert costs[[0, 2]].isfinite().all()
        for gradient in torch.autograd.grad(costs.sum(), (am, lm), materialize_grads=True):
            assert gradient[[0, 2]].isfinite().all()


def test_a_sample_without_an_alignment():
    batch = make_batch([(3, 2), (3, 2)])
    am, lm = batch.tables()
    with torch.no_grad():
        am[0, :, batch.targets[0, 1]] = -math.inf
    costs, occupancies = of_batch(batch, am, lm, return_occupancies=True)
    assert costs[0] == math.inf and costs[1].isfinite()
    for gradient in torch.autograd.grad(costs.sum(), (am, lm)):
        assert not gradient[0].any() and gradient[1].any()
    assert not occupancies.blank[0].any() and occupancies.blank[1].any()


def test_an_empty_batch():
    nothing = torch.zeros(0, dtype=torch.int64)
    arguments = (
        torch.zeros(0, 3, V),
        torch.zeros(0, 2, V),
        nothing[:, None].expand(0, 1),
        nothing,
        nothing,
    )
    assert simple_rnnt_loss(*arguments, reduction="sum") == 0
    assert simple_rnnt_loss(*arguments).isnan()
    assert simple_rnnt_loss(*arguments, reduction="none").shape == (0,)


def test_a_batch_of_any_padding_costs_the_same():
    """The mean distribution of `lm` counts no padding."""
    small, large = (make_batch(extra=extra) for extra in ((0, 0), (3, 4)))
    large.am[:, : small.am.shape[1]] = small.am
    large.lm[:, : small.lm.shape[1]] = small.lm
    large.targets[:, : small.targets.shape[1]] = small.targets
    got, want = (of_batch(batch, scales=(0.1, 0.4)) for batch in (small, large))
    torch.testing.assert_close(got, want, rtol=1e-13, atol=0)


def test_logarithms_of_large_tables_raise_no_warning(recwarn):
    batch = make_batch(scale=1e6, dtype=torch.float32)
    assert of_batch(batch).isfinite().all()
    assert not recwarn.list


def test_no_second_derivative():
    batch = make_batch()
    am, lm = batch.tables()
    loss = of_batch(batch, am, lm, reduction="sum")
    with pytest.raises(
        RuntimeError, match="create_graph=True: second derivatives need `rnnt_loss`"
    ):
        torch.autograd.grad(loss, am, create_graph=True)


def changed(**changes):
    def call(batch):
        options = {name: value for name, value in changes.items() if name not in batch._fields}
        tensors = {name: value for name, value in changes.items() if name in batch._fields}
        return of_batch(batch._replace(**tensors), **options)

    return call


REFUSED = {
    "am_rank": (
        changed(am=torch.zeros(4, 9)),
        ValueError,
        "`am` must be (B, T, V), V at least 1, but has shape (4, 9).",
    ),
    "lm_shape": (
        changed(lm=torch.zeros(4, 6, 5, dtype=torch.float64)),
        ValueError,
        "`lm` must be (4, U + 1, 6), but has shape (4, 6, 5).",
    ),
    "lm_dtype": (
        changed(lm=torch.zeros(4, 6, 6)),
        TypeError,
        "`lm` must be float64 as `am`, but is float32.",
    ),
    "am_dtype": (
        changed(am=torch.zeros(4, 9, 6, dtype=torch.int64)),
        TypeError,
        "`am` must be float32, float64, float16 or bfloat16, but is int64.",
    ),
    "scale": (
        changed(lm_only_scale=1.5),
        ValueError,
        "`lm_only_scale` must be in [0, 1], but is 1.5.",
    ),
    "scales": (
        changed(lm_only_scale=0.7, am_only_scale=0.6),
        ValueError,
        "`lm_only_scale` and `am_only_scale` must be at most 1 together, but are 0.7 and 0.6.",
    ),
    "scale_type": (
        changed(am_only_scale="0.1"),
        TypeError,
        '`am_only_scale` must be a float, but is "0.1".',
    ),
    "batch": (
        changed(
            targets=torch.zeros(2, 5, dtype=torch.int64),
            logit_lengths=torch.ones(2, dtype=torch.int64),
            target_lengths=torch.ones(2, dtype=torch.int64),
        ),
        ValueError,
        "`targets` must be (4, U), but has shape (2, 5).",
    ),
    "logit_length": (
        changed(logit_lengths=torch.tensor([7, 3, 10, 5])),
        ValueError,
        "`logit_lengths` must be in [1, 9], but is 10 for sample 2.",
    ),
    "target_length": (
        changed(target_lengths=torch.tensor([6, 0, 2, 3])),
        ValueError,
        "`target_lengths` must be in [0, 5], but is 6 for sample 0.",
    ),
    "label": (
        changed(targets=torch.full((4, 5), V)),
        ValueError,
        "`targets` must be in [0, 5], but is 6 at position 0 of sample 0.",
    ),
    "blank": (
        changed(targets=torch.full((4, 5), BLANK)),
        ValueError,
        "`targets` must not contain `blank`, but is 2 at position 0 of sample 0.",
    ),
    "flag": (
        changed(return_occupancies=1),
        TypeError,
        "`return_occupancies` must be a bool, but is 1.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_gets_one_sentence(name):
    call, error, sentence = REFUSED[name]
    with pytest.raises(error) as raised:
        call(make_batch())
    assert str(raised.value) == sentence
