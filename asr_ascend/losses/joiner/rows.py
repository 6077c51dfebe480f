"""The joiner's rows: hidden activations, logits, and the products that the gradient is made of.

A row is one lattice cell (t, u) of a sample: ``activation(encoder[t] + predictor[u])``, H wide, and
its V logits. All here works on a few rows at a time, in memory that the caller owns.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from asr_ascend.losses.layout import row_blocks
from asr_ascend.losses.problem import cost_dtype, lattice_dtype

# Matrix products of so many bytes of logits, and of so many rows, at a time: they still fit in a
# CPU's last cache, and larger ones are no faster.
BLOCK_BYTES = 16 * 2**20
BLOCK_ROWS = 2048


class JoinerTensors(NamedTuple):
    """The tensors and settings that the rows are made of."""

    encoder: Tensor  # (B, T, H)
    predictor: Tensor  # (B, U1, H)
    weight: Tensor  # (V, H), in the dtype of the matrix products
    bias: Tensor | None  # (V,), the same
    activation: str
    logits_dtype: torch.dtype

    @classmethod
    def of(
        cls,
        encoder: Tensor,
        predictor: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        *,
        activation: str,
        product_dtype: torch.dtype,
        logits_dtype: torch.dtype | None,
    ) -> "JoinerTensors":
        """Makes the tensors from those of autograd, detached from it."""
        return cls(
            encoder.detach(),
            predictor.detach(),
            weight.detach().to(product_dtype),
            None if bias is None else bias.detach().to(product_dtype),
            activation,
            logits_dtype or product_dtype,
        )

    def logits_row_bytes(self) -> int:
        """Returns the bytes of one row of logits."""
        return self.weight.shape[0] * self.logits_dtype.itemsize

    def row_bytes(self) -> int:
        """Returns the bytes of one row of logits in the wider of its two dtypes."""
        return max(self.logits_row_bytes(), self.weight.shape[0] * self.weight.dtype.itemsize)

    def cost_dtype(self) -> torch.dtype:
        """Returns the dtype of the loss, as ``rnnt_loss`` gives it for these logits."""
        return cost_dtype(self.logits_dtype)

    def lattice_dtype(self) -> torch.dtype:
        """Returns the dtype of a few numbers per row: float64 where the device has it."""
        return lattice_dtype(self.encoder.device)

    def new_rows(self, count: int) -> tuple[Tensor, Tensor]:
        """Returns uninitialised hidden activations (count, H) and logits (count, V)."""
        dtype = torch.promote_types(self.encoder.dtype, self.predictor.dtype)
        hidden = self.encoder.new_empty(count, self.encoder.shape[2], dtype=dtype)
        return hidden, self.encoder.new_empty(count, self.weight.shape[0], dtype=self.logits_dtype)

    def write_frames(self, hidden: Tensor, sample: int, frames: slice, columns: int) -> None:
        """Fills ``hidden`` (rows, H), not yet activated, with all columns of some frames.

        The rows go by frame, then column.
        """
        encoded, predicted = self.encoder[sample, frames], self.predictor[sample, :columns]
        rows = hidden.view(len(encoded), columns, hidden.shape[1])
        torch.add(encoded[:, None], predicted[None], out=rows)

    def write_cells(self, hidden: Tensor, sample: int, t: Tensor, u: Tensor) -> None:
        """Fills ``hidden`` (rows, H), not yet activated, with any cells (t, u)."""
        encoder, predictor = (x[sample].to(hidden.dtype) for x in (self.encoder, self.predictor))
        # Into the caller's memory: pages of a new tensor's cost more than the sum.
        torch.index_select(encoder, 0, t, out=hidden)
        hidden.add_(predictor.index_select(0, u))

    def activate(self, hidden: Tensor) -> None:
        """Applies the activation in place."""
        if self.activation == "tanh":
            hidden.tanh_()
        else:
            hidden.relu_()

    def write_logits(self, logits: Tensor, hidden: Tensor) -> None:
        """Fills ``logits`` (rows, V) from ``hidden`` (rows, H)."""
        direct = logits.dtype == self.weight.dtype
        for rows in blocks(len(logits), self.row_bytes()):
            given = hidden[rows].to(self.weight.dtype)
            out = logits[rows] if direct else None
            if self.bias is None:
                product = torch.mm(given, self.weight.T, out=out)
            else:
                product = torch.addmm(self.bias, given, self.weight.T, out=out)
            if not direct:
                logits[rows] = product


class Wanted(NamedTuple):
    """Which gradients to make."""

    encoder: bool
    predictor: bool
    weight: bool
    bias: bool


class GradientSums:
    """Gradients summed over rows and samples, in float32 or better; None where not wanted.

    Each sample's part is multiplied by a scale of its own as it is added: gradients of logits stay
    in [-1, 1], which half precision resolves, whatever the loss is multiplied by.
    """

    def __init__(self, joiner: JoinerTensors, wanted: Wanted) -> None:
        def zeros(like: Tensor) -> Tensor:
            return torch.zeros_like(like, dtype=torch.promote_types(like.dtype, torch.float32))

        self.joiner = joiner
        self._scratch = joiner.weight.new_empty(0)
        self.encoder = zeros(joiner.encoder) if wanted.encoder else None
        self.predictor = zeros(joiner.predictor) if wanted.predictor else None
        self.weight = zeros(joiner.weight) if wanted.weight else None
        self.bias = zeros(joiner.bias) if wanted.bias and joiner.bias is not None else None

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Returns the sums in the order of :class:`Wanted`."""
        return self.encoder, self.predictor, self.weight, self.bias

    def add_products(self, hidden: Tensor, grad_logits: Tensor, scale: float) -> None:
        """Adds rows to weight and bias.

        The gradient before the activation overwrites ``hidden``.
        """
        for rows in blocks(len(hidden), self.joiner.row_bytes()):
            self._add_block(hidden[rows], grad_logits[rows].to(self.joiner.weight.dtype), scale)

    def _add_block(self, hidden: Tensor, grad_logits: Tensor, scale: float) -> None:
        if self.weight is not None:
            given = hidden.to(grad_logits.dtype)
            if self.weight.dtype == grad_logits.dtype:
                self.weight.addmm_(grad_logits.T, given, alpha=scale)
            else:
                self.weight.add_(grad_logits.T @ given, alpha=scale)
        if self.bias is not None:
            self.bias.add_(grad_logits.sum(0, dtype=self.bias.dtype), alpha=scale)
        if self.encoder is not None or self.predictor is not None:
            self._differentiate_activation(hidden, grad_logits)

    def _differentiate_activation(self, hidden: Tensor, grad_logits: Tensor) -> None:
        """Puts the gradient of the sum that went into the activation in the place of ``hidden``."""
        if len(self._scratch) < len(hidden):
            self._scratch = self.joiner.weight.new_empty(hidden.shape)
        product = self._scratch[: len(hidden)]
        torch.mm(grad_logits, self.joiner.weight, out=product)
        grad_hidden = product.to(hidden.dtype)
        if self.joiner.activation == "tanh":
            torch.ops.aten.tanh_backward.grad_input(grad_hidden, hidden, grad_input=hidden)
        elif hidden.device.type == "cpu":
            torch.ops.aten.threshold_backward.grad_input(grad_hidden, hidden, 0, grad_input=hidden)
        else:  # torch_npu has no kernel that writes to a given tensor, and would go to the CPU
            hidden.copy_(torch.ops.aten.threshold_backward(grad_hidden, hidden, 0))

    def add_frames(self, grad_hidden: Tensor, sample: int, frames: slice, scale: float) -> None:
        """Adds the gradient before the activation of some frames with all columns."""
        lattice = grad_hidden.view(frames.stop - frames.start, -1, grad_hidden.shape[1])
        if self.encoder is not None:
            encoder = self.encoder[sample, frames]
            encoder.add_(lattice.sum(1, dtype=encoder.dtype), alpha=scale)
        if self.predictor is not None:
            predictor = self.predictor[sample, : lattice.shape[1]]
            predictor.add_(lattice.sum(0, dtype=predictor.dtype), alpha=scale)

    def add_cells(
        self, grad_hidden: Tensor, sample: int, t: Tensor, u: Tensor, scale: float
    ) -> None:
        """Adds the gradient before the activation of any cells (t, u)."""
        for sums, index in ((self.encoder, t), (self.predictor, u)):
            if sums is not None:
                sums[sample].index_add_(0, index, grad_hidden.to(sums.dtype), alpha=scale)


def block_rows(row_bytes: int) -> int:
    """Returns the rows of a block, at least one."""
    return max(1, min(BLOCK_ROWS, BLOCK_BYTES // row_bytes))


def blocks(count: int, row_bytes: int) -> Iterator[slice]:
    """Yields slices of [0, count), one for each block."""
    return row_blocks(count, block_rows(row_bytes))
