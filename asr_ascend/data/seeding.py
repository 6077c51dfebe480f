"""Seeds that depend only on names, so a draw is the same in any process, worker or order."""

from __future__ import annotations

import hashlib

import torch


def stable_seed(*parts: object) -> int:
    """Computes a seed in [0, 2^63) from the text of `parts`.

    Python's own `hash` of strings differs from process to process; SHA-256 does not.

    Args:
        parts: anything whose `str` is stable, e.g. ``stable_seed(seed, epoch, utterance_id)``.

    Returns:
        An int fit for `torch.Generator.manual_seed`.
    """
    text = "\x1f".join(str(part) for part in parts)
    data = text.encode(errors="surrogatepass")  # names of files need not be UTF-8
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "little") >> 1


def seeded_generator(*parts: object) -> torch.Generator:
    """Returns a CPU `torch.Generator` seeded by `stable_seed(*parts)`."""
    return torch.Generator().manual_seed(stable_seed(*parts))


def uniform(low: float, high: float, generator: torch.Generator) -> float:
    """Draws one number from U[low, high)."""
    return low + (high - low) * float(torch.rand((), generator=generator))


def integer(low: int, high: int, generator: torch.Generator) -> int:
    """Draws one of the integers low..high, both included."""
    return int(torch.randint(low, high + 1, (), generator=generator))
