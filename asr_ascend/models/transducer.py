"""Transducer: encoder, predictor, joiner and CTC head under one roof.

`predict` and `join` are those of `torchaudio.models.RNNT`, with this model's token ids;
`asr_ascend.decoding.beam` adapts them to torchaudio's beam search.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from asr_ascend.models.blank import normalise_blank
from asr_ascend.models.encoder import EncoderState, StreamingEncoder
from asr_ascend.models.joiner import Joiner
from asr_ascend.models.predictor import LSTMPredictor, PredictorState, StatelessPredictor
from asr_ascend.models.simple_heads import SimpleHeads


class JoinerTerms(NamedTuple):
    """What `joiner_rnnt_loss` makes the logits from, in the order of its arguments."""

    encoder: Tensor  # (B, T, H)
    predictor: Tensor  # (B, U1, H)
    weight: Tensor  # (V, H)
    bias: Tensor  # (V,)


class Transducer(nn.Module):
    """Streaming transducer over raw log-mel features, which it normalises itself.

    Args:
        encoder: features to frames.
        predictor: tokens to contexts.
        joiner_dim: H, width of the joiner.
        vocab_size: V, blank included.
        blank: id of blank in [-V, V - 1]; kept as a non-negative id in `blank`.

    Raises:
        ValueError: `vocab_size` below 2, or `blank` out of range.
    """

    feature_mean: Tensor
    feature_std: Tensor

    def __init__(
        self,
        encoder: StreamingEncoder,
        predictor: StatelessPredictor | LSTMPredictor,
        joiner_dim: int,
        vocab_size: int,
        blank: int,
    ) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.blank = normalise_blank(blank, vocab_size)
        self.encoder = encoder
        self.predictor = predictor
        self.joiner = Joiner(encoder.output_dim, predictor.output_dim, joiner_dim, vocab_size)
        self.ctc_head = nn.Linear(encoder.output_dim, vocab_size)
        self.simple_heads: SimpleHeads | None = None
        self.register_buffer("feature_mean", torch.zeros(encoder.num_mel_bins))
        self.register_buffer("feature_std", torch.ones(encoder.num_mel_bins))

    def add_simple_heads(self) -> None:
        """Adds the layers of a simple joiner, drawn from torch's global generator."""
        sizes = self.encoder.output_dim, self.predictor.output_dim
        self.simple_heads = SimpleHeads(*sizes, self.vocab_size)

    def set_cmvn(self, mean: Tensor, std: Tensor) -> None:
        """Sets the statistics that features are normalised with.

        Args:
            mean, std: (num_mel_bins,) of log-mel features over the training set.

        Raises:
            ValueError: a shape is wrong, a value is not finite, or a deviation is not positive.
        """
        bins = self.encoder.num_mel_bins
        for name, value in (("mean", mean), ("std", std)):
            if value.shape != (bins,):
                raise ValueError(
                    f"`{name}` must have shape ({bins},), but has {tuple(value.shape)}."
                )
            if not torch.isfinite(value).all():
                raise ValueError(f"`{name}` must be finite, but holds NaN or infinity.")
        if not (std > 0).all():
            raise ValueError(
                f"`std` must be above 0, but its smallest value is {std.min().item()}."
            )
        self.feature_mean.copy_(mean)
        self.feature_std.copy_(std)

    def encoder_lengths(self, feature_lengths: Tensor) -> Tensor:
        """Returns the encoder frames for numbers of feature frames: ((F - 1) // 2 - 1) // 2, at
        least 0.
        """
        return self.encoder.output_lengths(feature_lengths)

    def encode(
        self,
        features: Tensor,
        lengths: Tensor,
        chunk_frames: int | None = None,
        left_chunks: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Encodes whole utterances, as a stream with these chunks would.

        Args:
            features: (B, F, num_mel_bins) raw log-mel, padded with anything (NaN too).
            lengths: (B,) int64 feature frames of each utterance, in [0, F].
            chunk_frames: encoder frames (40 ms) in a chunk, at least 1; None: full context.
            left_chunks: chunks of the past that attention sees, at least 0; None: all of it. An
                encoder with ``fixed_chunks`` (an Emformer) takes only these.

        Returns:
            (B, T, D) and (B,) int64 lengths. T is that of F; frames beyond a length are finite but
            mean nothing.

        Raises:
            ValueError: a shape or a chunk setting is wrong.
        """
        self._check_features(features, chunk_frames, left_chunks)
        if lengths.shape != features.shape[:1]:
            raise ValueError(
                f"`lengths` must have shape ({features.shape[0]},), but has {tuple(lengths.shape)}."
            )
        frame = torch.arange(features.shape[1], device=features.device)
        padding = frame >= lengths.to(features.device)[:, None]
        normalised = self._normalise(features).masked_fill(padding[:, :, None], 0.0)
        out: tuple[Tensor, Tensor] = self.encoder(normalised, lengths, chunk_frames, left_chunks)
        return out

    def encode_step(
        self,
        features: Tensor,
        state: EncoderState | None = None,
        chunk_frames: int | None = None,
        left_chunks: int | None = None,
        final: bool = False,
    ) -> tuple[Tensor, EncoderState]:
        """Encodes the chunks that ``features`` complete; equals `encode` over the whole.

        Any number of feature frames may be pushed, even none. Frames come out in whole chunks; with
        ``final=True`` the last chunk may be shorter. ``left_chunks`` and ``chunk_frames`` bound
        what the state holds. With either of them None it grows with the stream.

        Args:
            features: (B, f, num_mel_bins) raw log-mel, the next f frames of each of B streams.
            state: from the previous call, not changed; None at the start.
            chunk_frames: as for `encode`; None: everything is kept until ``final``.
            left_chunks: as for `encode`.
            final: whether these are the last features of the streams.

        Returns:
            (B, n, D), n a multiple of chunk_frames unless ``final``, and the new state.

        Raises:
            ValueError: a shape is wrong, chunk settings changed, or the stream is already finished.
        """
        self._check_features(features, chunk_frames, left_chunks)
        normalised = self._normalise(features)
        return self.encoder.step(normalised, state, chunk_frames, left_chunks, final)

    def predict(
        self,
        targets: Tensor,
        target_lengths: Tensor,
        state: PredictorState | None = None,
    ) -> tuple[Tensor, Tensor, PredictorState]:
        """Computes predictor outputs after each token (torchaudio's RNNT interface).

        Args:
            targets: (B, U) int32/int64 inputs in [0, V - 1]; a sequence starts with blank.
            target_lengths: (B,), returned as given.
            state: of earlier tokens; None at the start.

        Returns:
            (B, U, P), ``target_lengths``, and the state after all U tokens of the batch.
        """
        out, state = self.predictor(targets, state)
        return out, target_lengths, state

    def join(
        self,
        source_encodings: Tensor,
        source_lengths: Tensor,
        target_encodings: Tensor,
        target_lengths: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Computes logits of every frame with every context (torchaudio's RNNT interface).

        Args:
            source_encodings: (B, T, D) from `encode`.
            source_lengths: (B,), returned as given.
            target_encodings: (B, U1, P) from `predict`.
            target_lengths: (B,), returned as given.

        Returns:
            (B, T, U1, V) logits and both lengths. Training uses `join_packed`, which is smaller.
        """
        encoded = self.joiner.encoder_projection(source_encodings)
        predicted = self.joiner.predictor_projection(target_encodings)
        logits = self.joiner(encoded.unsqueeze(2), predicted.unsqueeze(1))
        return logits, source_lengths, target_lengths

    def joiner_inputs(
        self,
        enc: Tensor,
        targets: Tensor,
        target_lengths: Tensor,
        predicted: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Computes both projections that the joiner adds.

        Args:
            enc: (B, T, D) from `encode`.
            targets, target_lengths: as for `predicted`.
            predicted: of these targets; None: it is made here.

        Returns:
            (B, T, H) and (B, U + 1, H): column u has seen blank (the start) and u labels.
        """
        if predicted is None:
            predicted = self.predicted(targets, target_lengths)
        encoded = self.joiner.encoder_projection(enc)
        return encoded, self.joiner.predictor_projection(predicted)

    def predicted(self, targets: Tensor, target_lengths: Tensor) -> Tensor:
        """Computes the predictor's outputs (B, U + 1, P).

        Column u is the output after blank (the start) and u labels.

        Args:
            targets: (B, U) int32/int64 labels, padded with anything.
            target_lengths: (B,) labels of each utterance, in [0, U].
        """
        column = torch.arange(targets.shape[1], device=targets.device)
        inside = column < target_lengths.to(targets.device)[:, None]
        tokens = nn.functional.pad(targets.where(inside, self.blank), (1, 0), value=self.blank)
        predicted, _ = self.predictor(tokens)
        return predicted

    def joiner_terms(
        self,
        enc: Tensor,
        targets: Tensor,
        target_lengths: Tensor,
        predicted: Tensor | None = None,
    ) -> JoinerTerms:
        """Returns both projections that the joiner adds, and its output layer.

        Args:
            enc, targets, target_lengths, predicted: as for `joiner_inputs`.

        Returns:
            Terms of the logits ``tanh(encoder + predictor) @ weight.T + bias``, differentiable.
        """
        inputs = self.joiner_inputs(enc, targets, target_lengths, predicted)
        return JoinerTerms(*inputs, self.joiner.output.weight, self.joiner.output.bias)

    def join_packed(
        self,
        enc: Tensor,
        enc_lengths: Tensor,
        targets: Tensor,
        target_lengths: Tensor,
        band: Tensor | None = None,
        predicted: Tensor | None = None,
    ) -> Tensor:
        """Computes only the logits of the cells t < T_b, u <= U_b, or of the band.

        Their order is that of packed logits for `rnnt_loss`.

        Args:
            enc: (B, T, D) from `encode`.
            enc_lengths: (B,) encoder frames of each utterance, in [0, T].
            targets, target_lengths, predicted: as for `joiner_inputs`.
            band: (B, T, 2) first and last column of each frame; None: every column.

        Returns:
            (N, V) logits, N = sum of T_b * (U_b + 1), or the cells of the band.
        """
        encoded, predicted = self.joiner_inputs(enc, targets, target_lengths, predicted)
        frames, columns = enc_lengths.to(torch.int64), target_lengths.to(torch.int64) + 1
        band = None if band is None else band.to(torch.int64)
        return self.joiner.packed(encoded, predicted, frames, columns, band)

    def join_packed_blocks(
        self,
        enc: Tensor,
        enc_lengths: Tensor,
        targets: Tensor,
        target_lengths: Tensor,
        block_rows: int,
        band: Tensor | None = None,
        predicted: Tensor | None = None,
    ) -> Iterator[Tensor]:
        """Yields the rows of `join_packed`, at most ``block_rows`` (at least 1) at a time.

        Arguments are those of `join_packed`.
        """
        encoded, predicted = self.joiner_inputs(enc, targets, target_lengths, predicted)
        frames, columns = enc_lengths.to(torch.int64), target_lengths.to(torch.int64) + 1
        band = None if band is None else band.to(torch.int64)
        return self.joiner.packed_blocks(encoded, predicted, frames, columns, block_rows, band)

    def ctc_log_probs(self, enc: Tensor) -> Tensor:
        """Computes log-probabilities (B, T, V) of the CTC head from ``enc`` (B, T, D).

        They are float32, or float64 for float64 inputs.
        """
        logits = self.ctc_head(enc)
        dtype = torch.promote_types(logits.dtype, torch.float32)
        return torch.log_softmax(logits, dim=-1, dtype=dtype)

    def _normalise(self, features: Tensor) -> Tensor:
        return (features - self.feature_mean) / self.feature_std

    def _check_features(
        self, features: Tensor, chunk_frames: int | None, left_chunks: int | None
    ) -> None:
        bins = self.encoder.num_mel_bins
        if features.dim() != 3 or features.shape[2] != bins:
            raise ValueError(
                f"`features` must have shape (B, F, {bins}), but has {tuple(features.shape)}."
            )
        self.encoder.check_chunks(chunk_frames, left_chunks)
