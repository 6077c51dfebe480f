"""Padding, packing, blank, CMVN, short input and messages of the transducer."""

import copy
import re

import pytest
import torch

from asr_ascend.config.model_options import ModelOptions
from asr_ascend.models import build_transducer
from asr_ascend.models.joiner import packed_cells
from tests.support.tiny_models import TINY, tiny_transducer


def batch(model, lengths, seed=0):
    torch.manual_seed(seed)
    features = torch.randn(len(lengths), max(lengths), model.encoder.num_mel_bins)
    return features, torch.tensor(lengths)


@torch.no_grad()
@pytest.mark.parametrize("chunks", [(None, None), (3, 1), (2, None), (1, 0)])
@pytest.mark.parametrize("junk", [1e4, float("nan"), float("inf")])
def test_padding_changes_nothing(chunks, junk):
    model = tiny_transducer()
    features, lengths = batch(model, [71, 40, 9, 3, 0])
    for b, length in enumerate(lengths):
        features[b, length:] = junk
    enc, enc_lengths = model.encode(features, lengths, *chunks)
    assert enc_lengths.tolist() == [17, 9, 1, 0, 0]
    assert torch.isfinite(enc).all()
    for b, length in enumerate(lengths.tolist()):
        alone, alone_lengths = model.encode(
            features[b : b + 1, :length], lengths[b : b + 1], *chunks
        )
        assert alone_lengths[0] == enc_lengths[b] == alone.shape[1]
        torch.testing.assert_close(enc[b, : enc_lengths[b]], alone[0], rtol=1e-5, atol=1e-5)


def test_padding_gets_no_gradient():
    model = tiny_transducer()
    features, lengths = batch(model, [50, 23])
    features.requires_grad_(True)
    enc, enc_lengths = model.encode(features, lengths, 4, 1)
    targets, target_lengths = torch.tensor([[1, 2, 3], [4, -9, 99]]), torch.tensor([3, 1])
    logits = model.join_packed(enc, enc_lengths, targets, target_lengths)
    logits.square().sum().backward()
    assert features.grad[1, 23:].abs().max() == 0
    assert features.grad[1, :23].abs().max() > 0
    assert torch.isfinite(features.grad).all()


@pytest.mark.parametrize("predictor", ["stateless", "lstm"])
@pytest.mark.parametrize("blank", [0, 3, -1])
def test_join_packed_is_join_of_the_real_cells(predictor, blank):
    model = tiny_transducer(blank=blank, predictor=predictor)
    features, lengths = batch(model, [50, 23, 5, 31])
    enc, enc_lengths = model.encode(features, lengths)
    labels = [i for i in range(7) if i != model.blank]
    targets = torch.tensor([labels[:4], [labels[5], 77, -1, -1], labels[:4], [-1] * 4])
    target_lengths = torch.tensor([4, 1, 3, 0])
    packed = model.join_packed(enc, enc_lengths, targets, target_lengths)

    rows = []
    for b in range(4):
        num_tokens = int(target_lengths[b])
        tokens = torch.tensor([[model.blank, *targets[b, :num_tokens].tolist()]])
        predicted, _, _ = model.predict(tokens, torch.tensor([num_tokens + 1]))
        frames = enc[b : b + 1, : enc_lengths[b]]
        logits, _, _ = model.join(frames, enc_lengths[b : b + 1], predicted, target_lengths)
        rows.append(logits.reshape(-1, 7))
    expected = torch.cat(rows)
    assert packed.shape == (int((enc_lengths * (target_lengths + 1)).sum()), 7)
    torch.testing.assert_close(packed, expected)

    weights = torch.randn_like(packed)
    parameters = [p for p in model.parameters() if p is not model.ctc_head.weight]
    parameters = [p for p in parameters if p is not model.ctc_head.bias]
    got = torch.autograd.grad((packed * weights).sum(), parameters, retain_graph=True)
    wanted = torch.autograd.grad((expected * weights).sum(), parameters)
    for actual, reference in zip(got, wanted, strict=True):
        torch.testing.assert_close(actual, reference, rtol=1e-4, atol=1e-4)


def test_packed_cells_in_row_order():
    sample, frame, column = packed_cells(
        torch.tensor([2, 0, 1]), torch.tensor([2, 3, 1]), torch.device("cpu")
    )
    assert sample.tolist() == [0, 0, 0, 0, 2]
    assert frame.tolist() == [0, 0, 1, 1, 0]
    assert column.tolist() == [0, 1, 0, 1, 0]


