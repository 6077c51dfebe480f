"""Side by side with fast_rnnt, where it is installed: the simple, the smoothed, the pruned loss.

https://pypi.org/project/fast_rnnt/1.3/ has sources alone, which need a C++ compiler and a torch to
build against.
"""

import pytest
import torch

from asr_ascend.losses import Occupancies, joiner_rnnt_loss, pruned_band, simple_rnnt_loss

pytestmark = pytest.mark.slow

fast_rnnt = pytest.importorskip(
    "fast_rnnt", reason="fast_rnnt is not installed; PyPI has its sources alone"
)

B, T, U, V, H, BLANK = 3, 40, 12, 20, 16, 0


def make_inputs(seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    tables = normal(B, T, V), normal(B, U + 1, V)
    joiner = normal(B, T, H), normal(B, U + 1, H), normal(V, H), normal(V)
    targets = torch.randint(1, V, (B, U), generator=generator)
    return tables, joiner, targets


LENGTHS = torch.full((B,), T), torch.full((B,), U)
BOUNDARY = torch.tensor([[0, 0, U, T]] * B)


def smoothed(tables, targets, scales, **options):
    am, lm = tables
    return fast_rnnt.rnnt_loss_smoothed(
        lm, am, targets, BLANK, *scales, BOUNDARY, reduction="none", return_grad=True, **options
    )


@pytest.mark.parametrize("delay_penalty", [0.0, 0.05])
@pytest.mark.parametrize("scales", [(0.0, 0.0), (0.25, 0.0), (0.1, 0.2)])
def test_smoothed_loss_gradient_and_occupancies(scales, delay_penalty):
    tables, _, targets = make_inputs()
    mine, theirs = ([t.clone().requires_grad_() for t in tables] for _ in range(2))
    costs, occupancies = simple_rnnt_loss(
        *mine,
        targets,
        *LENGTHS,
        BLANK,
        "none",
        lm_only_scale=scales[0],
        am_only_scale=scales[1],
        delay_penalty=delay_penalty,
        return_occupancies=True,
    )
    options = {"delay_penalty": delay_penalty}
    want, (px_grad, py_grad) = smoothed(theirs, targets, scales, **options)
    torch.testing.assert_close(costs, want)
    torch.testing.assert_close(occupancies.blank, py_grad.mT)
    torch.testing.assert_close(occupancies.label[..., :-1], px_grad[..., :-1].mT)
    torch.testing.assert_close(
        torch.autograd.grad(costs.sum(), mine), torch.autograd.grad(want.sum(), theirs)
    )


@pytest.mark.parametrize("S", [2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_pruned_band_and_loss(seed, S):
    tables, joiner, targets = make_inputs(seed)
    _, (px_grad, py_grad) = smoothed(tables, targets, (0.25, 0.0))
    ranges = fast_rnnt.get_rnnt_prune_ranges(px_grad, py_grad, BOUNDARY, S)
    of_label = torch.nn.functional.pad(px_grad[..., :-1].mT, (0, 1))
    occupancies = Occupancies(py_grad.mT.contiguous(), of_label)
    band = pruned_band(occupancies, *LENGTHS, symbols_per_frame=S)
    assert torch.equal(band[..., 0], ranges[..., 0])
    assert torch.equal(band[..., 1], ranges[..., -1])

    mine, theirs = ([t.clone().requires_grad_() for t in joiner] for _ in range(2))
    options = {"delay_penalty": 0.02 * seed, "reduction": "sum"}
    costs = joiner_rnnt_loss(*mine, targets, *LENGTHS, BLANK, band=band, **options)
    encoder, predictor, weight, bias = theirs
    encoded, predicted = fast_rnnt.do_rnnt_pruning(am=encoder, lm=predictor, ranges=ranges)
    logits = (encoded + predicted).tanh() @ weight.T + bias
    want = fast_rnnt.rnnt_loss_pruned(logits, targets, ranges, BLANK, BOUNDARY, **options)
    torch.testing.assert_close(costs, want)
    torch.testing.assert_close(torch.autograd.grad(costs, mine), torch.autograd.grad(want, theirs))
