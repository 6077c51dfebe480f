"""Stand-ins for libraries that are rarely installed, with the calls that their documentation has.

Each computes with the reference and refuses what the real one refuses.
"""

import types

import torch

from asr_ascend.losses import rnnt_loss, rnnt_loss_and_grad


def _require(tensors, dtype):
    for tensor in tensors:
        assert tensor.dtype == dtype, f"{tensor.dtype} where {dtype} is required"
        assert tensor.is_contiguous()


class _OverwritesLogits(torch.autograd.Function):
    """As optimized_transducer: the gradient stands in the memory of the logits afterwards."""

    @staticmethod
    def forward(ctx, logits, *indices_and_blank):
        costs, grad = rnnt_loss_and_grad(logits, *indices_and_blank, backend="reference")
        logits.detach().copy_(grad)
        ctx.grad = logits.detach()
        return costs.sum()

    @staticmethod
    def backward(ctx, grad_loss):
        return ctx.grad.mul_(grad_loss), None, None, None, None


def optimized_transducer():
    def transducer_loss(
        logits,
        targets,
        logit_lengths,
        target_lengths,
        blank,
        from_log_softmax,
        one_sym_per_frame=False,
        reduction="mean",
    ):
        assert logits.dim() == 2 and reduction == "sum"
        assert not from_log_softmax and not one_sym_per_frame and blank >= 0
        _require((targets, logit_lengths, target_lengths), torch.int32)
        return _OverwritesLogits.apply(logits, targets, logit_lengths, target_lengths, blank)

    return types.SimpleNamespace(transducer_loss=transducer_loss)


def warprnnt_pytorch():
    def loss(acts, labels, act_lens, label_lens, blank=0, reduction="mean"):
        assert acts.dim() == 4 and reduction == "sum"
        _require((labels, act_lens, label_lens), torch.int32)
        total = rnnt_loss(
            acts, labels, act_lens, label_lens, blank, reduction="sum", backend="reference"
        )
        return total.unsqueeze(-1)  # it returns (1,)

    return types.SimpleNamespace(rnnt_loss=loss)


def fast_rnnt():
    def loss(
        logits,
        symbols,
        termination_symbol,
        boundary=None,
        rnnt_type="regular",
        delay_penalty=0.0,
        reduction="mean",
        return_grad=False,
    ):
        assert logits.dim() == 4 and reduction == "sum" and rnnt_type == "regular"
        assert delay_penalty == 0.0 and not return_grad
        _require((symbols, boundary), torch.int64)
        assert (boundary[:, :2] == 0).all()
        num_labels, num_frames = boundary[:, 2], boundary[:, 3]
        return rnnt_loss(
            logits,
            symbols,
            num_frames,
            num_labels,
            termination_symbol,
            reduction="sum",
            backend="reference",
        )

    return types.SimpleNamespace(rnnt_loss=loss)


FAKES = {maker.__name__: maker for maker in (optimized_transducer, warprnnt_pytorch, fast_rnnt)}
