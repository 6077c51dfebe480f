"""The likeliest alignment of targets to frames: Viterbi on the lattice of the loss."""

from typing import Any, NoReturn

import torch
from torch import Tensor

from asr_ascend.losses import checks, function_transforms, operators, values
from asr_ascend.losses.backends import cpu, reference
from asr_ascend.losses.layout import Problem

_library = torch.library.Library("asr_ascend", "FRAGMENT")
_library.define(
    "rnnt_alignment(Tensor logits, Tensor targets, Tensor logit_lengths, Tensor target_lengths, "
    "SymInt blank, bool fused_log_softmax) -> (Tensor frames, Tensor log_probs)"
)


def rnnt_alignment(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = -1,
    fused_log_softmax: bool = True,
    *,
    backend: str | None = None,
) -> tuple[Tensor, Tensor]:
    """The likeliest alignment of each sample: the frame in which it emits each label.

    Of the alignments that :func:`rnnt_loss` sums over, this is the one of the largest probability;
    of equally likely ones, the one whose labels come earliest. It has no gradient.

    Args:
        logits, targets, logit_lengths, target_lengths, blank, fused_log_softmax: as for
            :func:`rnnt_loss`.
        backend: "cpu", "reference" (slow, any device), or None for the native one of the device of
            ``logits``; NPUs have none.

    Returns:
        Frames (B, columns of ``targets``) int64 in [0, T_b), never falling within a sample, -1 past
        ``target_lengths``; and the alignment's log-probability in nats, blanks included, (B,)
        float64 for float64 logits and float32 for all others. A sample without a possible alignment
        has frames -1 and -inf, one with NaN or +inf among its logits frames -1 and NaN.

    Raises:
        ValueError: shape, device, length, target, blank or backend out of place.
        TypeError: wrong type or dtype.
        RuntimeError: no native backend, or one that is not built.

    Source:
        Viterbi 1967, on the lattice of Graves 2012, "Sequence Transduction with Recurrent Neural
        Networks".
    """
    problem = Problem(targets, logit_lengths, target_lengths, blank, -1.0, fused_log_softmax)
    problem = checks.check(logits, problem, reuse_logits=False)
    function_transforms.refuse_vmap("rnnt_alignment", logits, *problem[:3])
    logits = logits.detach()
    if _uses_reference(logits, backend):
        frames, log_probs = reference.best_paths(logits, problem)
    else:
        indices = problem.targets, problem.logit_lengths, problem.target_lengths
        frames, log_probs = torch.ops.asr_ascend.rnnt_alignment(
            logits, *indices, problem.blank, fused_log_softmax
        )
    wide = logits.dtype == torch.float64
    return frames, log_probs.to(torch.float64 if wide else torch.float32)


def _uses_reference(logits: Tensor, backend: str | None) -> bool:
    on_cpu = logits.device.type == "cpu"
    if backend is None and not on_cpu:
        raise RuntimeError(
            f"`rnnt_alignment` has no native backend for logits on {logits.device}; "
            'backend="reference" works there, slowly.'
        )
    if backend not in (None, "cpu", "reference"):
        raise ValueError(
            f'`backend` must be None, "cpu" or "reference", but is {checks.quoted(backend)}.'
        )
    if backend == "cpu" and not on_cpu:
        raise ValueError(
            f'`logits` must be on the CPU for backend="cpu", but is on {logits.device}.'
        )
    return backend == "reference"


def _alignment_cpu(logits: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    *indices, blank, fused_log_softmax = arguments
    problem = operators.kernel_problem((*indices, blank, -1.0, fused_log_softmax, 0.0, None))
    logits = operators.kernel_logits(logits)
    frames, log_probs = _alignment_fake(logits, *arguments)
    status, failure = cpu.alignment(logits, problem, frames, log_probs)
    if status != cpu.OK:
        raise operators.kernel_error(status, failure, logits, problem)
    if not fused_log_softmax:
        values.warn_if_logits(logits, problem)
    return frames, log_probs


_library.impl("rnnt_alignment", _alignment_cpu, "CPU")


@torch.library.register_fake("asr_ascend::rnnt_alignment", lib=_library)
def _alignment_fake(logits: Tensor, targets: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    frames = targets.new_empty(targets.shape, dtype=torch.int64)
    return frames, logits.new_empty(targets.shape[0], dtype=torch.float64)


def _refuse_vmap(info: Any, in_dims: Any, *args: Any) -> NoReturn:
    raise function_transforms.vmap_error("rnnt_alignment")


torch.library.register_vmap("asr_ascend::rnnt_alignment", _refuse_vmap, lib=_library)
