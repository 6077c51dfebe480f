"""Lists the implementations of the losses, and chooses one for a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from torch import Tensor

from asr_ascend.losses import checks
from asr_ascend.losses.backends import cpu, npu, reference
from asr_ascend.losses.problem import Problem


class LossBackend(Protocol):
    """What a module of a backend offers for the loss."""

    # Whether it takes a band.
    HAS_BANDS: bool

    def is_available(self) -> bool:
        """Returns whether the backend can be used here and now."""

    def checks_on_host(self, index: Tensor, validate: bool) -> bool:
        """Returns whether the host checks the values of an index tensor before the call."""

    def costs(
        self,
        logits: Tensor,
        problem: Problem,
        *,
        reuse_logits: bool = False,
        validate: bool = False,
        values_checked: bool = False,
    ) -> Tensor:
        """Computes costs (B,) that autograd can differentiate, float64 where the device has it.

        Args:
            logits: (N, V) or (B, T, U1, V), any strides.
            problem: of these logits.
            reuse_logits, validate: as for ``rnnt_loss``.
            values_checked: whether lengths and targets are known to fit ``logits``.
        """

    def costs_and_gradient(
        self,
        logits: Tensor,
        problem: Problem,
        *,
        reuse_logits: bool = False,
        validate: bool = False,
        values_checked: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Computes costs (B,) and d cost_b / d logits, like ``logits`` or in their place.

        Args: as for ``costs``; ``logits`` don't require grad.
        """


class AlignmentBackend(Protocol):
    """What a module of a backend offers for the likeliest alignment."""

    def best_paths(self, logits: Tensor, problem: Problem) -> tuple[Tensor, Tensor]:
        """Finds frames (B, columns of ``targets``) int64, and log-probabilities (B,).

        Log-probabilities are float64 where the device has it. The meaning is that of
        ``rnnt_alignment``.
        """


# Fastest first. A native backend has the name of its type of device.
_LOSS: Mapping[str, LossBackend] = {"npu": npu, "cpu": cpu, "reference": reference}
_ALIGNMENT: Mapping[str, AlignmentBackend] = {"cpu": cpu, "reference": reference}
_PLACES = {"cpu": "the CPU", "npu": "an NPU"}

_Backend = TypeVar("_Backend")


def available() -> tuple[str, ...]:
    """Returns the names that ``backend`` takes here and now, fastest first."""
    return tuple(name for name, backend in _LOSS.items() if backend.is_available())


def for_loss(function: str, logits: Tensor, backend: str | None) -> LossBackend:
    """Returns the named backend; None stands for the native one of the device of ``logits``."""
    return _choose(function, logits, backend, _LOSS)


def for_alignment(function: str, logits: Tensor, backend: str | None) -> AlignmentBackend:
    """Returns the named backend for an alignment, as ``for_loss`` does for a loss."""
    return _choose(function, logits, backend, _ALIGNMENT)


def _choose(
    function: str, logits: Tensor, name: str | None, offered: Mapping[str, _Backend]
) -> _Backend:
    device = logits.device.type
    if name is None:
        if device not in _PLACES or device not in offered:
            raise RuntimeError(
                f"`{function}` has no native backend for logits on {logits.device}; "
                'backend="reference" works there, slowly.'
            )
        return offered[device]
    if name not in offered:
        *names, last = (f'"{known}"' for known in sorted(offered))
        raise ValueError(
            f"`backend` must be None, {', '.join(names)} or {last}, but is {checks.quoted(name)}."
        )
    if name in _PLACES and device != name:
        raise ValueError(
            f'`logits` must be on {_PLACES[name]} for backend="{name}", but is on {logits.device}.'
        )
    return offered[name]
