"""Packed logits from padded ones and back: public helpers of the losses' callers."""

from torch import Tensor

from asr_ascend.losses import checks, layout, values


def pack_logits(logits: Tensor, logit_lengths: Tensor, target_lengths: Tensor) -> Tensor:
    """Packs the rows of padded logits that belong to a lattice, one sample after the other.

    Args:
        logits: (B, T, U + 1, V), any dtype.
        logit_lengths: (B,) int32/int64 in [1, T], on the CPU or the device of ``logits``.
        target_lengths: (B,) int32/int64 in [0, U], on the CPU or the device of ``logits``.

    Returns:
        (N, V), N = sum of ``logit_lengths * (target_lengths + 1)``; differentiable.

    Raises:
        ValueError: a shape, device or length is not allowed.
        TypeError: wrong type or dtype.
    """
    checks.check_tensor("logits", logits)
    checks.check_has_values("logits", logits)
    if logits.dim() != 4:
        raise ValueError(
            f"`logits` must be (B, T, U + 1, V), but has shape {checks.shape_of(logits)}."
        )
    B, T, U1, _ = logits.shape
    checks.check_lengths(logits, logit_lengths, target_lengths, B)
    values.check_lengths(logit_lengths, target_lengths, max_frames=T, max_labels=U1 - 1)
    lengths = logit_lengths.to(logits.device), target_lengths.to(logits.device)
    return logits[layout.lattice_mask(*lengths, T, U1)]


def unpack_logits(
    packed: Tensor, logit_lengths: Tensor, target_lengths: Tensor, fill_value: float = 0.0
) -> Tensor:
    """Pads packed logits: the inverse of :func:`pack_logits`.

    Args:
        packed: (N, V), any dtype, N = sum of ``logit_lengths * (target_lengths + 1)``.
        logit_lengths: (B,) int32/int64, T_b >= 1, on the CPU or the device of ``packed``.
        target_lengths: (B,) int32/int64, U_b >= 0, on the CPU or the device of ``packed``.
        fill_value: what the padding holds.

    Returns:
        (B, max T_b, max U_b + 1, V), differentiable; (0, 0, 1, V) for B = 0.

    Raises:
        ValueError: a shape, device or length is not allowed, or N is not the sum of rows.
        TypeError: wrong type or dtype.
    """
    checks.check_tensor("packed", packed)
    checks.check_has_values("packed", packed)
    if packed.dim() != 2:
        raise ValueError(f"`packed` must be (N, V), but has shape {checks.shape_of(packed)}.")
    checks.check_tensor("logit_lengths", logit_lengths)
    B = logit_lengths.numel()
    checks.check_lengths(packed, logit_lengths, target_lengths, B)
    values.check_lengths(logit_lengths, target_lengths, num_rows=packed.shape[0])
    lengths = logit_lengths.to(packed.device), target_lengths.to(packed.device)
    T, U1 = layout.padded_size(*lengths)
    padded = packed.new_full((B, T, U1, packed.shape[1]), fill_value)
    return padded.index_put((layout.lattice_mask(*lengths, T, U1),), packed)
