"""Keeps the transducer's tokens near the frames at which they are heard.

A predictor that can guess the next token lets the transducer give it seconds before it is spoken,
or several at one frame: the loss sums over all alignments and doesn't care. Greedy decoding then
loses its place. Here the auxiliary CTC head, which guesses nothing, says where each token is heard,
and the transducer may give it within a few frames of that alone.

Source: Mahadeokar et al. 2021, "Alignment restricted streaming recurrent neural network
transducer".
"""

from __future__ import annotations

import torch
import torchaudio.functional
from torch import Tensor

from asr_ascend.losses.problem import on_device


def first_frames(
    ctc_log_probs: Tensor,
    lengths: Tensor,
    targets: Tensor,
    target_lengths: Tensor,
    blank: int,
) -> Tensor:
    """Finds the frame at which the most likely CTC alignment first gives each token.

    Args:
        ctc_log_probs: (B, T, V) float.
        lengths: (B,) frames of each utterance.
        targets: (B, U) int64, padded with anything.
        target_lengths: (B,) tokens of each utterance.
        blank: id of blank in [0, V - 1].

    Returns:
        (B, U) int64, rising within an utterance; 0 beyond its tokens, and everywhere in an
        utterance with too few frames for CTC, or with a NaN or +inf in its log-probabilities. On
        the CPU where the log-probabilities are; elsewhere on their device, and nothing goes to the
        host.
    """
    if ctc_log_probs.device.type != "cpu":
        return first_frames_on_device(ctc_log_probs, lengths, targets, target_lengths, blank)
    log_probs, tokens = ctc_log_probs.detach().float().cpu(), targets.cpu()
    frames = torch.zeros(tokens.shape, dtype=torch.int64)
    for b, (length, count) in enumerate(
        zip(lengths.tolist(), target_lengths.tolist(), strict=True)
    ):
        target = tokens[b : b + 1, :count]
        repeats = int((target[0, 1:] == target[0, :-1]).sum())
        if count == 0 or length < count + repeats:
            continue
        if not (log_probs[b, :length] < torch.inf).all():
            continue
        sizes = torch.tensor([length]), torch.tensor([count])
        path, _ = torchaudio.functional.forced_align(
            log_probs[b : b + 1, :length].contiguous(), target.contiguous(), *sizes, blank
        )
        before = torch.cat([torch.full((1,), blank), path[0, :-1].long()])
        starts = ((path[0] != blank) & (path[0] != before)).nonzero()[:, 0]
        if len(starts) == count:  # else no alignment is possible
            frames[b, :count] = starts
    return frames


# A log-probability below it is as good as impossible. Sums over frames stay within what float32
# resolves.
_LEAST_LOG_PROB = -1000.0


def first_frames_on_device(
    ctc_log_probs: Tensor,
    lengths: Tensor,
    targets: Tensor,
    target_lengths: Tensor,
    blank: int,
) -> Tensor:
    """Computes `first_frames` for whole batches on devices other than the CPU.

    The states of CTC's graph are passed one by one: blank, token, blank, and so on. Within a state
    all frames are computed together. With E(t) the sum of the state's log-probabilities up to
    frame t, the best path that is in the state at frame t came into it at the frame s <= t where
    entry(s) - E(s - 1) is largest: a running maximum.

    Args, Returns: as `first_frames`; the result is on the device of `ctc_log_probs`.
    """
    device, (B, T, _) = ctc_log_probs.device, ctc_log_probs.shape
    U = targets.shape[1]
    if U == 0 or T == 0:
        return torch.zeros(B, U, dtype=torch.int64, device=device)
    lengths, counts = on_device(lengths, device), on_device(target_lengths, device)
    tokens = on_device(targets, device).where(torch.arange(U, device=device) < counts[:, None], 0)
    log_probs = ctc_log_probs.detach().float()
    usable = _usable(log_probs, lengths, tokens, counts)
    log_probs = log_probs.nan_to_num(0.0, 0.0, _LEAST_LOG_PROB).clamp(min=_LEAST_LOG_PROB)
    of_tokens = log_probs.gather(2, tokens[:, None].expand(B, T, U)).cumsum(1)
    of_blank = log_probs[:, :, blank].cumsum(1)
    repeats = torch.nn.functional.pad(tokens[:, 1:] == tokens[:, :-1], (1, 0), value=True)
    impossible = torch.full((B, T), -torch.inf, device=device)
    start = impossible.clone()
    start[:, 0] = 0.0
    best: list[Tensor] = []  # (B, T) by state
    entries: list[tuple[Tensor, Tensor]] = []  # frame of entry, and whether a blank was skipped
    for state in range(2 * U + 1):
        token = state // 2 if state % 2 else None
        sums = of_blank if token is None else of_tokens[:, :, token]
        entry = start if state < 2 else impossible
        skips = torch.zeros_like(entry, dtype=torch.bool)
        if state > 0:
            entry = torch.maximum(entry, _one_later(best[state - 1]))
        if token is not None and state > 1:
            skipping = _one_later(best[state - 2]).where(~repeats[:, token, None], -torch.inf)
            skips = skipping > entry
            entry = torch.maximum(entry, skipping)
        before = torch.nn.functional.pad(sums[:, :-1], (1, 0))
        highest, frame = (entry - before).cummax(1)
        best.append(sums + highest)
        entries.append((frame, skips))
    return _traced(best, entries, lengths, counts).where(usable[:, None], 0)


def _usable(log_probs: Tensor, lengths: Tensor, tokens: Tensor, counts: Tensor) -> Tensor:
    """(B,) bool: enough frames, and no NaN or +inf in them."""
    is_repeat = torch.arange(1, tokens.shape[1], device=tokens.device) < counts[:, None]
    repeats = ((tokens[:, 1:] == tokens[:, :-1]) & is_repeat).sum(1)
    frame = torch.arange(log_probs.shape[1], device=log_probs.device)
    fine = (log_probs < torch.inf).all(2) | (frame >= lengths[:, None])
    return (lengths >= counts + repeats) & fine.all(1) & (counts > 0)


def _one_later(scores: Tensor) -> Tensor:
    return torch.nn.functional.pad(scores[:, :-1], (1, 0), value=-torch.inf)


def _traced(
    best: list[Tensor], entries: list[tuple[Tensor, Tensor]], lengths: Tensor, counts: Tensor
) -> Tensor:
    """(B, U): the frames of entry into each token's state on the best path, from its end back."""
    ends = (lengths - 1).clamp(min=0)[:, None]
    scores = torch.stack([values.gather(1, ends)[:, 0] for values in best], dim=1)  # (B, states)
    last = 2 * counts[:, None]
    at_blank, at_token = scores.gather(1, last), scores.gather(1, (last - 1).clamp(min=0))
    current = last - (at_token > at_blank).long()
    possible = torch.maximum(at_blank, at_token) > -torch.inf
    frames = torch.zeros(len(lengths), len(best) // 2, dtype=torch.int64, device=lengths.device)
    at = ends
    for state in reversed(range(len(best))):
        here = current == state
        frame = entries[state][0].gather(1, at)
        if state % 2:
            frames[:, state // 2] = frame.where(here & possible, 0)[:, 0]
        skipped = entries[state][1].gather(1, frame)
        current = torch.where(here, state - 1 - skipped.long(), current)
        at = torch.where(here, (frame - 1).clamp(min=0), at)
    return frames
