"""When each token was given, looked at from the end: the likeliest alignment of what was heard."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from asr_ascend.decoding.greedy import Hypothesis
from asr_ascend.losses import rnnt_alignment
from asr_ascend.models.transducer import Transducer

# A piece of a long utterance reaches this far (2 s) past its first and last token.
_MARGIN_FRAMES = 50


@torch.no_grad()
def token_frames(
    model: Transducer, enc: Tensor, hypothesis: Hypothesis, max_logits: int = 2**25
) -> list[int]:
    """Returns the encoder frame in which the likeliest alignment gives each token.

    A greedy decoder takes each token at the first frame in which it wins; here the whole utterance
    decides. To bound memory, a long utterance is cut at its longest gaps between tokens and aligned
    piece by piece.

    Args:
        model: in evaluation mode, on the CPU.
        enc: (T, D) all encoder frames of the utterance.
        hypothesis: tokens and the frames in which the decoder gave them.
        max_logits: the most logits of a piece; at least one token is in each.

    Returns:
        A frame in [0, T - 1] for each token, never falling. A token that has no possible alignment
        keeps the decoder's frame.
    """
    tokens = torch.tensor([hypothesis.tokens], dtype=torch.int64, device=enc.device)
    encoded, predicted = model.joiner_inputs(
        enc[None], tokens, torch.tensor([len(hypothesis.tokens)])
    )
    frames: list[int] = []
    for tokens_of, frames_of in _pieces(
        hypothesis.frames, len(enc), max_logits // model.vocab_size
    ):
        num_frames, num_tokens = len(frames_of), len(tokens_of)
        logits = model.joiner.packed(
            encoded[:, frames_of.start : frames_of.stop],
            predicted[:, tokens_of.start : tokens_of.stop + 1],
            torch.tensor([num_frames], device=enc.device),
            torch.tensor([num_tokens + 1], device=enc.device),
        )
        aligned, _ = rnnt_alignment(
            logits,
            tokens[:, tokens_of.start : tokens_of.stop],
            torch.tensor([num_frames]),
            torch.tensor([num_tokens]),
            blank=model.blank,
        )
        given = hypothesis.frames[tokens_of.start : tokens_of.stop]
        frames += [
            frames_of.start + frame if frame >= 0 else old
            for frame, old in zip(aligned[0].tolist(), given, strict=True)
        ]
    return frames


def _pieces(frames: list[int], num_frames: int, max_cells: int) -> Iterator[tuple[range, range]]:
    """Tokens and frames of each piece, in order, for tokens that a decoder gave in `frames`."""
    waiting = [(range(len(frames)), range(num_frames))] if frames else []
    while waiting:
        tokens, within = waiting.pop()
        max_frames = max_cells // (len(tokens) + 1)
        if len(within) <= max_frames:
            yield tokens, within
            continue
        first, last = frames[tokens[0]], frames[tokens[-1]]
        near = range(
            max(within.start, first - _MARGIN_FRAMES), min(within.stop, last + _MARGIN_FRAMES + 1)
        )
        cut = _widest_gap(frames, tokens)
        if len(near) <= max_frames or cut is None:
            yield tokens, near
            continue
        frame = (frames[cut - 1] + frames[cut] + 1) // 2
        waiting.append((range(cut, tokens.stop), range(frame, within.stop)))
        waiting.append((range(tokens.start, cut), range(within.start, frame)))


def _widest_gap(frames: list[int], tokens: range) -> int | None:
    """The token before which most frames passed, sought in the middle first; None: no frame did."""
    quarter = len(tokens) // 4
    middle = range(tokens.start + 1 + quarter, tokens.stop - quarter)
    for candidates in (middle, range(tokens.start + 1, tokens.stop)):
        widest = max(candidates, key=lambda i: frames[i] - frames[i - 1], default=None)
        if widest is not None and frames[widest] > frames[widest - 1]:
            return widest
    return None
