"""SpeechBrain: ``transducer_loss`` for a recipe's yaml, with its value and its gradient.

Arguments, rounding of lengths, value and gradient are those of its public source,
https://github.com/speechbrain/speechbrain/blob/develop/speechbrain/nnet/losses.py and
https://github.com/speechbrain/speechbrain/blob/develop/speechbrain/integrations/numba/
transducer_loss.py. Its own loss runs on CUDA devices only.
"""

from __future__ import annotations

import importlib

from torch import Tensor

from asr_ascend.losses import checks, rnnt_loss
from asr_ascend.losses.problem import reduced
from asr_ascend.plugins.changes import Changes, check_arguments
from asr_ascend.plugins.values import value_with_gradient_of

_ARGUMENTS = ("logits", "targets", "input_lens", "target_lens", "blank_index", "reduction")


def install(
    changes: Changes,
    *,
    exact_mean: bool = False,
    blank_in_targets: str = "error",
    validate: bool = False,
    reuse_logits: bool = False,
) -> None:
    """Puts :func:`transducer_loss` in the place of ``speechbrain.nnet.losses.transducer_loss``.

    A yaml that is loaded afterwards gets it. Without an install, a yaml can name ours:
    ``!name:asr_ascend.plugins.speechbrain.transducer_loss``.

    Args:
        exact_mean, blank_in_targets, validate, reuse_logits: as for :func:`transducer_loss`.
    """

    def loss(
        logits: Tensor,
        targets: Tensor,
        input_lens: Tensor,
        target_lens: Tensor,
        blank_index: int,
        reduction: str | None = "mean",
    ) -> Tensor:
        changes.count()
        return transducer_loss(
            logits,
            targets,
            input_lens,
            target_lens,
            blank_index,
            reduction,
            exact_mean=exact_mean,
            blank_in_targets=blank_in_targets,
            validate=validate,
            reuse_logits=reuse_logits,
        )

    module = importlib.import_module("speechbrain.nnet.losses")
    shown = "speechbrain.nnet.losses.transducer_loss"
    check_arguments(shown, module.transducer_loss, _ARGUMENTS)
    changes.replace([(module, "transducer_loss")], loss)


def transducer_loss(
    logits: Tensor,
    targets: Tensor,
    input_lens: Tensor,
    target_lens: Tensor,
    blank_index: int,
    reduction: str | None = "mean",
    *,
    exact_mean: bool = False,
    blank_in_targets: str = "error",
    validate: bool = False,
    reuse_logits: bool = False,
) -> Tensor:
    """RNN-T loss with SpeechBrain's arguments, value and gradient.

    Args:
        logits: (B, T, U + 1, V), as for ``rnnt_loss``.
        targets: (B, U) int32/int64.
        input_lens: (B,) floats in (0, 1], frames as a share of T.
        target_lens: (B,) floats in [0, 1], labels as a share of U.
        blank_index: index of blank.
        reduction: "mean", "sum" or "none".
        exact_mean: False: the value is the mean (or sum) of cost / T_b, and the gradient is that of
            the sum of the costs, as SpeechBrain's is. True: the gradient is that of the value.
        blank_in_targets, validate, reuse_logits: as for ``rnnt_loss``. A vocabulary whose unknown
            token is 0 beside blank 0 needs "allow".

    Returns:
        A scalar, or (B,) for "none".

    Raises:
        ValueError, TypeError, RuntimeError: as ``rnnt_loss``.
    """
    reduction = checks.checked_reduction(reduction)
    checks.check_flag("exact_mean", exact_mean)
    num_frames = _absolute("input_lens", input_lens, logits.shape[1])
    num_labels = _absolute("target_lens", target_lens, targets.shape[1])
    costs = rnnt_loss(
        logits,
        targets,
        num_frames,
        num_labels,
        blank_index,
        reduction="none",
        blank_in_targets=blank_in_targets,
        validate=validate,
        reuse_logits=reuse_logits,
    )
    value = reduced(costs / num_frames.to(costs), reduction)
    if exact_mean:
        return value
    source = costs if reduction == "none" else costs.sum()
    return value_with_gradient_of(source, value)


def _absolute(name: str, shares: Tensor, whole: int) -> Tensor:
    checks.check_tensor(name, shares)
    if not shares.is_floating_point():
        raise TypeError(
            f"`{name}` must be floats, shares of the whole, "
            f"but is {checks.dtype_name(shares.dtype)}."
        )
    return (shares * whole).round().int()
