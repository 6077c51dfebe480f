"""What msprof watches: the loss forward and backward at (8, 500, 100, 500), a few times."""

import torch
from cases import tables
from rows import Target
from times import make_case

from asr_ascend.losses import rnnt_loss_and_grad


def main() -> None:
    case = make_case(tables.Shape(((500, 100),) * 8, 500))
    arguments = Target("npu").arguments(case)
    for _ in range(5):
        rnnt_loss_and_grad(*arguments, blank=0)
    torch.accelerator.synchronize()


main()