def test_packing_makes_no_padded_tensor():
    """One long and one wide utterance: padded cells would be 20 times the real ones."""
    model = tiny_transducer()
    enc = torch.randn(2, 400, 16)
    targets = torch.randint(1, 7, (2, 39))
    sizes = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            sizes.extend(t.numel() for t in (out,) if isinstance(t, torch.Tensor))
            return out

    with Watch():
        logits = model.join_packed(enc, torch.tensor([400, 10]), targets, torch.tensor([0, 39]))
        logits.sum().backward()
    cells = 400 * 1 + 10 * 40
    assert logits.shape == (cells, 7)
    assert max(sizes) <= max(cells * 10, enc.numel())


def test_no_encoder_frame_at_all():
    model = tiny_transducer()
    features, lengths = batch(model, [6, 2])
    enc, enc_lengths = model.encode(features, lengths, 4, 2)
    assert enc.shape == (2, 0, 16)
    assert enc_lengths.tolist() == [0, 0]
    targets, target_lengths = torch.tensor([[1], [2]]), torch.tensor([1, 1])
    logits = model.join_packed(enc, enc_lengths, targets, target_lengths)
    assert logits.shape == (0, 7)
    (logits.sum() + model.ctc_log_probs(enc).sum()).backward()
    assert model.joiner.output.weight.grad.abs().max() == 0
    empty, empty_lengths = model.encode(features[:, :0], torch.tensor([0, 0]))
    assert empty.shape == (2, 0, 16)
    assert empty_lengths.tolist() == [0, 0]


def test_targets_without_a_column():
    model = tiny_transducer()
    enc = torch.randn(2, 3, 16)
    targets = torch.zeros(2, 0, dtype=torch.int64)
    logits = model.join_packed(enc, torch.tensor([3, 2]), targets, torch.tensor([0, 0]))
    assert logits.shape == (5, 7)


@pytest.mark.parametrize("block_rows", [1, 5, 16, 100])
def test_blocks_of_rows_are_the_packed_rows(block_rows):
    model = tiny_transducer()
    enc = torch.randn(3, 6, 16, generator=torch.Generator().manual_seed(0))
    sizes = torch.tensor([6, 4, 1]), torch.tensor([[1, 2], [3, 0], [0, 0]]), torch.tensor([2, 1, 0])
    expected = model.join_packed(enc, *sizes)
    blocks = list(model.join_packed_blocks(enc, *sizes, block_rows))
    assert [len(block) for block in blocks[:-1]] == [block_rows] * (len(blocks) - 1)
    assert 0 < len(blocks[-1]) <= block_rows
    torch.testing.assert_close(torch.cat(blocks), expected)


def test_int32_targets_and_lengths():
    model = tiny_transducer()
    enc = torch.randn(2, 6, 16)
    targets, target_lengths = torch.tensor([[1, 2], [3, 0]]), torch.tensor([2, 1])
    lengths = torch.tensor([6, 4])
    expected = model.join_packed(enc, lengths, targets, target_lengths)
    small = [t.to(torch.int32) for t in (lengths, targets, target_lengths)]
    assert torch.equal(model.join_packed(enc, *small), expected)


