"""Beam search through `torchaudio.models.RNNTBeamSearch`.

torchaudio's search takes the *last* column of the joiner's output for blank, whatever it is told.
`BlankLast` offers torchaudio's RNNT interface with the ids of any `Transducer` rearranged to that.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from asr_ascend.decoding.greedy import Hypothesis
from asr_ascend.losses import rnnt_alignment
from asr_ascend.models.predictor import PredictorState
from asr_ascend.models.transducer import Transducer

try:
    from torchaudio.models import RNNTBeamSearch
except (ImportError, OSError) as error:  # a torchaudio built for another torch fails with OSError
    raise ImportError(
        "Beam search needs torchaudio, and one that was built for the installed torch "
        f"({torch.__version__}): install both from the same index, or decode with greedy."
    ) from error


class BlankLast(nn.Module):
    """A transducer as torchaudio's search wants it: over encoder frames, with blank last.

    Args:
        model: in evaluation mode.

    Ids in the search's hypotheses go through `to_model_ids`.
    """

    def __init__(self, model: Transducer) -> None:
        super().__init__()
        self.model = model
        blank, vocab_size = model.blank, model.vocab_size
        order = [*range(blank), *range(blank + 1, vocab_size), blank]
        self.register_buffer("order", torch.tensor(order, device=model.feature_mean.device))
        self.order: Tensor

    def to_model_ids(self, ids: list[int]) -> list[int]:
        """Returns the model's ids for ids with blank last."""
        return [int(self.order[i]) for i in ids]

    def transcribe(self, sources: Tensor, source_lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the given encoder frames, where torchaudio passes features."""
        return sources, source_lengths

    def predict(
        self, targets: Tensor, target_lengths: Tensor, state: PredictorState | None = None
    ) -> tuple[Tensor, Tensor, PredictorState]:
        """Runs `Transducer.predict` on ids with blank last."""
        return self.model.predict(self.order[targets], target_lengths, state)

    def join(
        self,
        source_encodings: Tensor,
        source_lengths: Tensor,
        target_encodings: Tensor,
        target_lengths: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Runs `Transducer.join`, and returns logits with blank in the last column."""
        logits, source_lengths, target_lengths = self.model.join(
            source_encodings, source_lengths, target_encodings, target_lengths
        )
        return logits.index_select(-1, self.order), source_lengths, target_lengths


@torch.no_grad()
def beam_search(
    model: Transducer,
    enc: Tensor,
    enc_lengths: Tensor,
    beam_width: int,
    max_symbols_per_frame: int = 3,
) -> list[list[Hypothesis]]:
    """Returns the best ``beam_width`` token sequences of every utterance, best first.

    Args:
        model: in evaluation mode.
        enc: (B, T, D) from `Transducer.encode`.
        enc_lengths: (B,) encoder frames of each utterance, in [0, T].
        beam_width: hypotheses kept, at least 1; more than V - 1 are not possible and are not kept.
        max_symbols_per_frame: tokens at one frame, at least 1.

    Returns:
        B lists, ordered by `score`: the log-probability of the tokens, summed over the alignments
        searched. `frames` are those of the single most likely alignment.

    Raises:
        ValueError: ``beam_width`` or ``max_symbols_per_frame`` is below 1, or ``enc`` holds NaN.
    """
    for name, value in (
        ("beam_width", beam_width),
        ("max_symbols_per_frame", max_symbols_per_frame),
    ):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, but is {value}.")
    adapter = BlankLast(model)
    search = RNNTBeamSearch(
        adapter,
        blank=model.vocab_size - 1,
        # torchaudio divides by the number of tokens, which lets guessed tokens push out silence.
        hypo_sort_key=lambda found: found[3],
        step_max_tokens=max_symbols_per_frame,
    )
    results = []
    for b, length in enumerate(enc_lengths.tolist()):
        frames = enc[b, :length]
        if not torch.isfinite(frames).all():
            raise ValueError(f"`enc` must be finite, but holds NaN or infinity in utterance {b}.")
        # A step offers V - 1 tokens per hypothesis, and torchaudio asks for `beam_width` of them.
        found = search(frames, torch.tensor(length), min(beam_width, model.vocab_size - 1))
        hypotheses = []
        for raw in sorted(found, key=search.hypo_sort_key, reverse=True):
            tokens = adapter.to_model_ids(raw[0][1:])  # the first is the blank of the start
            hypotheses.append(
                Hypothesis(tokens, align_tokens(model, frames, tokens), float(raw[3]))
            )
        results.append(hypotheses)
    return results


def beam_decode(
    model: Transducer,
    enc: Tensor,
    enc_lengths: Tensor,
    beam_width: int,
    max_symbols_per_frame: int = 3,
) -> list[Hypothesis]:
    """Returns the best hypothesis of every utterance, as `beam_search` finds it.

    Arguments and errors are those of `beam_search`.
    """
    found = beam_search(model, enc, enc_lengths, beam_width, max_symbols_per_frame)
    return [hypotheses[0] for hypotheses in found]


@torch.no_grad()
def align_tokens(model: Transducer, frames: Tensor, tokens: list[int]) -> list[int]:
    """Returns the encoder frame of each token on the single most likely alignment (Viterbi).

    Args:
        model: in evaluation mode.
        frames: (T, D) encoder frames of one utterance, T at least 1 if there are tokens.
        tokens: U ids without blank.

    Returns:
        U frame indices in [0, T - 1], never falling.
    """
    if not tokens:
        return []
    targets = torch.tensor([tokens], device=frames.device)
    lengths = torch.tensor([len(frames)]), torch.tensor([len(tokens)])
    logits = model.join_packed(frames[None], lengths[0], targets, lengths[1])
    # A masked token has an alignment too: its logit is finite here, below all others.
    logits = logits.cpu().double().clamp(min=-1e30)
    aligned, _ = rnnt_alignment(logits, targets.cpu(), *lengths, blank=model.blank)
    result: list[int] = aligned[0].tolist()
    return result
