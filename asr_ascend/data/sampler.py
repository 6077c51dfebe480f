"""Batches bounded by the memory of the transducer's lattice, in an order that repeats."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from asr_ascend.data.filtering import FULL_LATTICE, LatticeBound, lattice_bytes
from asr_ascend.data.seeding import seeded_generator

_JITTER_SECONDS = 0.3
_TRIAL_EPOCHS = 3


@dataclass(frozen=True)
class UtteranceCost:
    """What one utterance costs: seconds of audio, encoder frames and target tokens."""

    id: str
    seconds: float
    encoder_frames: int
    tokens: int


class PositionError(ValueError):
    """A position in an epoch whose batches would be others now."""


class LatticeCostBatchSampler:
    """Lists of utterance indices, each list a batch.

    A batch holds utterances of similar length. Its packed joiner output, sum of
    T * (U + 1) * V * bytes or what a band leaves of it, is at most `max_lattice_bytes`, and its
    padded audio, longest times count, at most `max_batch_seconds`. Every epoch has the same number
    of batches, and every rank the same share; every utterance occurs once in an epoch, except for
    those of `rotation`, of which each epoch has one group. The batches are a pure function of
    (seed, epoch), the batch of (seed, epoch, index).

    The position is that of the loader, which counts the batches that the training loop has taken
    (`consumed`), not those that workers have prefetched.

    Args:
        costs: of all utterances.
        vocab_size: V.
        max_lattice_bytes: bound of a batch's joiner output over all its cells.
        bound: of these cells.
        max_batch_seconds: bound of a batch's padded audio.
        bytes_per_logit: 4 for float32, 2 for half precision.
        seed: of the order.
        shuffle: False: by length, the same in every epoch.
        rank: this process, in [0, world_size).
        world_size: processes that share the epoch.
        rotation: groups of indices of `costs` (see `asr_ascend.data.replay`); an index in any of
            them occurs only in its groups' epochs, as often as the group has it.

    Raises:
        ValueError: a bound, `rank` or `world_size` that does not fit, or an utterance that exceeds
            a bound by itself.
    """

    def __init__(
        self,
        costs: Sequence[UtteranceCost],
        *,
        vocab_size: int,
        max_lattice_bytes: int,
        max_batch_seconds: float,
        bytes_per_logit: int = 4,
        bound: LatticeBound = FULL_LATTICE,
        seed: int = 0,
        shuffle: bool = True,
        rank: int = 0,
        world_size: int = 1,
        rotation: Sequence[Sequence[int]] = (),
    ) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(f"`rank` must be in [0, {world_size - 1}], but is {rank}.")
        self.costs = list(costs)
        self.bytes = [
            lattice_bytes(cost.encoder_frames, cost.tokens, vocab_size, bytes_per_logit, bound)
            for cost in self.costs
        ]
        self.bound = bound
        self.max_lattice_bytes = max_lattice_bytes
        self.max_batch_seconds = max_batch_seconds
        self.seed = seed
        self.shuffle = shuffle
        self.rank = rank
        self.world_size = world_size
        self.rotation = [list(group) for group in rotation]
        rotating = {index for group in self.rotation for index in group}
        self.constant = [index for index in range(len(self.costs)) if index not in rotating]
        self._check_each_fits()
        self.epoch = 0
        self.consumed = 0
        trials = range(_TRIAL_EPOCHS) if shuffle else range(0)
        counts = [len(self._pack(epoch, 1.0)) for epoch in trials]
        # Without jitter the batches depend only on the group: this many are always enough.
        groups = range(max(1, len(self.rotation)))
        most = max([*(len(self._pack(epoch, 0.0)) for epoch in groups), *counts])
        self.num_batches = -(-most // world_size) * world_size

    def __len__(self) -> int:
        """Returns the number of batches of an epoch for this rank."""
        return self.num_batches // self.world_size

    def __iter__(self) -> Iterator[list[int]]:
        """Returns this rank's batches of the current epoch from `consumed` on."""
        return iter(self.rank_batches(self.epoch)[self.consumed :])

    def rank_batches(self, epoch: int) -> list[list[int]]:
        """Returns this rank's batches of one epoch, each a list of indices."""
        return self.batches(epoch)[self.rank :: self.world_size]

    def batches(self, epoch: int) -> list[list[int]]:
        """Returns all ranks' batches of one epoch, `num_batches` of them.

        To reach that number, the largest batches are halved; where that isn't enough, empty ones
        follow.
        """
        batches: list[list[int]] = []
        for jitter in (1.0, 0.5, 0.25, 0.0) if self.shuffle else (0.0,):
            batches = self._pack(epoch, jitter)
            if len(batches) <= self.num_batches:
                break
        while len(batches) < self.num_batches:
            largest = max(range(len(batches)), key=lambda i: len(batches[i]), default=-1)
            if largest < 0 or len(batches[largest]) < 2:
                batches.append([])
                continue
            batch = batches[largest]
            batches[largest] = batch[: len(batch) // 2]
            batches.append(batch[len(batch) // 2 :])
        if not self.shuffle:
            return batches
        order = torch.randperm(
            len(batches), generator=seeded_generator("batch order", self.seed, epoch)
        )
        return [batches[position] for position in order.tolist()]

    def members(self, epoch: int) -> list[int]:
        """Returns the indices of an epoch's utterances over all ranks, before shuffling."""
        group = self.rotation[epoch % len(self.rotation)] if self.rotation else []
        return self.constant + group

    def set_epoch(self, epoch: int) -> None:
        """Moves to the start of another epoch; the current epoch keeps its position."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.consumed = 0

    def state_dict(self) -> dict[str, Any]:
        """Returns the epoch, the batches consumed in it, and a fingerprint of their order."""
        return {
            "epoch": self.epoch,
            "consumed": self.consumed,
            "num_batches": len(self),
            "fingerprint": self._fingerprint(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes up the position of `state`.

        Raises:
            PositionError: `state` is in the middle of an epoch whose batches would differ now.
        """
        middle = 0 < state["consumed"] < state["num_batches"]
        if middle and state["fingerprint"] != self._fingerprint():
            raise PositionError(
                "`state` must come from the same data, bounds, seed and number of ranks to resume "
                f"in the middle of an epoch, but epoch {state['epoch']} was left after "
                f"{state['consumed']} of its {state['num_batches']} batches with others."
            )
        self.epoch = state["epoch"]
        # A whole epoch stays whole, even where it has another number of batches now.
        whole = state["consumed"] >= state["num_batches"]
        self.consumed = len(self) if whole else state["consumed"]

    def describe(self) -> str:
        """Returns one line with the bounds of a batch and the size of an epoch."""
        batches = self.batches(0)
        largest = max((sum(self.bytes[i] for i in batch) for batch in batches), default=0)
        members = self.members(0)
        hours = sum(self.costs[index].seconds for index in members) / 3600
        replayed = len(members) - len(self.constant)
        of_replay = f", {replayed} of them replayed" if self.rotation else ""
        return (
            f"{len(members)} utterances ({hours:.2f} h{of_replay}) in {self.num_batches} batches "
            f"an epoch; a batch is at most {self.max_batch_seconds:g} s of padded audio and "
            f"{_mebibytes(self.max_lattice_bytes)} of joiner output"
            f"{' in the band' if self.bound.is_banded else ''} "
            f"(largest of the first epoch: {_mebibytes(largest)})"
        )

    def _pack(self, epoch: int, jitter: float) -> list[list[int]]:
        members = self.members(epoch)
        seconds = torch.tensor([self.costs[i].seconds for i in members], dtype=torch.float64)
        generator = seeded_generator("batch contents", self.seed, epoch)
        shift = torch.rand(len(seconds), generator=generator, dtype=torch.float64) * 2 - 1
        order = torch.argsort(seconds + jitter * _JITTER_SECONDS * shift, stable=True)
        batches: list[list[int]] = []
        longest = 0.0
        total = 0
        for position in order.tolist():
            index = members[position]
            longest = max(longest, self.costs[index].seconds)
            total += self.bytes[index]
            padded = longest * (len(batches[-1]) + 1) if batches else 0.0
            full = padded > self.max_batch_seconds or total > self.max_lattice_bytes
            if not batches or full:
                batches.append([])
                longest, total = self.costs[index].seconds, self.bytes[index]
            batches[-1].append(index)
        return batches

    def _check_each_fits(self) -> None:
        for cost, size in zip(self.costs, self.bytes, strict=True):
            if size > self.max_lattice_bytes:
                raise ValueError(
                    f"`max_lattice_bytes` must be at least {size} for utterance '{cost.id}', "
                    f"but is {self.max_lattice_bytes}."
                )
            if cost.seconds > self.max_batch_seconds:
                raise ValueError(
                    f"`max_batch_seconds` must be at least {cost.seconds:g} for utterance "
                    f"'{cost.id}', but is {self.max_batch_seconds:g}."
                )

    def _fingerprint(self) -> str:
        bounds = (self.max_lattice_bytes, self.max_batch_seconds, self.seed, self.shuffle)
        digest = hashlib.sha256(repr((bounds, self.world_size, self.rotation)).encode())
        for cost, size in zip(self.costs, self.bytes, strict=True):
            digest.update(repr((cost.id, cost.seconds, size)).encode())
        return digest.hexdigest()


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"
