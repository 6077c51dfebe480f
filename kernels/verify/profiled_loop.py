"""What msprof watches: the loss forward and backward at (8, 500, 100, 500), a few times."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from asr_ascend.losses import rnnt_loss_and_grad
from kernels.rnnt_loss_fused.time_model.shapes import Shape
from kernels.verify.rows import Target
from kernels.verify.times import make_case


def main() -> None:
    case = make_case(Shape(((500, 100),) * 8, 500))
    arguments = Target("npu").arguments(case)
    for _ in range(5):
        rnnt_loss_and_grad(*arguments, blank=0)
    torch.accelerator.synchronize()


main()
