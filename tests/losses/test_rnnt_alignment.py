"""rnnt_alignment: the likeliest of all alignments, and the earliest of equally likely ones."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from asr_ascend.losses import rnnt_alignment, rnnt_loss
from tests.losses.test_fuzz import bounded
from tests.support import oracles


def align(
    case: oracles.Case, backend: str | None, padded: torch.Tensor | None = None, **options: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    return rnnt_alignment(
        case.logits if padded is None else padded,
        case.targets,
        case.logit_lengths,
        case.target_lengths,
        case.blank,
        backend=backend,
        **options,
    )


def enumerated(case: oracles.Case, fused: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """The best of every alignment in float64; the earliest of those within 1e-12."""
    logits = case.logits.double()
    log_probs = logits.log_softmax(-1) if fused else logits
    frames = torch.full(case.targets.shape, -1)
    scores = torch.empty(len(case.targets), dtype=torch.float64)
    for b, (rows, num_frames, num_labels, labels) in enumerate(case.samples()):
        block = log_probs[rows].reshape(num_frames, num_labels + 1, -1)
        paths = list(itertools.combinations_with_replacement(range(num_frames), num_labels))
        values = torch.stack(
            [oracles.path_score(block, path, labels, case.blank_index) for path in paths]
        )
        scores[b] = values.max()
        best = [
            path for path, value in zip(paths, values, strict=True) if value > scores[b] - 1e-12
        ]
        earliest = tuple(min(path[u] for path in best) for u in range(num_labels))
        assert earliest in best
        frames[b, :num_labels] = torch.tensor(earliest, dtype=torch.int64)
    return frames, scores


@oracles.each_backend
@oracles.each_dtype
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("blank", [0, 2, -1])
def test_it_is_the_best_of_all_alignments(
    blank: int, padded: bool, fused: bool, dtype: torch.dtype, backend: str
) -> None:
    lengths = [(6, 4), (1, 3), (5, 0), (1, 0), (3, 5)]
    case = oracles.make_case(lengths, 6, blank=blank, dtype=dtype, scale=2.0, seed=blank + 2)
    if not fused:
        case = case.with_logits(case.logits.double().log_softmax(-1).to(dtype))
    rows = case.padded_logits(math.nan, 1, 1) if padded else None
    frames, log_probs = align(case, backend, rows, fused_log_softmax=fused)
    expected_frames, expected = enumerated(case, fused)
    assert frames.dtype == torch.int64
    assert torch.equal(frames, expected_frames)
    oracles.assert_costs(-log_probs, -expected, dtype)
    costs, _ = oracles.run(case, "reference", fused_log_softmax=fused)
    assert (log_probs.double() <= -costs.double() + 1e-5).all()


@oracles.each_backend
def test_of_equally_likely_alignments_the_earliest(backend: str) -> None:
    case = oracles.make_case([(4, 3), (2, 2)], 5, scale=0.0)
    frames, log_probs = align(case, backend)
    assert frames.tolist() == [[0, 0, 0], [0, 0, -1]]
    assert log_probs.tolist() == pytest.approx([-7 * math.log(5), -4 * math.log(5)])


@st.composite
def lattices_with_ties(draw: st.DrawFn) -> oracles.Case:
    """Whole numbers as log-probabilities: sums are exact, and many alignments are equal."""
    lengths = draw(
        st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), min_size=1, max_size=3)
    )
    vocab = draw(st.integers(2, 5))
    case = oracles.make_case(
        lengths,
        vocab,
        blank=draw(st.integers(-vocab, vocab - 1)),
        dtype=draw(st.sampled_from(oracles.ALL_DTYPES)),
        seed=draw(st.integers(0, 2**32)),
    )
    return case.with_logits(-case.logits.abs().mul(1.5).floor())


@bounded
@given(lattices_with_ties())
def test_ties_are_broken_alike_by_all(case: oracles.Case) -> None:
    expected_frames, expected = enumerated(case, fused=False)
    for backend in oracles.BACKENDS:
        frames, log_probs = align(case, backend, fused_log_softmax=False)
        assert torch.equal(frames, expected_frames)
        assert torch.equal(log_probs.double(), expected)


@oracles.each_dtype
def test_cpu_equals_reference_on_longer_lattices(dtype: torch.dtype) -> None:
    lengths = [(90, 31), (40, 60), (1, 9), (130, 0), (64, 64)]
    case = oracles.make_case(lengths, 33, blank=7, dtype=dtype, scale=3.0)
    frames, log_probs = align(case, "cpu")
    expected_frames, expected = align(case, "reference")
    assert torch.equal(frames, expected_frames)
    oracles.assert_costs(-log_probs, -expected.double(), dtype)
    for b, (_, num_frames, num_labels, _) in enumerate(case.samples()):
        own = frames[b, :num_labels]
        assert ((own >= 0) & (own < num_frames)).all()
        assert (own.diff() >= 0).all()
        assert (frames[b, num_labels:] == -1).all()
        _, score = rescore(case, b, own.tolist())
        assert float(log_probs[b]) == pytest.approx(score, rel=1e-6)


def rescore(case: oracles.Case, b: int, frames: list[int]) -> tuple[list[int], float]:
    rows, num_frames, num_labels, labels = list(case.samples())[b]
    block = case.logits[rows].double().log_softmax(-1).reshape(num_frames, num_labels + 1, -1)
    return labels, float(oracles.path_score(block, frames, labels, case.blank_index))


@oracles.each_backend
def test_the_frames_are_those_of_a_peaked_lattice(backend: str) -> None:
    """Logits that say where each label belongs."""
    where = [3, 3, 17, 40]
    logits = torch.zeros(50, 5, 6)
    logits[:, :, 5] = 12.0
    targets = torch.tensor([[1, 0, 4, 1]])
    for u, t in enumerate(where):
        logits[t, u, targets[0, u]] = 24.0
    sizes = torch.tensor([50]), torch.tensor([4])
    frames, log_probs = rnnt_alignment(logits[None], targets, *sizes, backend=backend)
    assert frames.tolist() == [where]
    loss = rnnt_loss(logits[None], targets, *sizes, backend=backend)
    assert 0 < -float(log_probs[0]) - float(loss) < 0.01


@oracles.each_backend
@oracles.each_dtype
def test_no_path_and_no_number(dtype: torch.dtype, backend: str) -> None:
    case = oracles.make_case([(3, 2), (3, 2), (3, 2), (4, 1)], 5, blank=0, dtype=dtype)
    plain_frames, plain = align(case, backend)
    logits = case.logits.clone()
    logits[8, 0] = -math.inf  # the last blank
    logits[9 + 6, 3] = math.nan  # a row of the last frame
    logits[18 + 4, 3] = math.inf
    frames, log_probs = align(case.with_logits(logits), backend)
    assert log_probs[0] == -math.inf
    assert log_probs[1].isnan() and log_probs[2].isnan()
    assert (frames[:3] == -1).all()
    assert torch.equal(frames[3], plain_frames[3])
    oracles.assert_same_bits(log_probs[3:], plain[3:])


@oracles.each_backend
def test_masked_symbols_are_gone_around(backend: str) -> None:
    case = oracles.make_case([(4, 2)], 5, blank=0, scale=2.0)
    logits = case.logits.clone()
    plain = align(case, backend)[0][0].tolist()
    for u, t in enumerate(plain):
        logits[t * 3 + u, int(case.targets[0, u])] = -math.inf
    case = case.with_logits(logits)
    frames, log_probs = align(case, backend)
    expected_frames, expected = enumerated(case)
    assert torch.equal(frames, expected_frames)
    assert all(t != old for t, old in zip(frames[0].tolist(), plain, strict=True))
    assert float(log_probs) == pytest.approx(float(expected), rel=1e-6)


@oracles.each_backend
def test_log_probabilities_that_lie_on_no_alignment_are_not_read(backend: str) -> None:
    case = oracles.make_case([(3, 2)], 5, blank=0)
    case = case.with_logits(case.logits.log_softmax(-1))
    expected = align(case, backend, fused_log_softmax=False)
    logits = case.logits.clone()
    logits[6:8, 0] = math.nan  # blanks of the last frame with labels to come
    logits[2::3, 1:] = math.nan  # labels of the last column
    frames, log_probs = align(case.with_logits(logits), backend, fused_log_softmax=False)
    assert torch.equal(frames, expected[0])
    oracles.assert_same_bits(log_probs, expected[1])
    costs, _ = oracles.run(case.with_logits(logits), backend, fused_log_softmax=False)
    plain, _ = oracles.run(case, backend, fused_log_softmax=False)
    oracles.assert_same_bits(costs, plain)


def test_layout_strides_index_types_and_threads_change_no_bit() -> None:
    case = oracles.make_case([(90, 31), (40, 60), (7, 2)], 33, blank=7)
    frames, log_probs = align(case, "cpu")
    before = torch.get_num_threads()
    batch = case.targets, case.logit_lengths, case.target_lengths
    wide = torch.full((len(case.logits), 40), math.nan)
    wide[:, :33] = case.logits
    results = [
        align(case, "cpu", case.padded_logits(math.nan, 3, 2)),
        rnnt_alignment(wide[:, :33], *batch, case.blank),
        rnnt_alignment(case.logits.T.contiguous().T, *batch, case.blank),
        rnnt_alignment(case.logits, *(index.int() for index in batch), case.blank),
        rnnt_alignment(case.logits.clone().requires_grad_(), *batch, case.blank),
    ]
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        results.append(align(case, "cpu"))
    torch.set_num_threads(before)
    for other_frames, other_log_probs in results:
        assert torch.equal(other_frames, frames)
        oracles.assert_same_bits(other_log_probs, log_probs)
        assert not other_log_probs.requires_grad


@oracles.each_backend
def test_wide_targets_and_empty_batches(backend: str) -> None:
    case = oracles.make_case([(4, 2), (3, 1)], 5, blank=0)
    sizes = case.logit_lengths, case.target_lengths
    wide = torch.nn.functional.pad(case.targets, (0, 4), value=-7)
    frames, _ = rnnt_alignment(case.logits, wide, *sizes, 0, backend=backend)
    assert frames.shape == (2, 6)
    assert torch.equal(frames[:, :2], align(case, backend)[0])
    assert (frames[:, 2:] == -1).all()
    none = torch.zeros(0, dtype=torch.int64)
    frames, log_probs = rnnt_alignment(
        torch.zeros(0, 5), torch.zeros(0, 3, dtype=torch.int64), none, none, backend=backend
    )
    assert (frames.shape, log_probs.shape) == ((0, 3), (0,))


@oracles.each_backend
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"targets": torch.tensor([[1, 9]])},
            ValueError,
            "`targets` must be in [0, 4], but is 9 at position 1 of sample 0.",
        ),
        (
            {"targets": torch.tensor([[1, 0]])},
            ValueError,
            "`targets` must not contain `blank`, but is 0 at position 1 of sample 0.",
        ),
        (
            {"logit_lengths": torch.tensor([5])},
            ValueError,
            "packed `logits` must have sum(logit_lengths * (target_lengths + 1)) = 15 rows, "
            "but has 12.",
        ),
        (
            {"logit_lengths": [4]},
            TypeError,
            "`logit_lengths` must be a Tensor, but is a list.",
        ),
        ({"blank": 5}, ValueError, "`blank` must be in [-5, 4], but is 5."),
    ],
)
def test_errors(changes: dict, error: type[Exception], message: str, backend: str) -> None:
    given = {
        "logits": torch.zeros(12, 5),
        "targets": torch.tensor([[1, 2]]),
        "logit_lengths": torch.tensor([4]),
        "target_lengths": torch.tensor([2]),
        "blank": 0,
    }
    with pytest.raises(error) as raised:
        rnnt_alignment(**(given | changes), backend=backend)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("backend", "error", "message"),
    [
        (
            "npu",
            ValueError,
            '`backend` must be None, "cpu" or "reference", but is "npu".',
        ),
    ],
)
def test_wrong_backends(backend: str | None, error: type[Exception], message: str) -> None:
    logits = torch.zeros(4, 5)
    targets = torch.zeros(1, 0, dtype=torch.int64)
    with pytest.raises(error) as raised:
        rnnt_alignment(logits, targets, torch.tensor([4]), torch.tensor([0]), backend=backend)
    assert str(raised.value) == message


@pytest.mark.parametrize("padded", [True, False])
def test_opcheck(padded: bool) -> None:
    case = oracles.make_case([(4, 2), (3, 1)], 5, blank=0)
    logits = case.padded_logits() if padded else case.logits
    batch = case.targets, case.logit_lengths, case.target_lengths
    torch.library.opcheck(
        torch.ops.asr_ascend.rnnt_alignment.default, (logits, *batch, 0, True, False, None)
    )


def test_whole_graph_and_vmap() -> None:
    torch._dynamo.reset()
    case = oracles.make_case([(4, 2), (3, 1)], 5, blank=0)
    batch = case.targets, case.logit_lengths, case.target_lengths
    compiled = torch.compile(rnnt_alignment, fullgraph=True, backend="aot_eager")
    actual, expected = compiled(case.logits, *batch, 0), align(case, "cpu")
    assert torch.equal(actual[0], expected[0])
    assert torch.equal(actual[1], expected[1])
    with pytest.raises(RuntimeError) as raised:
        torch.vmap(lambda z: rnnt_alignment(z, *batch, 0))(case.logits[None])
    assert str(raised.value) == (
        "`rnnt_alignment` can't run under torch.vmap: it takes a whole batch already, so call it "
        "once with all samples along the batch dimension."
    )


@pytest.mark.parametrize("backend", oracles.BACKENDS)
def test_positive_log_probabilities_get_one_warning(backend: str) -> None:
    case = oracles.make_case([(4, 2), (3, 1)], 5, blank=0)
    batch = case.targets, case.logit_lengths, case.target_lengths, 0
    with pytest.warns(UserWarning) as caught:
        rnnt_alignment(case.logits + 9.0, *batch, fused_log_softmax=False, backend=backend)
    assert [str(warning.message) for warning in caught] == [
        "`fused_log_softmax=False` takes log-probabilities, but some of `logits` are positive: "
        "they look like logits, so pass `logits.log_softmax(-1)` or `fused_log_softmax=True`."
    ]
