"""Training on several ranks: DDP whose time-outs say which rank waited for what."""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed
from lightning.fabric.utilities.distributed import _destroy_dist_connection
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor

HCCL = "hccl"
# What the messages of gloo, of the store that ranks meet at, and of HCCL have in common.
_TIMED_OUT = re.compile(r"time[d]?[ -]?out", re.IGNORECASE)


class RankTimeoutError(Exception):
    """A rank waited too long for the others; the message is for the user."""


class RanksStrategy(DDPStrategy):
    """Lightning's DDP whose time-outs are one sentence, with the rank and what it waited for.

    Args:
        timeout_seconds: longest wait for the other ranks.
        kwargs: as for Lightning's `DDPStrategy`.
    """

    strategy_name = "ddp_ranks"

    def __init__(self, timeout_seconds: int = 1800, **kwargs: Any) -> None:
        super().__init__(timeout=timedelta(seconds=timeout_seconds), **kwargs)
        self.timeout_seconds = timeout_seconds

    def setup_distributed(self) -> None:
        """Starts the process group, as Lightning does."""
        with self.waiting("all ranks to start"):
            super().setup_distributed()

    def configure_ddp(self) -> None:
        """Wraps the model for DDP, as Lightning does."""
        with self.waiting("the weights that rank 0 starts from"):
            super().configure_ddp()

    def backward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Computes the gradients and sums them over the ranks, as Lightning does."""
        with self.waiting("the sum of the gradients"):
            return super().backward(*args, **kwargs)

    def barrier(self, name: str | None = None) -> None:
        """Waits for all ranks, as Lightning does."""
        with self.waiting(f"the barrier {name}" if name else "a barrier"):
            super().barrier()

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """Sends an object from rank `src` to all ranks, as Lightning does."""
        with self.waiting(f"what rank {src} sends"):
            return super().broadcast(obj, src)

    def all_gather(self, tensor: Tensor, group: Any = None, sync_grads: bool = False) -> Tensor:
        """Gathers a tensor from all ranks, as Lightning does."""
        with self.waiting("what all ranks send"):
            return super().all_gather(tensor, group, sync_grads)

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Reduces a tensor over the ranks, as Lightning does."""
        with self.waiting("a sum over the ranks"):
            return super().reduce(tensor, group, reduce_op)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Turns a time-out of torch within a `with` block into one sentence.

        Args:
            what: what the rank waits for, as the sentence says it.

        Raises:
            RankTimeoutError: torch raised an error that says that the time is up.
        """
        try:
            yield
        except (RuntimeError, torch.distributed.DistError) as error:
            if not _TIMED_OUT.search(str(error)):
                raise
            first = " ".join(str(error).split("\n")[0].split())[:300].rstrip(".")
            raise RankTimeoutError(
                f"Rank {self.global_rank} of {self.world_size} waited in vain for {what}; "
                f"`trainer.timeout_seconds` is {self.timeout_seconds}. The messages of the other "
                f"ranks say which of them ended, and why. ({first})"
            ) from error


class NpuRanksStrategy(RanksStrategy):
    """DDP over HCCL: a process for each NPU.

    Lightning opens a CUDA stream for any device ids, binds the barrier to NCCL alone, and destroys
    only NCCL's process groups at the end.
    """

    strategy_name = "ddp_npu"

    def __init__(self, timeout_seconds: int = 1800, **kwargs: Any) -> None:
        super().__init__(timeout_seconds, process_group_backend=HCCL, **kwargs)

    def setup_distributed(self) -> None:
        """Starts the process group over HCCL with the time-out of the run."""
        # HCCL's own limit of a wait within a collective, in seconds (0: none); 1836 by default.
        # hiascend.com, CANN commercial 8.5.0, environment variables, HCCL_EXEC_TIMEOUT.
        os.environ.setdefault("HCCL_EXEC_TIMEOUT", str(self.timeout_seconds))
        fresh = not torch.distributed.is_initialized()
        super().setup_distributed()
        if fresh:
            atexit.register(_destroy_dist_connection)

    def determine_ddp_device_ids(self) -> None:
        """Returns None: the module is on one device already, and no CUDA stream is opened."""
        return None

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Reduces a tensor over the ranks without Lightning's barrier.

        For the barrier the host would wait at every step.
        """
        if not isinstance(tensor, Tensor) or self.world_size == 1:
            return tensor
        mean = reduce_op in ("mean", "avg")
        operation = torch.distributed.ReduceOp.SUM if mean else _operation(reduce_op)
        with self.waiting("a sum over the ranks"):
            torch.distributed.all_reduce(tensor, operation, group)
        return tensor.div_(self.world_size) if mean else tensor


def _operation(reduce_op: Any) -> Any:
    if isinstance(reduce_op, str):
        return getattr(torch.distributed.ReduceOp, reduce_op.upper())
    return torch.distributed.ReduceOp.SUM if reduce_op is None else reduce_op
