"""Prediction networks: what the tokens so far say about the next one.

Both share one interface, whose state is torchaudio's: a list of lists of tensors, each with the
batch in dimension 0, so that hypotheses can be stacked and sliced without knowing what is inside.
Tokens given to ``forward`` are the predictor's input: a hypothesis starts with ``blank``, whose
embedding stands for the start of a sequence.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from asr_ascend.models.dropout import Dropout

PredictorState = list[list[Tensor]]


class StatelessPredictor(nn.Module):
    """Embeddings of the last ``context`` tokens, mixed by a convolution.

    Args:
        vocab_size: V, blank included.
        blank: id in [0, V - 1].
        dim: width of embeddings and output.
        context: tokens in sight, at least 1.
        dropout: probability, on the embeddings; it keeps the predictor from guessing the text.

    Source: Ghodsi et al. 2020, "RNN-transducer with stateless prediction network".
    """

    def __init__(self, vocab_size: int, blank: int, dim: int, context: int, dropout: float) -> None:
        super().__init__()
        if context < 1:
            raise ValueError(f"`predictor_context` must be at least 1, but is {context}.")
        self.blank = blank
        self.context = context
        self.output_dim = dim
        self.embedding = nn.Embedding(vocab_size, dim)
        self.dropout = Dropout(dropout)
        self.conv = nn.Conv1d(dim, dim, context, groups=math.gcd(dim, 4))
        self.activation = nn.SiLU()

    def forward(
        self, tokens: Tensor, state: PredictorState | None = None
    ) -> tuple[Tensor, PredictorState]:
        """Computes the outputs after each token, and the state after the last token.

        Args:
            tokens: (B, U) int32/int64 in [0, V - 1].
            state: [[tokens before, (B, context - 1)]]; None: the start, all blank.

        Returns:
            (B, U, dim), and the new state.
        """
        if state is None:
            before = tokens.new_full((tokens.shape[0], self.context - 1), self.blank)
        else:
            before = state[0][0].to(tokens.dtype)
        tokens = torch.cat([before, tokens], dim=1)
        embedded = self.dropout(self.embedding(tokens))
        out = self.activation(self.conv(embedded.transpose(1, 2))).transpose(1, 2)
        return out, [[tokens[:, tokens.shape[1] - (self.context - 1) :]]]


class LSTMPredictor(nn.Module):
    """Embedding, LSTM and LayerNorm: the whole history in sight.

    Args:
        vocab_size: V, blank included.
        dim: width of embeddings, LSTM and output.
        num_layers: of the LSTM.
        dropout: probability, on the embeddings and the LSTM's output.

    Source: Graves 2012, "Sequence transduction with recurrent neural networks".
    """

    def __init__(self, vocab_size: int, dim: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.output_dim = dim
        self.embedding = nn.Embedding(vocab_size, dim)
        self.dropout = Dropout(dropout)
        self.lstm = nn.LSTM(dim, dim, num_layers, batch_first=True)
        self.norm = nn.LayerNorm(dim)

    def forward(
        self, tokens: Tensor, state: PredictorState | None = None
    ) -> tuple[Tensor, PredictorState]:
        """Computes the outputs after each token, and the state after the last token.

        Args:
            tokens: (B, U) int32/int64 in [0, V - 1].
            state: [[hidden, cell]], each (B, num_layers, dim); None: the start, all zero.

        Returns:
            (B, U, dim), and the new state.
        """
        hidden_and_cell = None
        if state is not None:
            hidden, cell = state[0]
            hidden_and_cell = (
                hidden.transpose(0, 1).contiguous(),
                cell.transpose(0, 1).contiguous(),
            )
        out, (hidden, cell) = self.lstm(self.dropout(self.embedding(tokens)), hidden_and_cell)
        out = self.dropout(self.norm(out))
        return out, [[hidden.transpose(0, 1), cell.transpose(0, 1)]]
