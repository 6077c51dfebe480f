"""Greedy decoding: the most likely symbol at every step, over many utterances at once."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from asr_ascend.models.predictor import PredictorState
from asr_ascend.models.transducer import Transducer


@dataclass
class Hypothesis:
    """What a decoder heard.

    Attributes:
        tokens: ids in [0, V - 1] without blank.
        frames: encoder frame (40 ms each) that gave each token.
        score: log-probability in nats: of the greedy alignment, or of the tokens for beam search.
    """

    tokens: list[int] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)
    score: float = 0.0


class GreedySearch:
    """Greedy search over B utterances whose encoder frames may come in pieces.

    Args:
        model: in evaluation mode.
        batch_size: B.
        max_symbols_per_frame: after this many tokens at one frame, blank is taken.

    Raises:
        ValueError: ``max_symbols_per_frame`` is below 1.
    """

    def __init__(self, model: Transducer, batch_size: int, max_symbols_per_frame: int = 3) -> None:
        if max_symbols_per_frame < 1:
            raise ValueError(
                f"`max_symbols_per_frame` must be at least 1, but is {max_symbols_per_frame}."
            )
        self.model = model
        self.max_symbols_per_frame = max_symbols_per_frame
        self.hypotheses = [Hypothesis() for _ in range(batch_size)]
        self.frames_seen = 0
        self._context, self._state = self._start(batch_size)

    @torch.no_grad()
    def advance(self, enc: Tensor, enc_lengths: Tensor) -> None:
        """Decodes the next frames of every utterance into ``hypotheses``.

        Every utterance keeps its own place, so a step handles one symbol of each utterance. The
        number of steps is the largest T_b + U_b, not the sum over frames of the slowest utterance.

        Args:
            enc: (B, T, D) encoder frames.
            enc_lengths: (B,) how many of them are real, in [0, T].
        """
        encoded = self.model.joiner.encoder_projection(enc)
        lengths = enc_lengths.tolist()
        frame, symbols = [0] * len(lengths), [0] * len(lengths)
        active = [b for b, length in enumerate(lengths) if length > 0]
        while active:
            index = torch.tensor(active, device=enc.device)
            place = torch.tensor([frame[b] for b in active], device=enc.device)
            logits = self.model.joiner(encoded[index, place], self._context[index])
            log_probs = torch.log_softmax(logits.double(), dim=-1)
            best, token = (column.tolist() for column in log_probs.max(dim=-1))
            blank = log_probs[:, self.model.blank].tolist()
            emitted = []
            for i, b in enumerate(active):
                hypothesis = self.hypotheses[b]
                if token[i] == self.model.blank or symbols[b] == self.max_symbols_per_frame:
                    hypothesis.score += blank[i]
                    frame[b], symbols[b] = frame[b] + 1, 0
                else:
                    hypothesis.score += best[i]
                    hypothesis.tokens.append(token[i])
                    hypothesis.frames.append(self.frames_seen + frame[b])
                    symbols[b] += 1
                    emitted.append(b)
            self._update_context(emitted)
            active = [b for b in active if frame[b] < lengths[b]]
        self.frames_seen += enc.shape[1]

    @torch.no_grad()
    def _start(self, batch_size: int) -> tuple[Tensor, PredictorState]:
        device = self.model.feature_mean.device
        start = torch.full((batch_size, 1), self.model.blank, device=device)
        out, state = self.model.predictor(start)
        return self.model.joiner.predictor_projection(out[:, 0]), state

    def _update_context(self, emitted: list[int]) -> None:
        """Feeds the newest token of the utterances in ``emitted`` to the predictor."""
        if not emitted:
            return
        device = self._context.device
        tokens = torch.tensor([[self.hypotheses[b].tokens[-1]] for b in emitted], device=device)
        index = torch.tensor(emitted, device=device)
        before = [[part.index_select(0, index) for part in parts] for parts in self._state]
        out, after = self.model.predictor(tokens, before)
        self._context = self._context.index_copy(
            0, index, self.model.joiner.predictor_projection(out[:, 0])
        )
        self._state = [
            [old.index_copy(0, index, new) for old, new in zip(olds, news, strict=True)]
            for olds, news in zip(self._state, after, strict=True)
        ]


def greedy_decode(
    model: Transducer, enc: Tensor, enc_lengths: Tensor, max_symbols_per_frame: int = 3
) -> list[Hypothesis]:
    """Takes the most likely symbol at every step.

    Args:
        model: in evaluation mode.
        enc: (B, T, D) from `Transducer.encode`.
        enc_lengths: (B,) encoder frames of each utterance, in [0, T].
        max_symbols_per_frame: after this many tokens at one frame, blank is taken.

    Returns:
        B hypotheses; `score` is the log-probability of the alignment taken, blanks included.

    Raises:
        ValueError: ``max_symbols_per_frame`` is below 1.

    Source: Graves 2012, section 2.5, with a beam of one and a bound on symbols per frame.
    """
    search = GreedySearch(model, enc.shape[0], max_symbols_per_frame)
    search.advance(enc, enc_lengths)
    return search.hypotheses
