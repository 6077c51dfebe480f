"""The loss as a module, for models that hold one, and for TorchScript."""

import torch
from torch import Tensor

from asr_ascend.losses import checks
from asr_ascend.losses.rnnt import rnnt_loss


class RNNTLoss(torch.nn.Module):
    """:func:`rnnt_loss` as a module, as torchaudio.transforms.RNNTLoss.

    torch.jit.script takes it, and a module that holds it. The scripted loss calls the operators of
    the device directly: packed logits alone on an NPU, and neither ``backend="reference"`` nor one
    symbol per frame.

    Args:
        blank, clamp, reduction, fused_log_softmax, fastemit_lambda, delay_penalty,
            blank_in_targets, topology, reuse_logits, backend, validate: as for :func:`rnnt_loss`.
    """

    backend: str | None  # TorchScript would take None for its only value

    def __init__(
        self,
        blank: int = -1,
        clamp: float = -1.0,
        reduction: str | None = "mean",
        fused_log_softmax: bool = True,
        *,
        fastemit_lambda: float = 0.0,
        delay_penalty: float = 0.0,
        blank_in_targets: str = "error",
        topology: str = "regular",
        reuse_logits: bool = False,
        backend: str | None = None,
        validate: bool = False,
    ) -> None:
        super().__init__()
        self.blank = checks.as_int("blank", blank)
        self.clamp = float(checks.as_float("clamp", clamp))
        self.reduction = "none" if reduction is None else reduction
        self.fused_log_softmax = fused_log_softmax
        self.fastemit_lambda = float(checks.as_float("fastemit_lambda", fastemit_lambda))
        self.delay_penalty = float(checks.as_float("delay_penalty", delay_penalty))
        self.blank_in_targets = blank_in_targets
        self.topology = topology
        self.reuse_logits = reuse_logits
        self.backend = backend
        self.validate = validate

    def forward(
        self,
        logits: Tensor,
        targets: Tensor,
        logit_lengths: Tensor,
        target_lengths: Tensor,
        emission_windows: Tensor | None = None,
        band: Tensor | None = None,
    ) -> Tensor:
        """Computes the loss of a batch; arguments, result and errors are those of
        :func:`rnnt_loss`.
        """
        if torch.jit.is_scripting():  # type: ignore[attr-defined]
            return self._scripted(
                logits, targets, logit_lengths, target_lengths, emission_windows, band
            )
        else:  # the compiler of TorchScript passes over this branch alone
            return rnnt_loss(
                logits,
                targets,
                logit_lengths,
                target_lengths,
                self.blank,
                self.clamp,
                self.reduction,
                self.fused_log_softmax,
                fastemit_lambda=self.fastemit_lambda,
                delay_penalty=self.delay_penalty,
                blank_in_targets=self.blank_in_targets,
                emission_windows=emission_windows,
                band=band,
                topology=self.topology,
                reuse_logits=self.reuse_logits,
                backend=self.backend,
                validate=self.validate,
            )

    def _scripted(
        self,
        logits: Tensor,
        targets: Tensor,
        logit_lengths: Tensor,
        target_lengths: Tensor,
        emission_windows: Tensor | None,
        band: Tensor | None,
    ) -> Tensor:
        """In TorchScript: the operator checks values, and no more of shapes than it must."""
        backend = self.backend
        if backend is not None and backend == "reference":
            raise RuntimeError('`RNNTLoss` with backend="reference" can\'t run in TorchScript.')
        if backend is not None and backend != logits.device.type:
            raise RuntimeError("`logits` must be on the device of `backend`.")
        if self.reuse_logits and logits.requires_grad and logits.is_leaf:
            raise RuntimeError(
                "`logits` must not be a leaf that requires grad if `reuse_logits` is True, since "
                "the gradient would overwrite it."
            )
        if self.reduction != "mean" and self.reduction != "sum" and self.reduction != "none":
            raise RuntimeError('`reduction` must be "none", "mean" or "sum".')
        if self.blank_in_targets != "error" and self.blank_in_targets != "allow":
            raise RuntimeError('`blank_in_targets` must be "error" or "allow".')
        if self.topology != "regular":
            raise RuntimeError(
                '`RNNTLoss` with topology="one_symbol_per_frame" can\'t run in TorchScript.'
            )
        costs, _ = torch.ops.asr_ascend.rnnt_loss_forward(
            logits,
            targets,
            logit_lengths,
            target_lengths,
            self.blank + logits.shape[-1] if self.blank < 0 else self.blank,
            self.clamp,
            self.fused_log_softmax,
            self.fastemit_lambda,
            self.delay_penalty,
            self.blank_in_targets == "allow",
            emission_windows,
            band,
            logits.requires_grad and torch.is_grad_enabled(),
            self.reuse_logits,
        )
        if self.reduction == "mean":
            costs = costs.mean()
        elif self.reduction == "sum":
            costs = costs.sum()
        return costs.to(torch.float64 if logits.dtype == torch.float64 else torch.float32)

    def extra_repr(self) -> str:
        """Returns the options, as they stand in the module's repr."""
        return (
            f"blank={self.blank}, clamp={self.clamp}, reduction={self.reduction!r}, "
            f"fused_log_softmax={self.fused_log_softmax}, "
            f"fastemit_lambda={self.fastemit_lambda}, delay_penalty={self.delay_penalty}, "
            f"blank_in_targets={self.blank_in_targets!r}, topology={self.topology!r}, "
            f"reuse_logits={self.reuse_logits}, backend={self.backend!r}, validate={self.validate}"
        )
