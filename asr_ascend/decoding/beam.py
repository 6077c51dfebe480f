"""Beam search through `torchaudio.models.RNNTBeamSearch`.

torchaudio's search takes the *last* column of the joiner's output for blank, whatever it is told.
`BlankLast` offers torchaudio's RNNT interface with the ids of any `Transducer` rearranged to that.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from asr_ascend.decoding.greedy import Hypothesis
from asr_ascend.models.encoder import EncoderState
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
    """A transducer under torchaudio's RNNT interface, its blank moved to the last id.

    Args:
        model: in evaluation mode.
        chunk_frames, left_chunks: chunks of `transcribe_streaming`.

    Use: ``RNNTBeamSearch(BlankLast(model), blank=model.vocab_size - 1)``; ids in its hypotheses go
    through `to_model_ids`.
    """

    def __init__(
        self, model: Transducer, chunk_frames: int = 8, left_chunks: int | None = 4
    ) -> None:
        super().__init__()
        self.model = model
        self.chunk_frames = chunk_frames
        self.left_chunks = left_chunks
        blank, vocab_size = model.blank, model.vocab_size
        order = [*range(blank), *range(blank + 1, vocab_size), blank]
        self.register_buffer("order", torch.tensor(order, device=model.feature_mean.device))
        self.order: Tensor

    def to_model_ids(self, ids: list[int]) -> list[int]:
        """The model's ids for ids with blank last."""
        return [int(self.order[i]) for i in ids]

    def transcribe(self, sources: Tensor, source_lengths: Tensor) -> tuple[Tensor, Tensor]:
        """See `Transducer.transcribe`."""
        return self.model.transcribe(sources, source_lengths)

    def transcribe_streaming(
        self, sources: Tensor, source_lengths: Tensor, state: EncoderState | None
    ) -> tuple[Tensor, Tensor, EncoderState]:
        """See `Transducer.transcribe_streaming`."""
        return self.model.transcribe_streaming(
            sources, source_lengths, state, self.chunk_frames, self.left_chunks
        )

    def predict(
        self, targets: Tensor, target_lengths: Tensor, state: PredictorState | None = None
    ) -> tuple[Tensor, Tensor, PredictorState]:
        """See `Transducer.predict`; ids with blank last."""
        return self.model.predict(self.order[targets], target_lengths, state)

    def join(
        self,
        source_encodings: Tensor,
        source_lengths: Tensor,
        target_encodings: Tensor,
        target_lengths: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `Transducer.join`; columns with blank last."""
        logits, source_lengths, target_lengths = self.model.join(
            source_encodings, source_lengths, target_encodings, target_lengths
        )
        return logits.index_select(-1, self.order), source_lengths, target_lengths


class _EncodedInput(BlankLast):
    """Takes encoder frames where torchaudio hands over features."""

    def transcribe(self, sources: Tensor, source_lengths: Tensor) -> tuple[Tensor, Tensor]:
        return sources, source_lengths


@torch.no_grad()
def beam_search(
    model: Transducer,
    enc: Tensor,
    enc_lengths: Tensor,
    beam_width: int,
    max_symbols_per_frame: int = 3,
) -> list[list[Hypothesis]]:
    """The best ``beam_width`` token sequences of every utterance, best first.

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
        ValueError: ``beam_width`` or ``max_symbols_per_frame`` below 1, or NaN in ``enc``.
    """
    for name, value in (
        ("beam_width", beam_width),
        ("max_symbols_per_frame", max_symbols_per_frame),
    ):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, but is {value}.")
    adapter = _EncodedInput(model)
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
    """The best hypothesis of every utterance; arguments and errors as for `beam_search`."""
    found = beam_search(model, enc, enc_lengths, beam_width, max_symbols_per_frame)
    return [hypotheses[0] for hypotheses in found]


@torch.no_grad()
def align_tokens(model: Transducer, frames: Tensor, tokens: list[int]) -> list[int]:
    """Encoder frame of each token on the single most likely alignment (Viterbi).

    Args:
        model: in evaluation mode.
        frames: (T, D) encoder frames of one utterance, T at least 1 if there are tokens.
        tokens: U ids without blank.

    Returns:
        U frame indices in [0, T - 1], never falling.
    """
    num_frames, num_tokens = frames.shape[0], len(tokens)
    if not tokens:
        return []
    targets = torch.tensor([tokens], device=frames.device)
    logits = model.join_packed(
        frames[None], torch.tensor([num_frames]), targets, torch.tensor([num_tokens])
    )
    log_probs = logits.view(num_frames, num_tokens + 1, -1).double().log_softmax(-1)
    log_probs = log_probs.clamp(min=-1e30).cpu()  # differences of infinities would be NaN
    blank = log_probs[:, :, model.blank]
    label = log_probs[:, :-1].gather(2, targets.T.cpu().expand(num_frames, -1, 1)).squeeze(2)
    # Column u at frame t is reached from the best column k <= u by the labels k to u - 1. With the
    # sum of all labels before a column taken off, that is one running maximum.
    before = torch.nn.functional.pad(label.cumsum(1), (1, 0))
    best = before[0]
    origins = []
    for t in range(1, num_frames):
        highest, origin = torch.cummax(best + blank[t - 1] - before[t], dim=0)
        best = highest + before[t]
        origins.append(origin.tolist())
    path: list[int] = []
    column = num_tokens
    for t in range(num_frames - 1, 0, -1):
        origin_column = origins[t - 1][column]
        path += [t] * (column - origin_column)
        column = origin_column
    return ([*path, *[0] * column])[::-1]
