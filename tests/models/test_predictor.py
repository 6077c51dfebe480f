"""Both predictors: state, start of a sequence, bounded context."""

import pytest
import torch

from asr_ascend.models.predictor import LSTMPredictor, StatelessPredictor


def make(kind, context=2):
    torch.manual_seed(0)
    if kind == "lstm":
        return LSTMPredictor(vocab_size=9, dim=8, num_layers=2, dropout=0.3).eval()
    return StatelessPredictor(vocab_size=9, blank=4, dim=8, context=context, dropout=0.3).eval()


@torch.no_grad()
@pytest.mark.parametrize(("kind", "context"), [("lstm", 0), *(("stateless", c) for c in (1, 2, 3))])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_token_by_token_equals_all_at_once(kind, context, dtype):
    predictor = make(kind, context)
    tokens = torch.tensor([[4, 1, 2, 3, 8], [4, 7, 7, 0, 4]], dtype=dtype)
    whole, _ = predictor(tokens)
    assert whole.shape == (2, 5, 8)
    state, outputs = None, []
    for u in range(5):
        out, state = predictor(tokens[:, u : u + 1], state)
        outputs.append(out)
    torch.testing.assert_close(torch.cat(outputs, dim=1), whole)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["stateless", "lstm"])
def test_states_can_be_stacked_and_sliced_by_batch(kind):
    predictor = make(kind)
    _, state = predictor(torch.tensor([[4, 1], [4, 2], [4, 3]]))
    next_tokens = torch.tensor([[5], [6], [7]])
    expected, _ = predictor(next_tokens, state)
    order = torch.tensor([2, 0, 1])
    picked = [[part.index_select(0, order) for part in parts] for parts in state]
    out, _ = predictor(next_tokens[order], picked)
    torch.testing.assert_close(out, expected[order])


@torch.no_grad()
def test_stateless_start_is_the_embedding_of_blank():
    predictor = make("stateless", context=2)
    out, state = predictor(torch.tensor([[4]]))
    assert state[0][0].tolist() == [[4]]
    blank = predictor.embedding.weight[4]
    expected = predictor.conv(torch.stack([blank, blank], dim=1)[None])[0, :, 0]
    torch.testing.assert_close(out[0, 0], torch.nn.functional.silu(expected))


@torch.no_grad()
def test_stateless_sees_two_tokens_and_no_more():
    predictor = make("stateless", context=2)
    first, _ = predictor(torch.tensor([[4, 1, 2, 3]]))
    second, _ = predictor(torch.tensor([[4, 8, 2, 3]]))
    assert not torch.equal(first[:, 2], second[:, 2])
    assert torch.equal(first[:, 3], second[:, 3])


@torch.no_grad()
def test_lstm_sees_everything():
    predictor = make("lstm")
    first, _ = predictor(torch.tensor([[4, 1, 2, 3]]))
    second, _ = predictor(torch.tensor([[4, 8, 2, 3]]))
    assert not torch.equal(first[:, 3], second[:, 3])


def test_context_below_one():
    message = r"^`predictor_context` must be at least 1, but is 0\.$"
    with pytest.raises(ValueError, match=message):
        StatelessPredictor(vocab_size=9, blank=4, dim=8, context=0, dropout=0.0)