@torch.no_grad()
def test_cmvn_is_applied_in_both_ways_and_stored():
    model = tiny_transducer()
    plain = copy.deepcopy(model)
    plain.set_cmvn(torch.zeros(16), torch.ones(16))
    features, lengths = batch(model, [39])
    normalised = (features - model.feature_mean) / model.feature_std
    expected, _ = plain.encode(normalised, lengths)
    torch.testing.assert_close(model.encode(features, lengths)[0], expected)
    torch.testing.assert_close(model.encode_step(features, final=True)[0], expected)
    plain.load_state_dict(model.state_dict())
    assert torch.equal(plain.feature_std, model.feature_std)
    assert torch.equal(plain.encode(features, lengths)[0], model.encode(features, lengths)[0])


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        (torch.zeros(3), torch.ones(16), "`mean` must have shape (16,), but has (3,)."),
        (torch.zeros(16), torch.ones(16, 1), "`std` must have shape (16,), but has (16, 1)."),
        (
            torch.full((16,), torch.nan),
            torch.ones(16),
            "`mean` must be finite, but holds NaN or infinity.",
        ),
        (
            torch.zeros(16),
            torch.zeros(16),
            "`std` must be above 0, but its smallest value is 0.0.",
        ),
    ],
)
def test_cmvn_messages(mean, std, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        tiny_transducer().set_cmvn(mean, std)


@pytest.mark.parametrize(("blank", "expected"), [(-7, 0), (0, 0), (3, 3), (6, 6), (-1, 6)])
def test_blank_is_normalised(blank, expected):
    assert build_transducer(7, blank, ModelOptions.read(TINY)).blank == expected


@pytest.mark.parametrize("blank", [-8, 7])
def test_blank_out_of_range(blank):
    message = rf"^`blank` must be in \[-7, 6\], but is {blank}\.$"
    with pytest.raises(ValueError, match=message):
        build_transducer(7, blank, ModelOptions.read(TINY))


def test_vocabulary_of_one():
    with pytest.raises(ValueError, match=r"^`vocab_size` must be at least 2, but is 1\.$"):
        build_transducer(1, 0, ModelOptions.read(TINY))


@torch.no_grad()
def test_ctc_log_probs_are_float32_distributions():
    model = tiny_transducer()
    log_probs = model.ctc_log_probs(torch.randn(2, 5, 16))
    assert log_probs.shape == (2, 5, 7)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(2, 5))
    half = model.bfloat16().ctc_log_probs(torch.randn(2, 5, 16, dtype=torch.bfloat16))
    assert half.dtype == torch.float32


@torch.no_grad()
def test_torchaudio_names():
    model = tiny_transducer()
    enc, enc_lengths = model.encode(*batch(model, [50]))
    predicted, predicted_lengths, _ = model.predict(torch.tensor([[0, 3]]), torch.tensor([2]))
    logits, sources, targets = model.join(enc, enc_lengths, predicted, predicted_lengths)
    assert logits.shape == (1, 11, 2, 7)
    assert (sources.tolist(), targets.tolist()) == ([11], [2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m: m.encode(torch.zeros(2, 9, 15), torch.tensor([9, 9])),
            "`features` must have shape (B, F, 16), but has (2, 9, 15).",
        ),
        (
            lambda m: m.encode_step(torch.zeros(9, 16)),
            "`features` must have shape (B, F, 16), but has (9, 16).",
        ),
        (
            lambda m: m.encode(torch.zeros(2, 9, 16), torch.tensor([9])),
            "`lengths` must have shape (2,), but has (1,).",
        ),
        (
            lambda m: m.encode(torch.zeros(1, 9, 16), torch.tensor([9]), 0),
            "`chunk_frames` must be at least 1 or None, but is 0.",
        ),
        (
            lambda m: m.encode_step(torch.zeros(1, 9, 16), None, 4, -1),
            "`left_chunks` must be at least 0 or None, but is -1.",
        ),
    ],
)
def test_messages(call, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call(tiny_transducer())


def test_dropout_acts_in_training_alone():
    model = tiny_transducer()
    features, lengths = batch(model, [30])
    assert torch.equal(model.encode(features, lengths)[0], model.encode(features, lengths)[0])
    model.train()
    assert not torch.equal(model.encode(features, lengths)[0], model.encode(features, lengths)[0])


def test_autocast_runs_in_bfloat16():
    model = tiny_transducer()
    features, lengths = batch(model, [50, 41])
    targets, target_lengths = torch.tensor([[1, 2], [3, 4]]), torch.tensor([2, 2])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        enc, enc_lengths = model.encode(features, lengths, 3, 1)
        logits = model.join_packed(enc, enc_lengths, targets, target_lengths)
    assert logits.dtype == torch.bfloat16
    enc32, _ = model.encode(features, lengths, 3, 1)
    logits32 = model.join_packed(enc32, enc_lengths, targets, target_lengths)
    torch.testing.assert_close(logits.float(), logits32, rtol=0.1, atol=0.1)
    logits.float().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_joiner_terms_make_the_logits_of_the_lattice():
    model = tiny_transducer()
    enc, targets, sizes = torch.randn(1, 5, 16), torch.tensor([[3, 2]]), torch.tensor([2])
    terms = model.joiner_terms(enc, targets, sizes)
    hidden = torch.tanh(terms.encoder[0, :, None] + terms.predictor[0, None])
    logits = hidden @ terms.weight.T + terms.bias
    packed = model.join_packed(enc, torch.tensor([5]), targets, sizes)
    torch.testing.assert_close(logits.flatten(0, 1), packed)
    assert terms.weight.requires_grad and terms.bias.requires_grad
