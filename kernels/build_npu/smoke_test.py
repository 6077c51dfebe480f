"""One loss and gradient on the NPU against values known in closed form. Exit status 77: no NPU."""

import math
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from kernels.verify.machine import device_name, is_stand_in

NO_NPU = 77
T, U, V = 7, 3, 11


def expected_cost() -> float:
    """Equal logits: every one of C(T + U - 1, U) paths has probability V^-(T + U)."""
    return (T + U) * math.log(V) - math.log(math.comb(T + U - 1, U))


def main() -> None:
    try:
        available = torch.npu.is_available()
    except (AttributeError, RuntimeError) as error:
        print(f"{type(error).__name__}: {error}")
        sys.exit(NO_NPU)
    if not available:
        print("torch.npu.is_available() is False.")
        sys.exit(NO_NPU)
    from asr_ascend.losses import rnnt_loss_and_grad

    logits = torch.zeros(T * (U + 1), V).npu()
    targets = torch.tensor([[1, 2, 3]], dtype=torch.int32).npu()
    lengths = (torch.tensor([T], dtype=torch.int32), torch.tensor([U], dtype=torch.int32))
    costs, grad = rnnt_loss_and_grad(logits, targets, *lengths, blank=0)
    cost, sums = costs.cpu().item(), grad.cpu().sum(-1)
    if abs(cost - expected_cost()) > 1e-5:
        sys.exit(f"problem: the cost is {cost}, but must be {expected_cost()}.")
    if not sums.abs().max() <= 1e-6:
        sys.exit(
            f"problem: the gradient of a row must sum to 0, but sums to {sums.abs().max().item()}."
        )
    name = device_name("npu", is_stand_in())
    print(f"The loss runs on {name}: {cost:.6f}, as it must be.")


main()
