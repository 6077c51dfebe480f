"""The logarithm of the sum of ``exp(am + lm)`` over the vocabulary, for all cells by one product.

    sum over v of exp(am[t, v] + lm[u, v])  =  (exp(am) @ exp(lm).T)[t, u]

Both factors are taken from the maximum of their rows on. A sum then is at most V, but it can be
tiny, where the two have their large values in different places: its terms may have underflowed.
Those cells, which a trained joiner hardly has, are summed term by term instead.

Source: Kuang et al. 2022, "Pruned RNN-T for fast, memory-efficient ASR training", section 3.1
(https://arxiv.org/abs/2206.13236).
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

# What underflowed is below 1e-37 (float32) or 1e-307 (float64): nothing, compared with these.
_SMALL = {torch.float32: 1e-25, torch.float64: 1e-280}
_BLOCK_BYTES = 16 * 2**20


def log_normalizer(am: Tensor, lm: Tensor, dtype: torch.dtype) -> Tensor:
    """Computes logarithms (B, T, U1) of the sums, less the maxima of both rows.

    They are differentiable once.

    Args:
        am: (B, T, V) float32 or float64.
        lm: (B, U1, V), the same.
        dtype: of the result.
    """
    result: Tensor = _LogNormalizer.apply(am, lm, dtype)
    return result


class _LogNormalizer(torch.autograd.Function):
    """Keeps both factors, which are small, and makes two products more in the backward pass.

    The maxima count as constants: the caller subtracts them everywhere.
    """

    @staticmethod
    def forward(ctx: Any, am: Tensor, lm: Tensor, dtype: torch.dtype) -> Tensor:
        factors = _from_maximum(am).exp_(), _from_maximum(lm).exp_()
        sums = factors[0] @ factors[1].mT
        log_sums = sums.to(dtype).log()
        small = (sums < _SMALL[sums.dtype]).nonzero()
        for cells, terms in _terms(am, lm, small, dtype):
            log_sums[cells] = terms.logsumexp(1)
        given = (am, lm) if len(small) else (None, None)
        ctx.save_for_backward(*factors, sums, small, *given)
        return log_sums

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        exp_am, exp_lm, sums, small, am, lm = ctx.saved_tensors
        shares = (upstream / sums).to(sums.dtype)
        if len(small):
            shares[small.unbind(1)] = 0.0
        grad_am = (shares @ exp_lm).mul_(exp_am)
        grad_lm = (shares.mT @ exp_am).mul_(exp_lm)
        if len(small):
            for cells, terms in _terms(am, lm, small, upstream.dtype):
                parts = (terms.softmax(1) * upstream[cells][:, None]).to(sums.dtype)
                b, t, u = cells
                grad_am.index_put_((b, t), parts, accumulate=True)
                grad_lm.index_put_((b, u), parts, accumulate=True)
        return grad_am, grad_lm, None


def _from_maximum(scores: Tensor) -> Tensor:
    return scores - scores.amax(-1, keepdim=True)


def _terms(
    am: Tensor, lm: Tensor, cells: Tensor, dtype: torch.dtype
) -> Iterator[tuple[tuple[Tensor, ...], Tensor]]:
    """Cells (n, 3), a block at a time as three indices, with their V summands' logarithms each."""
    block_cells = max(1, _BLOCK_BYTES // (am.shape[2] * dtype.itemsize))
    for block in cells.split(block_cells):
        b, t, u = block.unbind(1)
        yield (b, t, u), _from_maximum(am[b, t].to(dtype)) + _from_maximum(lm[b, u].to(dtype))
