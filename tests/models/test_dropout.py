"""Dropout: how much it drops, what it scales by, and that it is repeatable."""

import pytest
import torch

from asr_ascend.models.dropout import Dropout


@pytest.mark.parametrize("probability", [0.1, 0.2, 0.5, 0.9])
def test_drops_its_share_and_keeps_the_expectation(probability):
    torch.manual_seed(0)
    out = Dropout(probability)(torch.ones(1000, 1000))
    share = round(probability * 2**16) / 2**16
    dropped = (out == 0).double().mean().item()
    assert dropped == pytest.approx(share, abs=5 * (share * (1 - share) / 1e6) ** 0.5)
    assert set(out.unique().tolist()) == {0.0, torch.tensor(1 / (1 - share)).item()}


def test_elements_are_dropped_one_by_one():
    """Neighbours share a draw of 64 bits, but nothing of its 16-bit parts."""
    torch.manual_seed(0)
    dropped = (Dropout(0.25)(torch.ones(400_000)) == 0).double().view(-1, 4)
    # Pairs within a draw, and a draw and the next: 100,000 samples each, so sigma is 0.0011.
    for first, second in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]:
        both = (dropped[:, first] * dropped[:, second]).mean().item()
        assert both == pytest.approx(1 / 16, abs=0.005)
    assert (dropped[1:, 0] * dropped[:-1, 3]).mean().item() == pytest.approx(1 / 16, abs=0.005)
    assert dropped.mean(0).tolist() == pytest.approx([0.25] * 4, abs=0.008)


@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 7), (2, 3, 6), (0, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_any_shape_and_dtype(shape, dtype):
    x = torch.randn(shape).to(dtype)
    out = Dropout(0.3)(x)
    assert (out.shape, out.dtype) == (x.shape, dtype)
    stays = out != 0
    torch.testing.assert_close(out[stays], (x / (1 - 0.3)).to(dtype)[stays], rtol=0.02, atol=0)


def test_the_gradient_passes_where_the_value_does():
    x = torch.full((64, 33), 2.0, requires_grad=True)
    out = Dropout(0.4)(x)
    out.sum().backward()
    assert torch.equal(x.grad * 2.0, out.detach())
    assert 0 < int((x.grad == 0).sum()) < x.numel()


def test_the_same_seed_gives_the_same_masks_and_each_call_another():
    x, dropout = torch.ones(50, 40), Dropout(0.5)
    torch.manual_seed(3)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(3)
    assert torch.equal(dropout(x), first)
    assert torch.equal(dropout(x), second)
    assert not torch.equal(first, second)


def test_nothing_is_dropped_in_evaluation_or_at_probability_zero():
    x = torch.randn(6, 5)
    assert Dropout(0.5).eval()(x) is x
    torch.manual_seed(1)
    assert torch.equal(Dropout(0.0)(x), x)


@pytest.mark.parametrize("probability", [1e-9, 1 - 1e-9])
def test_probabilities_next_to_0_and_1_stay_finite(probability):
    out = Dropout(probability)(torch.ones(1000))
    assert torch.isfinite(out).all()
    assert bool((out == 0).any()) == (probability > 0.5)
