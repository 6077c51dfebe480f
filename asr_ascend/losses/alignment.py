"""The likeliest alignment of targets to frames: Viterbi on the lattice of the loss."""

from torch import Tensor

from asr_ascend.losses import backends, checks, function_transforms
from asr_ascend.losses.one_symbol import loss as one_symbol_loss
from asr_ascend.losses.problem import cost_dtype, make_problem


def rnnt_alignment(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = -1,
    fused_log_softmax: bool = True,
    *,
    blank_in_targets: str = "error",
    band: Tensor | None = None,
    topology: str = "regular",
    backend: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Finds the likeliest alignment of each sample: the frame in which it emits each label.

    It is the most probable of the alignments that :func:`rnnt_loss` sums over. Of equally likely
    ones it is the one whose labels come earliest. It has no gradient.

    Args:
        logits, targets, logit_lengths, target_lengths, blank, fused_log_softmax, blank_in_targets,
            band, topology: as for :func:`rnnt_loss`.
        backend: "cpu", "reference" (slow, any device), or None for the native one of the device of
            ``logits``; NPUs have none.

    Returns:
        Frames (B, columns of ``targets``) int64 in [0, T_b), never falling within a sample, with
        one symbol per frame rising, -1 past ``target_lengths``; and the alignment's log-probability
        in nats, blanks included, (B,) float64 for float64 logits and float32 for all others. A
        sample without a possible alignment has frames -1 and -inf, one with NaN or +inf among its
        logits frames -1 and NaN.

    Raises:
        ValueError: a shape, device, length, target, blank or backend is not allowed.
        TypeError: wrong type or dtype.
        RuntimeError: there is no native backend, or it is not built.

    Source:
        Viterbi 1967, on the lattice of Graves 2012, "Sequence Transduction with Recurrent Neural
        Networks".
    """
    one_symbol = checks.is_one_symbol(topology)
    problem = make_problem(
        logits,
        targets,
        logit_lengths,
        target_lengths,
        blank,
        fused_log_softmax=fused_log_softmax,
        blank_in_targets=blank_in_targets,
        band=band,
    )
    function_transforms.refuse_vmap("rnnt_alignment", logits, *problem[:3])
    chosen = backends.for_alignment("rnnt_alignment", logits, backend)
    if one_symbol:
        frames, log_probs = one_symbol_loss.best_paths(chosen, logits.detach(), problem)
    else:
        frames, log_probs = chosen.best_paths(logits.detach(), problem)
    return frames, log_probs.to(cost_dtype(logits.dtype))


function_transforms.refuse_script(rnnt_alignment, "call it outside of the scripted code")
