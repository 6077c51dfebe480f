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


def first_frames(
    ctc_log_probs: Tensor,
    lengths: Tensor,
    targets: Tensor,
    target_lengths: Tensor,
    blank: int,
) -> Tensor:
    """Frame at which the most likely CTC alignment first gives each token.

    Args:
        ctc_log_probs: (B, T, V) float.
        lengths: (B,) frames of each utterance.
        targets: (B, U) int64, padded with anything.
        target_lengths: (B,) tokens of each utterance.
        blank: id of blank in [0, V - 1].

    Returns:
        (B, U) int64 on the CPU, rising within an utterance; 0 beyond its tokens, and everywhere in
        an utterance with too few frames for CTC, or with a NaN or +inf in its log-probabilities.
    """
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
